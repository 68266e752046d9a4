"""Regions that a build stores of each photo, against choosing them by loops."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from aladin_index.build.builder import build_index
from aladin_index.changes.writer import ChangesWriter, NewItems
from aladin_index.encode.item_changer import AddSettings, add_items
from aladin_index.encode.kept_regions import KeptRegions, PhotoRegions, most_needed
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.format.layout import generation_folder
from aladin_index.generations.compact import compact_index
from aladin_index.generations.merge import merge_indexes
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.generations.verify import verify_index
from aladin_index.search.live_collection import StoredCollection
from aladin_index.search.results import Box
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.settings import BuildSettings
from aladin_index.tokens import sample_texts
from aladin_index.tokens.sample_texts import SampleTexts
from aladin_network.errors import ConfigError
from aladin_network.inference import encode_texts
from aladin_network.types import Target
from tests.index.corrections import assert_stored_alike
from tests.index.searching import run_search

MakeItems = Callable[..., NewItems]
KEPT = 5
SETTINGS = BuildSettings(shard_items=5, batch_size=3, keep_regions=KEPT)


def needed_by_loops(cosines: NDArray[np.float32], count: int) -> list[int]:
    """Each time the region with which the words lose least, by all sets that differ in one."""
    best = cosines.max(axis=1)
    chosen: list[int] = []
    for _ in range(count):
        losses: dict[int, float] = {}
        for region in range(cosines.shape[1]):
            if region not in chosen:
                reached = cosines[:, [*chosen, region]].max(axis=1)
                losses[region] = float(((best - reached) ** 2).sum())
        chosen.append(min(losses, key=lambda region: losses[region]))
    return sorted(chosen)


def test_regions_are_chosen_as_by_loops() -> None:
    random = np.random.default_rng(0)
    for words, regions, count in ((1, 4, 2), (30, 9, 1), (200, 17, 6), (200, 17, 16), (0, 3, 2)):
        cosines = random.uniform(-1, 1, (words, regions)).astype(np.float32)
        expected = needed_by_loops(cosines, count)
        assert most_needed(cosines, count).tolist() == expected
    # Two words, each with a region of its own; the first is good for both, and not chosen later.
    cosines = np.array([[0.6, 0.9, 0.0], [0.6, 0.0, 0.9]], dtype=np.float32)
    assert most_needed(cosines, 1).tolist() == [0]
    assert most_needed(cosines, 2).tolist() == [0, 1]
    assert most_needed(cosines, 3).tolist() == most_needed(cosines, 9).tolist() == [0, 1, 2]


def test_near_texts_choose_and_regions_of_zeros_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_texts, "_NEAREST", 1)
    near, far = np.eye(2, dtype=np.float32)
    words = np.array([[1, 0, 0], [0, 1, 0]], dtype=np.float32)  # of the near text, of the far one
    texts = SampleTexts(np.stack([far, near]), words[::-1].copy(), np.array([0, 1, 2]))
    photo = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 0, 0]], dtype=np.float32)
    boxes = np.array([[0, 0, 1, 1], [0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1]], dtype=np.float32)

    def known(*_: object) -> list[Box]:
        return [(x0, y0, x1, y1) for x0, y0, x1, y1 in boxes.tolist()]

    def unknown(*_: object) -> list[Box]:
        return []

    every = PhotoRegions(np.concatenate([photo, photo]), np.array([4, 4]), [None, None])
    kept = KeptRegions(1, texts, known, zeros=1)
    chosen = kept.select(np.stack([near, far]), every, [(8, 8), (8, 8)])
    assert chosen.lengths.tolist() == [2, 2]
    assert chosen.tokens.tolist() == photo[[1, 3, 0, 3]].tolist()
    assert [each.tolist() for each in chosen.boxes if each is not None] == [
        boxes[[1]].tolist(),
        boxes[[0]].tolist(),
    ]
    without = KeptRegions(1, texts, unknown, zeros=1)
    assert without.select(np.stack([near, far]), every, [None, None]).boxes == [None, None]


@pytest.fixture(scope="module")
def kept_index(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_checkpoint: Path,
    images: list[ImageItem],
    texts: list[TextItem],
) -> Path:
    """The items of `published`, with some regions of each photo."""
    out = tmp_path_factory.mktemp("kept") / "index"
    build_index(tiny_checkpoint, out, images, texts, SETTINGS)
    return out


def side_of(index: SearchIndex, target: Target = "images") -> StoredCollection:
    side = index.images if target == "images" else index.texts
    assert side is not None
    return side


def tokens_of(side: StoredCollection, row: int) -> NDArray[np.float32]:
    return np.asarray(side.tokens.read(np.array([row])).values)


def test_a_build_stores_the_needed_regions_with_their_boxes(
    kept_index: Path, search_index: SearchIndex
) -> None:
    every, texts = side_of(search_index), side_of(search_index, "texts")
    # There are fewer texts than a photo is compared with: all of them choose.
    words = np.concatenate([tokens_of(texts, row) for row in range(texts.entry.count)])
    verify_index(kept_index)
    with open_index(kept_index) as index:
        side = side_of(index)
        assert (
            side.entry.keep_regions == KEPT and side_of(index, "texts").entry.keep_regions is None
        )
        assert np.array_equal(side.embeddings, every.embeddings)
        for row in range(side.entry.count):
            tokens = tokens_of(every, row)
            chosen = needed_by_loops(words @ tokens.T, KEPT)
            assert len(chosen) < len(tokens)
            assert tokens_of(side, row).tolist() == tokens[chosen].tolist()
            item = side.items.by_rows([row])[0]
            own = item.region_boxes
            assert own is not None and item.size_px is not None
            boxes_of = index.checkpoint.model.image.encoder.region_boxes
            whole = np.asarray(boxes_of(*item.size_px))
            assert np.abs(own - whole[chosen]).max() < 2**-16


def test_evidence_is_that_of_the_stored_regions(kept_index: Path) -> None:
    with open_index(kept_index) as index:
        texts, photos = side_of(index, "texts"), side_of(index)
        item = texts.items.by_rows([7])[0]
        assert item.text is not None
        encoding = encode_texts(index.checkpoint.model, [item.text])
        answer = run_search(
            TwoStageSearcher(index), encoding, "text", "images", text=item.text, explain=True
        )
        assert len(answer.hits) == 10
        for hit in answer.hits:
            assert hit.evidence and hit.stages.align is not None
            assert sum(word.score for word in hit.evidence) == pytest.approx(hit.stages.align.score)
            stored = photos.items.by_id(hit.id)
            assert stored is not None and stored.region_boxes is not None
            for word in hit.evidence:
                assert word.region < KEPT
                assert word.box == tuple(stored.region_boxes[word.region].tolist())


def test_the_shards_do_not_matter(
    kept_index: Path,
    tmp_path: Path,
    tiny_checkpoint: Path,
    images: list[ImageItem],
    texts: list[TextItem],
) -> None:
    other = replace(SETTINGS, shard_items=9)
    build_index(tiny_checkpoint, tmp_path / "index", images, texts, other)
    for name in ("tokens.npy", "offsets.npy", "items.sqlite"):
        files = [
            generation_folder(root, 1) / "images" / name
            for root in (kept_index, tmp_path / "index")
        ]
        assert files[0].read_bytes() == files[1].read_bytes()


def test_added_photos_are_stored_as_the_build_stores_them_also_after_a_compaction(
    kept_index: Path, tmp_path: Path, images: list[ImageItem]
) -> None:
    root = Path(shutil.copytree(kept_index, tmp_path / "index"))
    again = [replace(item, id=f"{item.id} again") for item in images[:4]]
    with open_index(root) as index, closing(ChangesWriter(root, index.checkpoint.model_id)) as to:
        model = index.checkpoint.model
        assert add_items(to, model, "images", again, AddSettings(batch_size=3)).added == 4
    for _ in range(2):
        with open_index(root) as index:
            live = index.side("images")
            for item in again:
                added, built = (
                    live.items.by_id(each) for each in (item.id, item.id[: -len(" again")])
                )
                assert added is not None and built is not None
                assert added.boxes is not None and added.boxes == built.boxes
                tokens = live.tokens(added.row)
                assert len(tokens) == KEPT
                np.testing.assert_allclose(tokens, live.tokens(built.row), atol=1e-3)
        compact_index(root)


def test_photos_added_to_a_corrected_index_are_stored_as_a_build_stores_them(
    corrected_checkpoint: Path, tmp_path: Path, images: list[ImageItem], texts: list[TextItem]
) -> None:
    root, fresh = tmp_path / "index", tmp_path / "fresh"
    build_index(corrected_checkpoint, fresh, images, texts, SETTINGS)
    build_index(corrected_checkpoint, root, images[:20], texts, SETTINGS)
    with open_index(root) as index, closing(ChangesWriter(root, index.checkpoint.model_id)) as to:
        model = index.checkpoint.model
        add_items(to, model, "images", images[20:], AddSettings(batch_size=3))
    for _ in range(2):
        assert_stored_alike(root, fresh, regions=KEPT)
        compact_index(root)


def test_regions_are_chosen_by_texts(
    tmp_path: Path, tiny_checkpoint: Path, images: list[ImageItem]
) -> None:
    with pytest.raises(ConfigError, match="keep_regions: expected photos and texts"):
        build_index(tiny_checkpoint, tmp_path / "index", images, None, SETTINGS)
    with pytest.raises(ConfigError, match="keep_regions: expected at least 1, got 0"):
        BuildSettings(keep_regions=0)


@pytest.mark.parametrize(("counts", "merged"), [((KEPT, KEPT), KEPT), ((KEPT, None), None)])
def test_photos_added_to_merged_indexes_are_stored_as_in_the_parts(
    counts: tuple[int | None, int | None],
    merged: int | None,
    tmp_path: Path,
    tiny_checkpoint: Path,
    images: list[ImageItem],
    texts: list[TextItem],
) -> None:
    parts = [tmp_path / "first", tmp_path / "second"]
    for number, (part, count) in enumerate(zip(parts, counts, strict=True)):
        settings = replace(SETTINGS, keep_regions=count)
        build_index(tiny_checkpoint, part, images[number:10:2], texts[number::2], settings)
    merge_indexes(parts, tmp_path / "whole")
    with (
        open_index(tmp_path / "whole") as index,
        closing(ChangesWriter(index.path, index.checkpoint.model_id)) as to,
    ):
        assert side_of(index).entry.keep_regions == merged
        model = index.checkpoint.model
        add_items(to, model, "images", images[10:12], AddSettings(batch_size=3))
    with open_index(tmp_path / "whole") as index:
        live = index.side("images")
        found = live.items.by_id(images[10].id)
        assert found is not None
        assert (len(live.tokens(found.row)) == KEPT) == (merged is not None)
