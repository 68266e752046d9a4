"""The Flickr8k recipe on a few real photos with the pretrained encoders (opt in: -m slow)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from aladin_network.checkpoint import load_checkpoint
from aladin_network.photos.decoding import read_image
from aladin_network.scoring.scores import matching_scores
from aladin_training.config.recipe import load_recipe
from aladin_training.config.shipped import recipes_folder
from aladin_training.data import read_records
from aladin_training.evaluation import evaluate_checkpoint
from aladin_training.stages.run import run_recipe
from tests.tensors import encode_photos, encode_texts

ROOT = Path(__file__).parents[2]
DATA = ROOT / "data" / "flickr8k" / "captions.jsonl"
ENCODERS = [ROOT / "encoders" / name for name in ("mobilenet_v2_1.0_224", "all-MiniLM-L6-v2")]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(path.exists() for path in (DATA, *ENCODERS)),
        reason="needs data/flickr8k and encoders/, see the README",
    ),
]


@pytest.fixture(scope="module")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The shipped recipe, cut short, on 300 photos; returns its first stage and the data."""
    folder = tmp_path_factory.mktemp("flickr")
    chosen: list[str] = []
    for split, count in (("train", 300), ("val", 60)):
        chosen += [
            json.dumps(
                {
                    "id": record.id,
                    "image": str(record.photo.path),
                    "captions": list(record.captions),
                    "split": split,
                }
            )
            for record in read_records(DATA, split)[:count]
        ]
    data = folder / "captions.jsonl"
    data.write_text("\n".join(chosen) + "\n")
    recipe = load_recipe(
        recipes_folder() / "flickr8k.toml",
        [
            f"data.source={data}",
            f"data.cache={folder / 'cache'}",
            f"model.image_encoder.source={ENCODERS[0]}",
            f"model.text_encoder.source={ENCODERS[1]}",
            "data.crops=0",
            "final=contrastive",
            *(f"stage.{name}.epochs={epochs}" for name, epochs in EPOCHS.items()),
            *(f"stage.{name}.batch_size=32" for name in EPOCHS),
            "stage.contrastive.schedule.warmup_steps=10",
            "stage.contrastive.average_decay=0.9",
        ],
    )
    return run_recipe(recipe, folder / "run").checkpoint, data


# Nine steps an epoch.
EPOCHS = {"contrastive": 20}


def test_pretrained_features_beat_chance_by_far(small_run: tuple[Path, Path]) -> None:
    checkpoint, data = small_run
    evaluation = evaluate_checkpoint(load_checkpoint(checkpoint), read_records(data, "val"))
    for metrics in evaluation.metrics().values():
        # Chance among 60 photos is 1.7 % at rank 1.
        assert metrics.text_to_image.r1 > 10
        assert metrics.image_to_text.r1 > 10


def test_a_pair_scores_the_same_whatever_else_is_in_the_batch(
    small_run: tuple[Path, Path],
) -> None:
    checkpoint, data = small_run
    model = load_checkpoint(checkpoint).model
    records = read_records(data, "val")[:8]
    photos = [read_image(record.photo) for record in records]
    captions = [record.captions[0] for record in records]
    images, texts = encode_photos(model, photos), encode_texts(model, captions)
    align, match = model.scores("alignment", images, texts), matching_scores(images, texts)
    for row in range(len(records)):
        image, text = (
            encode_photos(model, photos[row : row + 1]),
            encode_texts(model, [captions[row]]),
        )
        torch.testing.assert_close(
            model.scores("alignment", image, text)[0, 0], align[row, row], atol=1e-5, rtol=0
        )
        torch.testing.assert_close(
            matching_scores(image, text)[0, 0], match[row, row], atol=1e-5, rtol=0
        )
