"""A small index of photos that are known by their regions, and a detector that fits it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    DetrConfig,
    DetrForObjectDetection,
    DetrImageProcessorPil,
)

from aladin_index.building.builder import build_index
from aladin_index.settings import BuildSettings
from aladin_network.checkpoint import load_checkpoint, save_checkpoint
from aladin_network.config import (
    AlignmentHeadConfig,
    ImageEncoderConfig,
    MatchingHeadConfig,
    TextEncoderConfig,
    TowerConfig,
)
from aladin_network.encoders.transformers_model import quiet
from aladin_network.model import AladinModel
from aladin_network.photos.regions import RegionSet, with_geometry
from aladin_service.item_sources import image_items, text_items
from aladin_training.data.regions import open_regions
from tests.aladin.detectors.small_detr import small_detr

# Numbers of a region without its geometry; regions of a photo that the network takes.
APPEARANCE, MOST = 8, 5
DIM = APPEARANCE + 6
WIDTH, HEIGHT = 64, 48  # of the photos, in px


@dataclass(frozen=True)
class World:
    """An index of regions, and what is in it.

    Attributes:
        index: its folder.
        model: that made it.
        photos: by id, their regions.
        texts: by id.
    """

    index: Path
    model: AladinModel
    photos: dict[str, RegionSet]
    texts: dict[str, str]


def random_regions(seed: int, count: int) -> RegionSet:
    """Make up regions of one photo."""
    rng = np.random.default_rng(seed)
    corners = rng.random((count, 2, 2), dtype=np.float32)
    boxes = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
    appearance = rng.normal(size=(count, APPEARANCE)).astype(np.float32)
    return RegionSet(with_geometry(appearance, boxes), boxes, ("dog",) * count, (WIDTH, HEIGHT))


def region_model(build_tiny: Callable[..., AladinModel], **changes: Any) -> AladinModel:
    """A random network of regions; `changes` are its image encoder's configuration."""
    bert = {
        "model_type": "bert",
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "max_position_embeddings": 32,
        "initializer_range": 0.5,
    }
    return build_tiny(
        image_encoder=ImageEncoderConfig(
            name="regions",
            architecture={"region_dim": DIM, "max_regions": MOST, "max_label_tokens": 8},
            **changes,
        ),
        text_encoder=TextEncoderConfig(architecture=bert, max_tokens=32),
        image_tower=TowerConfig(trunk=None),
        text_tower=TowerConfig(trunk=None),
        alignment=AlignmentHeadConfig(dim=None),
        matching=MatchingHeadConfig(layers=1, heads=2),
    )


def build_world(folder: Path, model: AladinModel, captions: Sequence[tuple[str, str]]) -> World:
    """Make an index of VinVL's tables of regions and labels.

    Args:
        folder: empty; a photo of the index is there once its file ``photo-NUMBER.jpg`` is.
        model: that reads regions.
        captions: of each photo.
    """
    photos: dict[str, RegionSet] = {}
    lines: list[str] = []
    features: list[str] = []
    labels: list[str] = []
    for number, pair in enumerate(captions):
        name, regions = f"photo-{number}", random_regions(number, number + 1)
        photos[name] = regions
        lines.append(json.dumps({"id": name, "image": f"{name}.jpg", "captions": pair}))
        vectors = base64.b64encode(regions.vectors.astype("<f4").tobytes()).decode()
        features.append(f"{name}\t{json.dumps({'num_boxes': len(regions), 'features': vectors})}")
        assert regions.boxes is not None
        objects = [
            {"class": "dog", "rect": (box * [WIDTH, HEIGHT, WIDTH, HEIGHT]).tolist()}
            for box in regions.boxes
        ]
        described = {"image_w": WIDTH, "image_h": HEIGHT, "objects": objects}
        labels.append(f"{name}\t{json.dumps(described)}")
    for name, content in (
        ("data.jsonl", lines),
        ("features.tsv", features),
        ("predictions.tsv", labels),
    ):
        (folder / name).write_text("\n".join(content) + "\n", encoding="utf-8")
    checkpoint = folder / "checkpoint"
    save_checkpoint(checkpoint, model)
    store = open_regions(folder / "features.tsv", folder / "predictions.tsv")
    data = folder / "data.jsonl"
    build_index(
        checkpoint,
        folder / "index",
        image_items(data, None, store),
        text_items(data, None),
        BuildSettings(token_dtype="float16"),
        None,
        store,
    )
    texts = {
        f"photo-{number}#{place}": text
        for number, pair in enumerate(captions)
        for place, text in enumerate(pair)
    }
    return World(folder / "index", load_checkpoint(checkpoint).model, photos, texts)


def save_detector(folder: Path) -> None:
    """Write a random DETR, whose states are as long as the appearance of the index's regions."""
    torch.manual_seed(3)
    config = small_detr(DetrConfig, APPEARANCE)
    with quiet():
        DetrForObjectDetection(config).save_pretrained(folder)
    DetrImageProcessorPil(size={"shortest_edge": 32, "longest_edge": 64}).save_pretrained(folder)
