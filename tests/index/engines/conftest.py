"""An index of files, pushed to an engine in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aladin_index.engines.push import PushReport, PushSettings, push_index
from aladin_index.format.layout import EngineLocation
from tests.index.engines.memory_engine import MemoryEngine, MemoryServer

LOCATION = EngineLocation(url="http://127.0.0.1:1", name="test")


@pytest.fixture
def server() -> MemoryServer:
    """An engine without anything in it."""
    return MemoryServer()


@pytest.fixture
def push(server: MemoryServer, tmp_path: Path) -> Callable[..., PushReport]:
    """Return a function that pushes an index to `server`, and to the folder "remote"."""

    def run(index: Path, **settings: Any) -> PushReport:
        options = replace(PushSettings(batch_size=4), **settings)
        return push_index(index, tmp_path / "remote", LOCATION, MemoryEngine(server), options)

    return run
