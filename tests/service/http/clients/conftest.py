"""A service with probabilities on a socket, for the real clients of others."""

from __future__ import annotations

import gc
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from PIL import Image

from aladin_service.http.access.policy import make_policy
from aladin_service.http.app import create_app
from aladin_service.keys_file import add_key
from aladin_service.observe.metrics import Metrics
from aladin_service.settings import ServiceSettings
from aladin_service.work.worker import WorkerPlan
from aladin_service.work.workers import ThreadWorkers

Serve = Callable[..., AbstractContextManager[str]]


@pytest.fixture(scope="module", autouse=True)
def offline() -> Iterator[None]:
    """Have LiteLLM read its own list of models, instead of one from the internet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        yield
    # Some of the clients leave their connections to the garbage collector.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def key_and_url(
    calibrated_index: Path, serve_in_thread: Serve, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """A key that reads and writes, and the address of a service that requires it."""
    folder = tmp_path_factory.mktemp("served")
    index = Path(shutil.copytree(calibrated_index, folder / "index"))
    key = add_key(folder / "keys.json", "client", ["read", "write"])
    settings, metrics = ServiceSettings(keys_file=folder / "keys.json"), Metrics()
    workers = ThreadWorkers(WorkerPlan(index=index, settings=settings).make(), settings, metrics)
    app = create_app(workers, settings, metrics, policy=make_policy(settings))
    with serve_in_thread(app) as url:
        yield key, url


@pytest.fixture
def photo_folder(tmp_path: Path, query_photo: Image.Image, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the photo of the guides."""
    query_photo.save(tmp_path / "photo.jpg")
    monkeypatch.chdir(tmp_path)
    return tmp_path
