"""The package that openapi-python-client generates from /openapi.json, and calls of it."""

from __future__ import annotations

import importlib
import json
import pkgutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from aladin_service.http.app import create_app
from aladin_service.observe.metrics import Metrics
from aladin_service.settings import ServiceSettings

# The generator's own environment, see the Makefile.
GENERATOR = Path(sys.prefix) / "generator" / "bin" / "openapi-python-client"
# The generator knows no pictures; they are bytes.
CONFIG = """
post_hooks: []
content_type_overrides:
  image/png: application/octet-stream
  image/*: application/octet-stream
"""


class Generated:
    """The generated package, and clients of a service."""

    def __init__(self, package: Any, url: str, key: str) -> None:
        self.package = package
        client = package.AuthenticatedClient
        self.client = client(base_url=url, token=key)
        self.stranger = client(base_url=url, token="wrong")

    def call(self, name: str, *args: Any, **fields: Any) -> Any:
        """Call an operation by its tag and its name, and return the parsed answer."""
        return self.answer(self.client, name, *args, **fields).parsed

    def answer(self, client: Any, name: str, *args: Any, **fields: Any) -> Any:
        """Call an operation with one of the clients, and return the whole answer."""
        module = importlib.import_module(f"{self.package.__name__}.api.{name}")
        return module.sync_detailed(*args, client=client, **fields)

    def model(self, name: str) -> Any:
        """Return a model by its name."""
        return getattr(importlib.import_module(f"{self.package.__name__}.models"), name)

    def file(self, content: Any, name: str, media_type: str) -> Any:
        """Return a file of a form."""
        return importlib.import_module(f"{self.package.__name__}.types").File(
            content, name, media_type
        )


def openapi_document() -> dict[str, Any]:
    """Return the document of a service with the default settings; it takes no index."""
    return create_app(cast(Any, None), ServiceSettings(), Metrics()).openapi()


@contextmanager
def generated_package(folder: Path) -> Generator[Any]:
    """Generate the package into a folder, and import all of it."""
    (folder / "config.yaml").write_text(CONFIG)
    (folder / "openapi.json").write_text(json.dumps(openapi_document()))
    if not GENERATOR.exists():
        pytest.skip(f"{GENERATOR} is missing: `make test-clients` installs it")
    done = subprocess.run(
        [
            *(str(GENERATOR), "generate", "--meta", "none"),
            *("--path", "openapi.json", "--config", "config.yaml"),
            *("--output-path", "generated_aladin", "--fail-on-warning"),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        package = importlib.import_module("generated_aladin")
        for module in pkgutil.walk_packages(package.__path__, "generated_aladin."):
            importlib.import_module(module.name)
        yield package
