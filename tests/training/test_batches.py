"""Batches: a pure function of seed and epoch that shows everything once."""

from __future__ import annotations

from collections import Counter

import pytest

from training.batches import BatchPlan, BatchRows

CAPTIONS_OF_PHOTO = [[0, 1], [2], [3, 4, 5], [6], [7, 8]]


def plan(sampling: str = "captions", mirror: bool = True, seed: str = "0:a") -> BatchPlan:
    return BatchPlan(CAPTIONS_OF_PHOTO, 2, sampling, mirror, seed)  # type: ignore[arg-type]


def captions_of(batches: list[BatchRows]) -> list[int]:
    return [caption for batch in batches for caption in batch.captions]


def test_an_epoch_over_captions_shows_each_pair_once() -> None:
    batches = plan().epoch(0)
    assert [len(batch.captions) for batch in batches] == [2, 2, 2, 2]
    assert max(Counter(captions_of(batches)).values()) == 1
    for batch in batches:
        for photo, caption in zip(batch.photos, batch.captions, strict=True):
            assert caption in CAPTIONS_OF_PHOTO[photo]


def test_an_epoch_over_photos_shows_each_photo_once_and_all_captions_in_time() -> None:
    shown: Counter[int] = Counter()
    for epoch in range(60):
        batches = plan("photos").epoch(epoch)
        photos = [photo for batch in batches for photo in batch.photos]
        assert len(set(photos)) == len(photos) == 4
        shown.update(captions_of(batches))
    assert shown.keys() == set(range(9))


def test_epochs_are_reproducible_and_differ_by_epoch_and_seed() -> None:
    assert plan().epoch(3) == plan().epoch(3)
    assert plan().epoch(3) != plan().epoch(4)
    assert plan().epoch(3) != plan(seed="1:a").epoch(3)


def test_half_of_the_photos_are_mirrored_only_where_asked() -> None:
    flips = [
        flip for epoch in range(100) for batch in plan().epoch(epoch) for flip in batch.mirrored
    ]
    assert sum(flips) / len(flips) == pytest.approx(0.5, abs=0.07)
    assert not any(flip for batch in plan(mirror=False).epoch(0) for flip in batch.mirrored)


def test_a_set_smaller_than_the_batch_is_one_batch() -> None:
    small = BatchPlan([[0], [1]], 128, "captions", False, "0")
    assert small.batch_size == 2
    assert sorted(small.epoch(0)[0].captions) == [0, 1]
