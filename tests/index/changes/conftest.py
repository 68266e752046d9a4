"""An index of made-up items, and what writes to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from aladin_index.changes.writer import ChangesWriter
from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import Checkpoint
from tests.index.written import made_up


@pytest.fixture(scope="session")
def checkpoint(tiny_checkpoint: Path) -> Checkpoint:
    return load_checkpoint(tiny_checkpoint)


@pytest.fixture
def root(tmp_path: Path, write_made_up: Callable[..., int]) -> Path:
    """An index of the images a, b, c, and of a text."""
    collections = {"images": made_up(["a", "b", "c"], n=[1, 2, 3]), "texts": made_up(["t"])}
    write_made_up(tmp_path / "index", **collections)
    return tmp_path / "index"


@pytest.fixture
def writer(root: Path, checkpoint: Checkpoint) -> Iterator[ChangesWriter]:
    with closing(ChangesWriter(root, checkpoint.model_id)) as opened:
        yield opened
