import time
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from aladin_index.building.builder import build_index
from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.source_items import ImageItem
from aladin_index.facts import IndexFacts
from aladin_index.generations.info import describe, facts_of
from aladin_index.generations.reader import open_index
from aladin_network.checkpoint import load_checkpoint
from aladin_network.errors import IndexNotReadyError


def test_the_live_generation_is_described(
    index_copy: Path, tiny_checkpoint: Path, images: list[ImageItem]
) -> None:
    info = describe(index_copy)
    assert (info.generation, info.generations, info.changed) == (1, [1], False)
    assert {target: each.count for target, each in info.collections.items()} == {
        "images": 23,
        "texts": 16,
    }
    photos = info.collections["images"]
    assert photos.token_count == 23 * 16  # 4 x 4 regions each
    assert (photos.ann.factory, photos.takes_all) == ("Flat", True)
    assert info.model.id == load_checkpoint(tiny_checkpoint).model_id
    assert (info.metric, info.default_candidates) == ("inner_product", 100)
    folder = index_copy / "generations" / "000001"
    sizes = {
        target: sum(path.stat().st_size for path in (folder / target).iterdir())
        for target in ("images", "texts")
    }
    sizes["model"] = sum(path.stat().st_size for path in (index_copy / "model").iterdir())
    assert info.size_bytes == sizes
    build_index(tiny_checkpoint, index_copy, images[:2], None)
    info = describe(index_copy)
    assert (info.generation, info.generations) == (2, [1, 2])
    assert list(info.collections) == ["images"]
    assert info.built_at is not None
    assert abs(info.built_at.timestamp() - time.time()) < 60


def test_changes_are_counted_with_and_without_opening_the_index(index_copy: Path) -> None:
    writer = ChangesWriter(index_copy, describe(index_copy).model.id)
    writer.delete("texts", ["text 0"])
    writer.close()
    closed = describe(index_copy)
    with open_index(index_copy) as index:
        opened = facts_of(index)
    for facts in (closed, opened):
        assert (facts.collections["images"].count, facts.collections["texts"].count) == (23, 15)
        assert facts.collections["texts"].built == 16
    assert closed.collections["texts"].pending == (0, 1)
    assert closed.changed
    assert opened.changed_at == closed.changed_at
    public = TypeAdapter(IndexFacts)
    assert public.dump_python(opened) == public.dump_python(closed)
    assert not {"path", "size_bytes"} & set(public.dump_python(opened))


def test_no_index_has_no_description(tmp_path: Path) -> None:
    with pytest.raises(IndexNotReadyError):
        describe(tmp_path)
