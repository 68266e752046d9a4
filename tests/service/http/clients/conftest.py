"""A service with probabilities on a socket, for the real clients of others."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from aladin_service.http.access.policy import make_policy
from aladin_service.http.app import create_app
from aladin_service.keys_file import add_key
from aladin_service.observe.metrics import Metrics
from aladin_service.settings import ServiceSettings
from aladin_service.work.worker import WorkerPlan
from aladin_service.work.workers import ThreadWorkers
from tests.service.http.clients.generated_client import generated_package

Serve = Callable[..., AbstractContextManager[str]]


@pytest.fixture(scope="package", autouse=True)
def offline() -> Iterator[None]:
    """Have LiteLLM read its own list of models, instead of one from the internet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        yield
    # Some of the clients leave their connections to the garbage collector.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="package")
def key_and_url(
    calibrated_index: Path, serve_in_thread: Serve, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """A key with the scope read, and the address of a service that requires it."""
    keys_file = tmp_path_factory.mktemp("keys") / "keys.json"
    key = add_key(keys_file, "reader", ["read"])
    settings, metrics = ServiceSettings(keys_file=keys_file), Metrics()
    workers = ThreadWorkers(
        WorkerPlan(index=calibrated_index, settings=settings).make(), settings, metrics
    )
    app = create_app(workers, settings, metrics, policy=make_policy(settings))
    with serve_in_thread(app) as url:
        yield key, url


@pytest.fixture(scope="package")
def generated_aladin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The package that openapi-python-client generates from /openapi.json."""
    with generated_package(tmp_path_factory.mktemp("generated")) as package:
        yield package


@pytest.fixture
def photo_folder(tmp_path: Path, query_photo: Image.Image, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the photo of the guides."""
    query_photo.save(tmp_path / "photo.jpg")
    monkeypatch.chdir(tmp_path)
    return tmp_path
