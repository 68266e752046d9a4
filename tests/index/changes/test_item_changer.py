from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aladin_index.building.builder import build_index
from aladin_index.changes import writable
from aladin_index.changes.item_changer import add_items, check_new
from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.settings import AddSettings, BuildSettings, MetadataLimits
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.errors import DuplicateItemError, InputError
from tests.index.progress import CountedProgress


@pytest.fixture(scope="module")
def half_built(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_checkpoint: Path,
    images: list[ImageItem],
    texts: list[TextItem],
) -> Path:
    """An index of the first half of the photos and texts; not to be written to."""
    root = tmp_path_factory.mktemp("half") / "index"
    build_index(tiny_checkpoint, root, images[:12], texts[:8])
    return root


@pytest.fixture
def half(half_built: Path, tmp_path: Path, checkpoint: Checkpoint) -> Iterator[SearchIndex]:
    """A copy of it, open."""
    shutil.copytree(half_built, tmp_path / "index")
    with open_index(tmp_path / "index", checkpoint=checkpoint) as index:
        yield index


@pytest.fixture
def root(half: SearchIndex) -> Path:
    """Where `writer` writes."""
    return half.path


def test_half_built_and_half_added_is_as_good_as_built(
    half: SearchIndex,
    writer: ChangesWriter,
    search_index: SearchIndex,
    images: list[ImageItem],
    texts: list[TextItem],
) -> None:
    """The index that `searcher` searches was built of all in one go."""
    model, settings = half.checkpoint.model, AddSettings(batch_size=4)
    progress = CountedProgress()
    counts = add_items(writer, model, "images", images[12:], settings, progress)
    assert (counts.added, counts.replaced, counts.kept, counts.skipped) == (11, 0, 0, [])
    assert [piece[2] for piece in progress.pieces] == [11]
    assert add_items(writer, model, "texts", iter(texts[8:]), settings).added == 8
    for target in ("images", "texts"):
        added, built = half.collection(target), search_index.collection(target)
        assert dict(added.items.ids()).keys() == dict(built.items.ids()).keys()
        for item_id, row in built.items.ids():
            ours = added.items.by_id(item_id)
            theirs = built.items.by_rows([row])[0]
            assert ours._replace(row=row) == theirs
            np.testing.assert_allclose(added.embedding(ours.row), built.embedding(row), atol=1e-5)
            np.testing.assert_allclose(added.tokens(ours.row), built.tokens(row), atol=2e-3)


def test_an_addition_that_was_cut_short_continues_with_skip(
    half: SearchIndex, writer: ChangesWriter, images: list[ImageItem]
) -> None:
    model = half.checkpoint.model

    def cut() -> Iterator[ImageItem]:
        yield from images[12:20]
        raise InputError("the source is broken here")

    with pytest.raises(InputError, match="broken here"):
        add_items(writer, model, "images", cut(), AddSettings(batch_size=1))
    done = half.collection("images").count
    assert 12 < done < 20  # what was being read ahead is not there
    settings = AddSettings(batch_size=3, on_duplicate="skip")
    counts = add_items(writer, model, "images", images[10:], settings)
    assert (counts.added, counts.kept) == (23 - done, done - 10)
    assert half.collection("images").count == 23


def test_repeated_ids_of_a_source_are_skipped_or_replace(
    half: SearchIndex, writer: ChangesWriter, texts: list[TextItem]
) -> None:
    model = half.checkpoint.model
    twice = [texts[9], replace(texts[9], text="star"), replace(texts[0], text="green grass")]
    for mode, expected in (("skip", (1, 0, 2)), ("replace", (0, 3, 0))):
        counts = add_items(writer, model, "texts", twice, AddSettings(on_duplicate=mode))
        assert (counts.added, counts.replaced, counts.kept) == expected
    items = half.collection("texts").items
    assert [items.by_id(item_id).text for item_id in ("text 9", "text 0")] == [
        "star",
        "green grass",
    ]


def test_photos_that_cannot_be_used_are_left_out(
    half: SearchIndex, writer: ChangesWriter, images: list[ImageItem], tmp_path: Path
) -> None:
    (tmp_path / "bad.png").write_bytes(b"no picture")
    bad = [replace(images[12], id=f"bad {n}", path=tmp_path / "bad.png") for n in range(3)]
    mixed = [bad[0], images[13], bad[1], bad[2], images[14]]
    settings = AddSettings(batch_size=2)
    counts = add_items(writer, half.checkpoint.model, "images", mixed, settings)
    assert counts.added == 2
    assert [entry.id for entry in counts.skipped] == ["bad 0", "bad 1", "bad 2"]
    added = half.collection("images").items.by_id("photo 14")
    assert (added.row, added.path) == (13, str(images[14].path))
    np.testing.assert_allclose(
        np.linalg.norm(half.collection("images").embedding(13)), 1, atol=1e-5
    )


def test_known_and_repeated_ids_are_refused_before_the_first_addition(
    half: SearchIndex, writer: ChangesWriter, images: list[ImageItem]
) -> None:
    check_new(writer, "images", images[12:], AddSettings())
    with pytest.raises(DuplicateItemError, match="'photo 11'"):
        check_new(writer, "images", images[11:], AddSettings())
    twice = [images[12], images[12]]
    with pytest.raises(InputError, match=r"id 'photo 12' repeats, item 2 \('.*'\) after item 1$"):
        check_new(writer, "images", twice, AddSettings(strict=True))
    assert half.collection("images").changes is None
    check_new(writer, "images", twice, AddSettings())
    counts = add_items(writer, half.checkpoint.model, "images", twice, AddSettings(batch_size=1))
    assert counts.added == 1
    (skipped,) = counts.skipped
    assert skipped.id == "photo 12"
    assert "id 'photo 12' repeats, item 2" in skipped.reason


def test_large_metadata_is_refused_before_anything_is_added(
    half: SearchIndex, writer: ChangesWriter, images: list[ImageItem]
) -> None:
    large = replace(images[14], metadata={"notes": "x" * 100})
    limits = MetadataLimits(max_bytes=99)
    strict = AddSettings(batch_size=2, metadata=limits, strict=True)
    model = half.checkpoint.model
    with pytest.raises(InputError, match=f"images: item {large.id!r}: metadata: expected at most"):
        check_new(writer, "images", [images[13], large], strict)
    with pytest.raises(InputError, match=f"images: item {large.id!r}: metadata: expected at most"):
        add_items(writer, model, "images", [images[13], large], strict)
    assert not writer.known("images", [images[13].id, large.id])
    longer = AddSettings(metadata=MetadataLimits(max_bytes=113))
    assert add_items(writer, model, "images", [large], longer).added == 1


def test_an_index_of_named_fields_takes_any_number_of_others(
    tmp_path: Path,
    tiny_checkpoint: Path,
    checkpoint: Checkpoint,
    texts: list[TextItem],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = BuildSettings(filter_fields=("year",))
    build_index(tiny_checkpoint, tmp_path / "index", None, texts[:8], settings)
    monkeypatch.setattr(writable, "MAX_FILTER_FIELDS", 1)
    item = TextItem(id="new", text="a dog", metadata={"a": 1, "b": 2, "year": 3})
    with closing(ChangesWriter(tmp_path / "index", checkpoint.model_id)) as opened:
        assert add_items(opened, checkpoint.model, "texts", [item], AddSettings()).added == 1
