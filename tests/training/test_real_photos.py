"""The Flickr8k recipe on a few real photos with the pretrained encoders (opt in: -m slow)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aladin_network.checkpoint import load_checkpoint
from aladin_training.config.recipe import load_recipe
from aladin_training.config.shipped import recipes_folder
from aladin_training.data import read_records
from aladin_training.evaluation import evaluate_checkpoint
from aladin_training.stages.run import run_recipe

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


def test_pretrained_features_beat_chance_by_far(tmp_path: Path) -> None:
    """The shipped recipe, cut short, on 300 photos; nine steps an epoch."""
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
    data = tmp_path / "captions.jsonl"
    data.write_text("\n".join(chosen) + "\n")
    recipe = load_recipe(
        recipes_folder() / "flickr8k.toml",
        [
            f"data.source={data}",
            f"data.cache={tmp_path / 'cache'}",
            f"model.image_encoder.source={ENCODERS[0]}",
            f"model.text_encoder.source={ENCODERS[1]}",
            "data.crops=0",
            "final=contrastive",
            "stage.contrastive.epochs=20",
            "stage.contrastive.batch_size=32",
            "stage.contrastive.schedule.warmup_steps=10",
            "stage.contrastive.average_decay=0.9",
        ],
    )
    checkpoint = run_recipe(recipe, tmp_path / "run").checkpoint
    evaluation = evaluate_checkpoint(load_checkpoint(checkpoint), read_records(data, "val"))
    for metrics in evaluation.metrics().values():
        # Chance among 60 photos is 1.7 % at rank 1.
        assert metrics.text_to_image.r1 > 10
        assert metrics.image_to_text.r1 > 10
