"""An index of made-up items, and what changes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.encoded import ItemBatch
from aladin_network.checkpoint_files import read_model_id

MakeItems = Callable[..., ItemBatch]


@pytest.fixture
def root(tmp_path: Path, made_up: MakeItems, write_made_up: Callable[..., int]) -> Path:
    """An index of six images and two texts."""
    images = made_up(list("abcdef"), n=[1, 2, 3, 4, 5, 6])
    write_made_up(tmp_path / "index", images=images, texts=made_up(["s", "t"]))
    return tmp_path / "index"


@pytest.fixture
def writer(root: Path) -> Iterator[ChangesWriter]:
    """Changes `root`."""
    with closing(ChangesWriter(root, read_model_id(root / "model"))) as opened:
        yield opened
