"""A calibration is stored in an index, of its own model alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aladin_index.generations.published import store_calibration
from aladin_index.generations.reader import open_index
from aladin_network.calibration.calibration import Calibration
from aladin_network.errors import IndexMismatchError, IndexNotReadyError


def test_a_calibration_makes_a_generation(
    index_copy: Path, make_calibration: Callable[..., Calibration]
) -> None:
    with open_index(index_copy) as index:
        calibration = make_calibration(index.manifest.model.id)
    assert store_calibration(index_copy, calibration) == 2
    with open_index(index_copy) as index:
        assert index.manifest.calibration == calibration


def test_that_of_another_model_is_refused(
    index_copy: Path, make_calibration: Callable[..., Calibration]
) -> None:
    with pytest.raises(IndexMismatchError, match="another"):
        store_calibration(index_copy, make_calibration("another"))
    with open_index(index_copy) as index:
        assert (index.generation, index.manifest.calibration) == (1, None)


def test_where_there_is_no_index_nothing_is_made(
    tmp_path: Path, make_calibration: Callable[..., Calibration]
) -> None:
    with pytest.raises(IndexNotReadyError):
        store_calibration(tmp_path / "none", make_calibration("model"))
    assert not (tmp_path / "none").exists()
