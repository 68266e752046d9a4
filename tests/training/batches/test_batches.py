"""Batches: a pure function of seed and epoch that shows everything once."""

from __future__ import annotations

from collections import Counter

import pytest

from aladin_network.errors import ConfigError
from aladin_training.batches.batch import OfflineRows
from aladin_training.batches.plan import BatchPlan, BatchRows, OfflineDraw
from aladin_training.parallel.distributed import BatchShare
from tests.training.short_stage import stage_of

CAPTIONS_OF_PHOTO = [[0, 1], [2], [3, 4, 5], [6], [7, 8]]


def plan(captions_per_photo: int | None = None, views: int = 2, seed: str = "0:a") -> BatchPlan:
    return BatchPlan(CAPTIONS_OF_PHOTO, views, stage_of(2, captions_per_photo), seed)


def captions_of(batches: list[BatchRows]) -> list[int]:
    return [caption for batch in batches for caption in batch.captions]


def test_an_epoch_of_single_pairs_shows_each_once() -> None:
    batches = plan().epoch(0)
    assert [len(batch.captions) for batch in batches] == [2, 2, 2, 2]
    assert max(Counter(captions_of(batches)).values()) == 1
    for batch in batches:
        for photo, caption in zip(batch.photos, batch.captions, strict=True):
            assert caption in CAPTIONS_OF_PHOTO[photo]


def test_an_epoch_of_photos_shows_each_once_with_its_own_captions() -> None:
    shown: Counter[int] = Counter()
    for epoch in range(60):
        batches = plan(2).epoch(epoch)
        photos = [photo for batch in batches for photo in batch.photos]
        assert len(set(photos)) == len(photos) == 4
        shown.update(captions_of(batches))
        for batch in batches:
            for position, caption in enumerate(batch.captions):
                assert caption in CAPTIONS_OF_PHOTO[batch.photos[position // 2]]
            for place, photo in enumerate(batch.photos):
                if len(CAPTIONS_OF_PHOTO[photo]) >= 2:  # enough captions: two different ones
                    assert len(set(batch.captions[2 * place : 2 * place + 2])) == 2
    assert shown.keys() == set(range(9))


@pytest.mark.parametrize("captions_per_photo", [None, 2])
def test_a_share_of_the_photos_is_the_same_in_every_epoch(captions_per_photo: int | None) -> None:
    part = BatchPlan(CAPTIONS_OF_PHOTO, 1, stage_of(1, captions_per_photo, share=0.4), "0:a")
    shown = [{photo for batch in part.epoch(n) for photo in batch.photos} for n in range(9)]
    assert [len(photos) for photos in shown] == [2] * 9
    assert len(set.union(*shown)) == 2
    captions = {caption for batch in part.epoch(0) for caption in batch.captions}
    assert captions <= {c for photo in shown[0] for c in CAPTIONS_OF_PHOTO[photo]}
    others = [BatchPlan(CAPTIONS_OF_PHOTO, 1, stage_of(1, share=0.4), f"{n}:a") for n in range(9)]
    assert any({b.photos[0] for b in other.epoch(0)} != shown[0] for other in others)


def test_epochs_are_reproducible_and_differ_by_epoch_and_seed() -> None:
    assert plan().epoch(3) == plan().epoch(3)
    assert plan().epoch(3) != plan().epoch(4)
    assert plan().epoch(3) != plan(seed="1:a").epoch(3)


def test_all_views_are_drawn_equally_often() -> None:
    views = Counter(
        view for epoch in range(200) for batch in plan(views=3).epoch(epoch) for view in batch.views
    )
    assert views.keys() == {0, 1, 2}
    for count in views.values():
        assert count / views.total() == pytest.approx(1 / 3, abs=0.05)
    assert all(view == 0 for batch in plan(views=1).epoch(0) for view in batch.views)


def test_a_set_smaller_than_the_batch_is_one_batch() -> None:
    small = BatchPlan([[0], [1]], 1, stage_of(128), "0")
    assert small.batch_size == 2
    assert sorted(small.epoch(0)[0].captions) == [0, 1]


@pytest.mark.parametrize(("photos", "world"), [(1, 1), (4, 2), (5, 2), (7, 3), (3, 3)])
def test_shares_cover_a_batch_without_overlap(photos: int, world: int) -> None:
    parts = [list(range(photos))[BatchShare(rank, world).photos(photos)] for rank in range(world)]
    assert [photo for part in parts for photo in part] == list(range(photos))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_batch_too_small_for_its_processes_is_refused() -> None:
    with pytest.raises(ConfigError, match="a batch of 2 photos is too small for 3"):
        BatchShare(0, 3).photos(2)


def test_a_share_has_the_captions_and_negatives_of_its_own_photos() -> None:
    offline = OfflineRows(
        [10, 11, 12], [20, 21, 22], [30, 31, 32], [40, 41, 42], [True, False, True]
    )
    rows = BatchRows(
        [7, 8, 9], [0, 1, 2, 3, 4, 5], [0, 1, 0], OfflineDraw(offline, [1, 2, 3], [4, 5, 6])
    )
    own = OfflineRows([11, 12], [21, 22], [31, 32], [41, 42], [False, True])
    expected = BatchRows([8, 9], [2, 3, 4, 5], [1, 0], OfflineDraw(own, [2, 3], [5, 6]))
    assert rows.of(BatchShare(1, 2)) == expected
    assert rows.of(BatchShare(0, 1)) == rows
