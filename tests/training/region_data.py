"""A small data set that is nothing but tables of regions, and a recipe of two steps on it."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np

from aladin_training.config.recipe import Recipe, load_recipe
from tests.training.conftest import HEADS

COLOURS = ["red", "green", "blue", "yellow"]

RECIPE = (
    """
name = "regions"
precision = "float32"
threads = 1
[data]
source = "{folder}/captions.jsonl"
regions = "{folder}/features.tsv"
region_labels = "{folder}/labels.json"
cache = "{folder}/cache"
[tokenizer]
vocabulary_size = 100
[model.image_encoder]
name = "regions"
frozen = {frozen}
[model.image_encoder.architecture]
region_dim = 10
max_label_tokens = 8
[model.text_encoder]
frozen = {frozen}
max_tokens = 8
[model.text_encoder.architecture]
model_type = "bert"
hidden_size = 16
num_hidden_layers = 1
num_attention_heads = 2
intermediate_size = 16
"""
    + HEADS
    + """
[[stage]]
name = "joint"
epochs = 1
batch_size = 8
[stage.tasks.alignment]
loss = "triplet"
[stage.tasks.matching]
loss = "triplet"
"""
)


def write_regions(folder: Path) -> None:
    """Write eight photos to train on and four to validate, as bottom-up attention's table."""
    rng = np.random.default_rng(0)
    captions: list[str] = []
    features: list[str] = []
    labels: dict[str, list[str]] = {}
    for number in range(12):
        colour, regions = COLOURS[number % 4], 1 + number % 3
        low = rng.uniform(0, 40, (regions, 2))
        boxes = np.hstack([low, low + 10]).astype("<f4")
        vectors = (np.eye(4)[[number % 4] * regions] + rng.normal(0, 0.1, (regions, 4))).astype(
            "<f4"
        )
        cells = [base64.b64encode(values.tobytes()).decode() for values in (boxes, vectors)]
        features.append("\t".join([str(number), "60", "80", str(regions), *cells]))
        labels[str(number)] = [f"{colour} thing"] * regions
        line = {
            "image": f"COCO_{number:06d}.jpg",
            "captions": [f"a {colour} thing", f"it is {colour}"],
            "split": "train" if number < 8 else "val",
        }
        captions.append(json.dumps(line))
    (folder / "captions.jsonl").write_text("\n".join(captions) + "\n")
    (folder / "features.tsv").write_text("\n".join(features) + "\n")
    (folder / "labels.json").write_text(json.dumps(labels))


def recipe_of(folder: Path, *overrides: str, frozen: bool = False) -> Recipe:
    path = folder / f"recipe-{frozen}.toml"
    path.write_text(RECIPE.format(folder=folder, frozen=str(frozen).lower()))
    return load_recipe(path, overrides)
