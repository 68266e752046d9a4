"""What `aladin index info` says of an index, and a calibration that is published."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from aladin_index.building.builder import build_index
from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.source_items import TextItem
from aladin_index.facts import IndexFacts
from aladin_index.format.disk import only_builder
from aladin_index.generations.compact import compact_index
from aladin_index.generations.history import pending_changes
from aladin_index.generations.info import describe, facts_of
from aladin_index.generations.published import publish_entries, rollback_index, store_calibration
from aladin_index.generations.reader import open_index
from aladin_index.generations.verify import verify_index
from aladin_index.measure.tune import tune_index
from aladin_index.measure.tune_options import TuneOptions
from aladin_network.calibration.calibration import Calibration
from aladin_network.checkpoint_files import read_model_id
from aladin_network.errors import IndexMismatchError, IndexNotReadyError


def kept(root: Path) -> Calibration | None:
    with open_index(root, encodes=False) as index:
        return index.manifest.calibration


def test_the_live_generation_is_described(
    index_copy: Path, tiny_checkpoint: Path, texts: list[TextItem]
) -> None:
    info = describe(index_copy)
    assert (info.generation, info.generations, info.changed) == (1, [1], False)
    counts = {target: each.count for target, each in info.collections.items()}
    assert counts == {"images": 23, "texts": 16}
    photos = info.collections["images"]
    assert photos.token_count == 23 * 16  # 4 x 4 regions each
    assert (photos.ann.factory, photos.takes_all) == ("Flat", True)
    assert info.model.id == read_model_id(tiny_checkpoint)
    assert (info.metric, info.default_candidates) == ("inner_product", 100)
    folder = index_copy / "generations" / "000001"
    folders = {target: folder / target for target in counts} | {"model": index_copy / "model"}
    assert info.size_bytes == {
        name: sum(path.stat().st_size for path in each.iterdir()) for name, each in folders.items()
    }
    build_index(tiny_checkpoint, index_copy, None, texts[:2])
    info = describe(index_copy)
    assert (info.generation, info.generations) == (2, [1, 2])
    assert list(info.collections) == ["texts"]
    assert info.built_at is not None
    assert abs(info.built_at.timestamp() - time.time()) < 60


def test_changes_are_counted_with_and_without_opening_the_index(index_copy: Path) -> None:
    with closing(ChangesWriter(index_copy, describe(index_copy).model.id)) as writer:
        writer.delete("texts", ["text 0"])
    closed = describe(index_copy)
    with open_index(index_copy, encodes=False) as index:
        opened = facts_of(index)
    for facts in (closed, opened):
        assert (facts.collections["images"].count, facts.collections["texts"].count) == (23, 15)
        assert facts.collections["texts"].built == 16
    assert (closed.collections["texts"].pending, closed.changed) == ((0, 1), True)
    assert opened.changed_at == closed.changed_at
    public = TypeAdapter(IndexFacts)
    assert public.dump_python(opened) == public.dump_python(closed)
    assert not {"path", "size_bytes"} & set(public.dump_python(opened))


def test_a_calibration_is_all_that_its_generation_has_new(
    index_copy: Path, make_calibration: Callable[..., Calibration]
) -> None:
    with open_index(index_copy, encodes=False) as index:
        before = index.manifest
    with closing(ChangesWriter(index_copy, before.model.id)) as writer:
        writer.delete("images", ["photo 3"])
    first, second = make_calibration(before.model.id, 40), make_calibration(before.model.id, 50)
    assert store_calibration(index_copy, first) == 2
    with open_index(index_copy, encodes=False) as index:
        manifest = index.manifest
    assert (manifest.calibration, manifest.made_by) == (first, "calibrate")
    assert (manifest.collections, manifest.files) == (before.collections, before.files)
    assert pending_changes(index_copy)["images"].removed == 1
    verify_index(index_copy)
    assert store_calibration(index_copy, second) == 3
    assert kept(index_copy) == second
    with only_builder(index_copy), open_index(index_copy, encodes=False) as index:
        assert publish_entries(index_copy, index.manifest, {}, "tune") == 4
    assert kept(index_copy) == second
    with pytest.raises(IndexMismatchError, match="another"):
        store_calibration(index_copy, make_calibration("another"))
    with pytest.raises(IndexNotReadyError):
        store_calibration(index_copy / "none", first)
    assert not (index_copy / "none").exists()


def test_a_calibration_survives_tuning_changes_and_compaction_but_not_a_rollback(
    index_copy: Path, make_calibration: Callable[..., Calibration]
) -> None:
    calibration = make_calibration(read_model_id(index_copy / "model"))
    assert store_calibration(index_copy, calibration) == 2
    tune_index(index_copy, TuneOptions(fidelity=0.5, at=2, num_queries=5, max_candidates=5))
    with closing(ChangesWriter(index_copy, calibration.model_id)) as writer:
        writer.delete("images", ["photo 3"])
    assert kept(index_copy) == calibration
    assert compact_index(index_copy, keep=9).generation == 4
    assert kept(index_copy) == calibration
    rollback_index(index_copy, 1)
    assert kept(index_copy) is None
    rollback_index(index_copy, 2)
    assert kept(index_copy) == calibration
