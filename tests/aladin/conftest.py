"""What the tests of the network share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def folder(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    """A copy of the tiny checkpoint, without graphs, that a test may damage."""
    return Path(shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint"))
