"""An index that a test may change, and a clock."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.service.work.published import Clock


@pytest.fixture
def index(index_folder: Path, tmp_path: Path) -> Path:
    """An index that a test may change."""
    return Path(shutil.copytree(index_folder, tmp_path / "index"))


@pytest.fixture
def clock() -> Clock:
    """Time that a test moves on."""
    return Clock()
