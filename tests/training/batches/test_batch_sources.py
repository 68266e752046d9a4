"""Batches, planned and streamed: what every source of them keeps to."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from PIL import Image

from aladin_training.batches.dataset import BatchSource, PairDataset, TrainingSet
from aladin_training.data.phrases import Wording, meanings_of
from aladin_training.parallel.distributed import BatchShare
from aladin_training.streaming.streamed_batches import PhotoStream
from tests.training.batches.conftest import seen
from tests.training.runs import stage_of

COUNTS = [5, 1, 7, 4, 6]  # 23 photos
Open = Callable[..., TrainingSet]


@pytest.fixture(params=["planned", "streamed"])
def open_set(
    request: pytest.FixtureRequest,
    open_pairs: Callable[..., PairDataset],
    open_photos: Callable[..., PhotoStream],
) -> Open:
    """Open tars as one of the two reads them."""

    def open_them(source: Path, views: tuple[str, ...] = ("",), texts: Any = None) -> TrainingSet:
        if request.param == "planned":
            return open_pairs(source, views, short=texts is not None, texts=texts)
        photos = open_photos(source, views=views)
        return replace(photos, text_encoder=texts) if texts else photos

    return open_them


@pytest.fixture
def photos(numbered_tars: Callable[..., Path], open_set: Open) -> TrainingSet:
    """23 photos in five tars, of two captions each."""
    return open_set(numbered_tars(COUNTS))


def shown(batches: BatchSource, epoch: int) -> list[int]:
    return [photo for batch in batches.epoch(epoch) for photo in seen(batch).photos]


def test_every_photo_comes_once_an_epoch_with_captions_of_its_own(photos: TrainingSet) -> None:
    batches = photos.batches(stage_of(4, 1), "0")
    assert batches.batches_per_epoch == 5
    orders: set[tuple[int, ...]] = set()
    captions: Counter[tuple[int, ...]] = Counter()
    for epoch in range(6):
        order: list[int] = []
        for batch in batches.epoch(epoch):
            each = seen(batch)
            order += each.photos
            captions.update(each.captions)
            assert [photo for photo, _ in each.captions] == each.photos
            assert each.negatives == [[row != column for column in range(4)] for row in range(4)]
        assert len(set(order)) == len(order) == 20
        orders.add(tuple(order))
    assert len(orders) == 6
    # 120 draws from 46 captions of photos that come equally often.
    assert len(captions) > 36


@pytest.mark.parametrize("captions_per_photo", [2, 3])
def test_a_photo_has_its_captions_once_if_it_has_enough(
    photos: TrainingSet, captions_per_photo: int
) -> None:
    each = seen(next(photos.batches(stage_of(3, captions_per_photo), "0").epoch(0)))
    described = [photo for photo in each.photos for _ in range(captions_per_photo)]
    assert [photo for photo, _ in each.captions] == described
    assert captions_per_photo == 3 or len(set(each.captions)) == 6  # a photo has two
    assert each.negatives == [[photo != other for other in described] for photo in each.photos]


def test_a_batch_larger_than_the_set_holds_all_of_it(photos: TrainingSet) -> None:
    batches = photos.batches(stage_of(100, 1), "0")
    assert batches.batches_per_epoch == 1
    assert sorted(shown(batches, 0)) == list(range(23))


def test_the_seed_alone_determines_an_epoch_wherever_the_files_lie(
    photos: TrainingSet, numbered_tars: Callable[..., Path], open_set: Open
) -> None:
    moved = open_set(numbered_tars(COUNTS, folder="moved"))
    assert moved.digest == photos.digest == photos.batches(stage_of(4), "0").digest
    assert open_set(numbered_tars([5, 1, 7, 4, 7], folder="more")).digest != photos.digest
    ours = shown(photos.batches(stage_of(4, 1), "0"), 1)
    assert ours == shown(moved.batches(stage_of(4, 1), "0"), 1)
    assert ours != shown(photos.batches(stage_of(4, 1), "1"), 1)


def test_an_epoch_goes_on_from_any_batch_as_if_it_had_not_been_interrupted(
    numbered_tars: Callable[..., Path], open_set: Open
) -> None:
    photos = open_set(numbered_tars(COUNTS), ("", "mirrored", "crop-1"))
    batches = photos.batches(stage_of(3, 2, new_crops=0.3), "0")
    unbroken = [seen(batch) for batch in batches.epoch(4)]
    for start in range(len(unbroken) + 1):
        assert [seen(batch) for batch in batches.epoch(4, start)] == unbroken[start:]


@pytest.mark.parametrize("world", [2, 3])
def test_shares_put_together_are_the_whole_batch(photos: TrainingSet, world: int) -> None:
    batches = photos.batches(stage_of(5, 2), "0")
    shares = [batches.epoch(0, 1, BatchShare(rank, world)) for rank in range(world)]
    for whole, *own in zip(map(seen, batches.epoch(0, 1)), *shares, strict=True):
        parts = list(map(seen, own))
        assert [photo for each in parts for photo in each.photos] == whole.photos
        assert [caption for each in parts for caption in each.captions] == whole.captions
        assert all(each.negatives == whole.negatives for each in parts)


class TextsThemselves:
    """A text encoder whose input are the texts."""

    def preprocess(self, texts: list[str], *, truncate: bool) -> list[str]:
        assert truncate
        return texts

    def count_too_long(self, texts: list[str]) -> int:  # noqa: ARG002
        return 0


CAPTIONS = ["a small red ball", "a red ball and a brown dog", "a black cat"]


def test_short_texts_are_no_negatives_of_photos_whose_captions_say_them(
    write_samples: Callable[..., Path], picture: Callable[[int], bytes], open_set: Open
) -> None:
    folder = write_samples({str(n): (picture(n), each) for n, each in enumerate(CAPTIONS)})
    photos = open_set(folder, texts=TextsThemselves())
    batches = photos.batches(stage_of(3, 1, short_captions=1.0), "0")
    saying = [Wording([caption]) for caption in CAPTIONS]
    texts_seen: list[str] = []
    for epoch in range(8):
        batch = next(batches.epoch(epoch))
        texts = cast(list[str], batch.texts)
        texts_seen += texts
        for column, text in enumerate(texts):
            # A caption that stays itself holds for its own photo alone.
            whole = text in CAPTIONS
            held = 1 if whole else sum(each.holds(meanings_of(text)) for each in saying)
            assert batch.negatives[:, column].sum() == 3 - held, text
    assert set(texts_seen) & {"ball", "a ball", "red ball", "a red ball"}
    # Where by chance nothing was left out, the caption stays, in about one of twenty cases.
    assert texts_seen.count(CAPTIONS[1]) <= 2
    plain = next(photos.batches(stage_of(3, 1), "0").epoch(0))
    assert set(cast(list[str], plain.texts)) == set(CAPTIONS)
    assert plain.negatives.sum() == 6


def test_views_are_drawn_at_random(write_samples: Callable[..., Path], open_set: Open) -> None:
    """Of a picture whose left is red by 200 and whose right is not."""
    half_red = Image.new("RGB", (8, 2))
    half_red.paste((200, 0, 0), (0, 0, 4, 2))
    folder = write_samples({f"{n}": (_png(half_red), "photo 0 0") for n in range(60)})
    batches = open_set(folder, ("", "mirrored")).batches(stage_of(60, 1), "0")
    left = [shown(batches, epoch) for epoch in range(2)]
    assert left[0] != left[1]
    for each in left:
        assert set(each) == {0, 200}
        assert 15 < each.count(200) < 45


def test_a_share_of_the_photos_is_shown_in_new_crops(
    write_samples: Callable[..., Path], open_set: Open
) -> None:
    picture = Image.new("RGB", (100, 2))
    picture.putdata([(2 * column, 0, 0) for _ in range(2) for column in range(100)])
    folder = write_samples({f"{n}": (_png(picture), "photo 0 0") for n in range(60)})
    photos = open_set(folder)
    left = shown(photos.batches(stage_of(60, 1, new_crops=0.5), "0"), 0)
    assert 15 < left.count(0) < 45
    assert len(set(left)) > 15
    assert left == shown(photos.batches(stage_of(60, 1, new_crops=0.5), "0"), 0)
    assert set(shown(photos.batches(stage_of(60, 1), "0"), 0)) == {0}


def _png(picture: Image.Image) -> bytes:
    target = io.BytesIO()
    picture.save(target, "PNG")
    return target.getvalue()
