"""What only planned batches have: single pairs, shares of the photos, shorter texts, new crops."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from aladin_network.encoders.base import Features
from aladin_network.errors import ConfigError, ImageError
from aladin_network.photos.files import PhotoFile
from aladin_network.types import NullProgress
from aladin_training.batches.batch import OfflineRows
from aladin_training.batches.dataset import PairDataset
from aladin_training.batches.items import PhotoItems, draw_view, usable_photos, view_names
from aladin_training.batches.plan import BatchPlan, BatchRows, OfflineDraw, ShortTexts
from aladin_training.config.recipe import load_recipe
from aladin_training.data import Record
from aladin_training.parallel.distributed import BatchShare
from aladin_training.stages.preparation import prepare_run
from aladin_training.stages.sources import stage_history
from tests.training.runs import stage_of

CAPTIONS_OF_PHOTO = [[0, 1], [2], [3, 4, 5], [6], [7, 8]]


def plan(captions_per_photo: int | None = None, views: int = 2, seed: str = "0:a") -> BatchPlan:
    return BatchPlan(CAPTIONS_OF_PHOTO, views, stage_of(2, captions_per_photo), seed)


def test_an_epoch_of_single_pairs_shows_each_once_and_another_in_another_order() -> None:
    batches = plan().epoch(0)
    assert [len(batch.captions) for batch in batches] == [2, 2, 2, 2]
    captions = [caption for batch in batches for caption in batch.captions]
    assert len(set(captions)) == 8
    for batch in batches:
        for photo, caption in zip(batch.photos, batch.captions, strict=True):
            assert caption in CAPTIONS_OF_PHOTO[photo]
    assert plan().epoch(0) == batches
    assert plan().epoch(1) != batches
    assert plan(seed="1:a").epoch(0) != batches


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


def record(name: str, *captions: str) -> Record:
    return Record(id=name, photo=PhotoFile(Path(name)), uri=name, captions=captions)


RECORDS = [
    record("a", "a red circle in the snow", "a circle"),
    record("b", "a small red circle and a blue star"),
    record("c", "a red star and a blue circle"),
]


def test_only_the_given_share_of_captions_is_replaced_by_texts_of_their_own() -> None:
    short = ShortTexts(RECORDS)
    assert short.texts == ShortTexts(RECORDS).texts
    assert len(set(short.texts)) == len(short.texts)
    shown = short.replace([0] * 4000, 0.25, random.Random(0))
    replaced = [row for row in shown if row != 0]
    assert 0.2 < len(replaced) / len(shown) < 0.3
    texts = {short.texts[row - 4] for row in replaced}  # there are four captions
    assert texts <= {"red", "circle", "a circle", "a red circle", "red circle", "snow", "the snow"}
    assert len(texts) > 1
    # "they are here" has no phrase, so that it is always shown itself.
    silent = ShortTexts([record("d", "they are here")])
    assert silent.replace([0, 0], 1.0, random.Random(0)) == [0, 0]


def test_each_new_crop_is_another_and_views_stay_equally_frequent() -> None:
    captions = [[2 * photo, 2 * photo + 1] for photo in range(40)]
    crops = BatchPlan(captions, 2, stage_of(10, 1, new_crops=0.25), "0:a")
    shown = Counter(
        view for epoch in range(100) for batch in crops.epoch(epoch) for view in batch.views
    )
    drawn, expected = random.Random(5), random.Random(5)
    plain = [draw_view(3, 0.0, drawn) for _ in range(50)]
    assert plain == [expected.randrange(3) for _ in range(50)]
    new = [view for view in shown if view >= 2]
    assert sum(shown[view] for view in new) == pytest.approx(1000, abs=120)
    assert max(shown[view] for view in new) == 1
    assert shown[0] == pytest.approx(1500, abs=150)
    assert shown[1] == pytest.approx(1500, abs=150)


WIDTH_PX = 200


@pytest.fixture
def gradient(tmp_path: Path) -> PhotoItems:
    """A photo, one column lighter than the one on its left, in two views."""
    columns = np.arange(WIDTH_PX, dtype=np.uint8)
    pixels = np.broadcast_to(columns[None, :, None], (60, WIDTH_PX, 3))
    Image.fromarray(np.ascontiguousarray(pixels)).save(tmp_path / "gradient.png")
    files = [PhotoFile(tmp_path / "gradient.png")]
    return usable_photos(files, view_names(True, 0), None, NullProgress())[0]


def test_a_new_crop_keeps_most_of_a_photo_and_is_always_the_same(gradient: PhotoItems) -> None:
    widths: list[int] = []
    mirrored = 0
    for view in range(2, 62):
        (crop,) = gradient.load(0, [view])
        assert isinstance(crop, Image.Image)
        assert crop.size == (WIDTH_PX, 60)
        row = np.asarray(crop)[30, :, 0].astype(int)
        mirrored += row[0] > row[-1]
        widths.append(abs(row[-1] - row[0]))
        assert gradient.load(0, [view])[0] == crop
    assert min(widths) >= 0.62 * WIDTH_PX
    assert max(widths) <= 0.97 * WIDTH_PX
    assert len(set(widths)) > 20
    assert 15 < mirrored < 45


@pytest.fixture(scope="module")
def prepared(recipe_path: Path) -> tuple[PairDataset, PairDataset]:
    """The training set of the recipe, and as its frozen network reads it."""
    run = prepare_run(load_recipe(recipe_path), NullProgress())
    assert isinstance(run.train_set, PairDataset)
    assert run.train_set.short_texts is None
    return run.train_set, run.train_set.read_by(run.model)


def test_a_frozen_encoder_is_shown_the_photo_in_place_of_a_new_crop(
    prepared: tuple[PairDataset, PairDataset],
) -> None:
    photos = prepared[1].inputs.photos
    assert prepared[1].views == 2
    found, plain = photos.get([3, 4, 5], [2, 1, 10**9]), photos.get([3, 4, 5], [0, 1, 0])
    assert isinstance(found, Features) and isinstance(plain, Features)
    assert found.states.equal(plain.states)


def test_a_photo_that_cannot_be_read_any_more_is_an_error_of_its_batch(
    prepared: tuple[PairDataset, PairDataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs, stage = prepared[0], stage_of(5, 2)
    last = BatchPlan(pairs.captions_of_photo, pairs.views, stage, "0:a").epoch(0)[1].photos[0]
    read = type(pairs.inputs.photos).get

    def damaged(self: object, rows: list[int], views: list[int]) -> object:
        if last in rows:
            raise ImageError("photo", "gone")
        return read(self, rows, views)  # type: ignore[arg-type]

    monkeypatch.setattr(type(pairs.inputs.photos), "get", damaged)
    epoch = pairs.batches(stage, "0:a").epoch(0)
    next(epoch)
    with pytest.raises(ImageError, match="photo: gone"):
        next(epoch)


TUNED = "stage.joint.tune.image_encoder.mode=full"


def test_new_crops_change_the_history_of_a_stage(recipe_path: Path) -> None:
    plain = load_recipe(recipe_path, [TUNED])
    recipe = load_recipe(recipe_path, [TUNED, "stage.joint.new_crops=0.5"])
    assert stage_history(recipe, 0) != stage_history(plain, 0)


CACHED_LAYERS = [
    "stage.joint.new_crops=1",
    *(
        f"stage.joint.tune.image_encoder.{each}"
        for each in ("mode=last", "layers=1", "cached=true")
    ),
    "model.image_encoder.architecture.num_hidden_layers=2",
]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["stage.student.new_crops=0.5"], "'student': new_crops need .* in every step, expected"),
        (CACHED_LAYERS, "stage 'joint': new_crops need an image encoder that reads the photos"),
    ],
)
def test_new_crops_that_cannot_be_shown_are_refused(
    recipe_path: Path, settings: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        prepare_run(load_recipe(recipe_path, settings), NullProgress())
