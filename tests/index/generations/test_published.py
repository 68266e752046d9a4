"""A calibration that is published, and what becomes of it later."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from aladin_index.changes.writer import ChangesWriter
from aladin_index.format.disk import only_builder
from aladin_index.generations.compact import compact_index
from aladin_index.generations.history import pending_changes
from aladin_index.generations.published import publish_entries, rollback_index, store_calibration
from aladin_index.generations.reader import open_index
from aladin_index.generations.verify import verify_index
from aladin_index.measure.tune import tune_index
from aladin_index.measure.tune_options import TuneOptions
from aladin_network.calibration.calibration import Calibration
from aladin_network.errors import IndexMismatchError, IndexNotReadyError


def kept(root: Path) -> Calibration | None:
    with open_index(root) as index:
        return index.manifest.calibration


def test_only_the_calibration_is_new(
    index_copy: Path, make_calibration: Callable[..., Calibration]
) -> None:
    with open_index(index_copy) as index:
        before = index.manifest
    with closing(ChangesWriter(index_copy, before.model.id)) as writer:
        writer.delete("images", ["photo 3"])
    first, second = make_calibration(before.model.id, 40), make_calibration(before.model.id, 50)
    assert store_calibration(index_copy, first) == 2
    with open_index(index_copy) as index:
        manifest = index.manifest
        assert (manifest.calibration, manifest.made_by) == (first, "calibrate")
        assert (manifest.images, manifest.texts) == (before.images, before.texts)
        assert manifest.files == before.files
    assert pending_changes(index_copy)["images"].removed == 1
    verify_index(index_copy)
    assert store_calibration(index_copy, second) == 3
    assert kept(index_copy) == second
    with pytest.raises(IndexMismatchError, match="another"):
        store_calibration(index_copy, make_calibration("another"))
    with only_builder(index_copy), open_index(index_copy) as index:
        assert publish_entries(index_copy, index.manifest, {}, "tune") == 4
    assert kept(index_copy) == second


def test_storing_a_calibration_without_an_index_makes_no_folder(
    tmp_path: Path, make_calibration: Callable[..., Calibration]
) -> None:
    with pytest.raises(IndexNotReadyError):
        store_calibration(tmp_path / "none", make_calibration("model"))
    assert not (tmp_path / "none").exists()


def test_a_calibration_survives_tuning_changes_and_compaction_but_not_a_rollback(
    index_copy: Path, make_calibration: Callable[..., Calibration]
) -> None:
    with open_index(index_copy) as index:
        model_id = index.manifest.model.id
    calibration = make_calibration(model_id)
    assert store_calibration(index_copy, calibration) == 2
    tune_index(index_copy, TuneOptions(fidelity=0.5, at=2, num_queries=5, max_candidates=5))
    assert kept(index_copy) == calibration
    with closing(ChangesWriter(index_copy, model_id)) as writer:
        writer.delete("images", ["photo 3"])
    assert kept(index_copy) == calibration
    assert compact_index(index_copy, keep=9).generation == 4
    assert kept(index_copy) == calibration
    rollback_index(index_copy, 1)
    assert kept(index_copy) is None
    rollback_index(index_copy, 2)
    assert kept(index_copy) == calibration
