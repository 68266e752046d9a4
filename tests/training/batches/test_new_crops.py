"""Crops drawn anew: in which share of the photos, of what, and for which networks."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from aladin_network.encoders.base import Features
from aladin_network.errors import ConfigError
from aladin_network.photos.files import PhotoFile
from aladin_network.types import NullProgress
from aladin_training.batches.dataset import PairDataset
from aladin_training.batches.items import PhotoItems, draw_view, usable_photos, view_names
from aladin_training.batches.plan import BatchPlan
from aladin_training.config.recipe import load_recipe
from aladin_training.stages.preparation import prepare_run
from aladin_training.stages.run import run_recipe
from aladin_training.stages.sources import stage_history
from tests.training.short_stage import stage_of

CAPTIONS_OF_PHOTO = [[2 * photo, 2 * photo + 1] for photo in range(40)]
WIDTH_PX = 200
TUNED = "stage.joint.tune.image_encoder.mode=full"


@pytest.fixture
def gradient(tmp_path: Path) -> PhotoItems:
    """A photo, one column lighter than the one on its left, in two views."""
    columns = np.arange(WIDTH_PX, dtype=np.uint8)
    pixels = np.broadcast_to(columns[None, :, None], (60, WIDTH_PX, 3))
    Image.fromarray(np.ascontiguousarray(pixels)).save(tmp_path / "gradient.png")
    files = [PhotoFile(tmp_path / "gradient.png")]
    return usable_photos(files, view_names(True, 0), None, NullProgress())[0]


def test_a_share_of_the_photos_is_shown_in_a_new_crop() -> None:
    stage = stage_of(10, 1, new_crops=0.25)
    plan = BatchPlan(CAPTIONS_OF_PHOTO, 2, stage, "0:a")
    shown = Counter(
        view for epoch in range(100) for batch in plan.epoch(epoch) for view in batch.views
    )
    new = [view for view in shown if view >= 2]
    assert sum(shown[view] for view in new) == pytest.approx(1000, abs=120)
    assert shown[0] == pytest.approx(1500, abs=150)
    assert shown[1] == pytest.approx(1500, abs=150)
    assert max(shown[view] for view in new) == 1
    assert plan.epoch(3) == BatchPlan(
        CAPTIONS_OF_PHOTO, 2, stage_of(10, 1, new_crops=0.25), "0:a"
    ).epoch(3)


def test_without_new_crops_one_of_the_views_is_drawn() -> None:
    drawn, expected = random.Random(5), random.Random(5)
    assert [draw_view(3, 0.0, drawn) for _ in range(50)] == [
        expected.randrange(3) for _ in range(50)
    ]


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


def test_a_tuned_image_encoder_learns_from_new_crops_the_same_ones_in_every_run(
    recipe_path: Path, tmp_path: Path
) -> None:
    generator = np.random.default_rng(0)
    for photo in ("0", "1", "2"):
        pixels = generator.integers(0, 256, (32, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{photo}.png")
    lines = [
        json.dumps({"image": f"{photo}.png", "captions": [f"photo {photo}"], "split": split})
        for photo, split in (("0", "train"), ("1", "train"), ("2", "val"))
    ]
    (tmp_path / "captions.jsonl").write_text("\n".join(lines) + "\n")
    source = f"data.source={tmp_path / 'captions.jsonl'}"
    weights: list[dict[str, torch.Tensor]] = []
    for name, new_crops in (("once", "0.5"), ("again", "0.5"), ("without", "0")):
        settings = [source, TUNED, f"stage.joint.new_crops={new_crops}", "final=joint"]
        recipe = load_recipe(recipe_path, settings)
        run_recipe(recipe, tmp_path / name, resume=False, progress=NullProgress())
        weights.append(load_file(tmp_path / name / "checkpoint/model.safetensors"))
    once, again, without = weights
    assert all(torch.equal(value, again[key]) for key, value in once.items())
    assert any(not torch.equal(value, without[key]) for key, value in once.items())


def test_a_frozen_encoder_is_shown_the_photo_in_place_of_a_new_crop(recipe_path: Path) -> None:
    prepared = prepare_run(load_recipe(recipe_path), NullProgress())
    pairs = prepared.train_set
    assert isinstance(pairs, PairDataset)
    photos = pairs.read_by(prepared.model).inputs.photos
    assert pairs.views == 2
    found, plain = photos.get([3, 4, 5], [2, 1, 10**9]), photos.get([3, 4, 5], [0, 1, 0])
    assert isinstance(found, Features) and isinstance(plain, Features)
    assert torch.equal(found.states, plain.states)


def test_new_crops_change_the_history_of_a_stage(recipe_path: Path) -> None:
    plain = load_recipe(recipe_path, [TUNED])
    recipe = load_recipe(recipe_path, [TUNED, "stage.joint.new_crops=0.5"])
    assert stage_history(recipe, 0) != stage_history(plain, 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["stage.joint.new_crops=1.5"], "stage 'joint': new_crops is 1.5, expected 0 to 1"),
        (["stage.joint.new_crops=-0.1"], "new_crops is -0.1, expected 0 to 1"),
        (
            ["stage.student.new_crops=0.5"],
            "stage 'student': new_crops need an image encoder that reads the photos in every step, "
            "expected tune.image_encoder without cached",
        ),
        (
            [
                "stage.joint.new_crops=1",
                "stage.joint.tune.image_encoder.mode=last",
                "stage.joint.tune.image_encoder.layers=1",
                "stage.joint.tune.image_encoder.cached=true",
                "model.image_encoder.architecture.num_hidden_layers=2",
            ],
            "stage 'joint': new_crops need an image encoder that reads the photos in every step",
        ),
    ],
)
def test_new_crops_that_cannot_be_shown_are_refused(
    recipe_path: Path, settings: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        prepare_run(load_recipe(recipe_path, settings), NullProgress())
