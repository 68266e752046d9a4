"""Exports of the families of encoders, small and random."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from aladin_network.checkpoint import load_checkpoint, save_checkpoint
from aladin_network.config import (
    AlignmentHeadConfig,
    ImageEncoderConfig,
    ImagePreprocessing,
    MatchingHeadConfig,
    TextEncoderConfig,
    TowerConfig,
)
from aladin_network.conversion.towers import TowersOptions, convert_towers
from aladin_network.graphs.export import TOLERANCE, export_graphs
from aladin_network.graphs.loading import load_graphs
from aladin_network.model import AladinModel
from tests.conftest import CAPTIONS, tiny_config
from tests.dual_encoders import FAMILIES, Family, save_dual_encoder
from tests.tensors import assert_near, encode_photos, encode_texts, random_photos

pytestmark = pytest.mark.slow

MOBILENET = ImageEncoderConfig(
    architecture={"model_type": "mobilenet_v2", "depth_multiplier": 0.35},
    preprocessing=ImagePreprocessing(height_px=64, width_px=96),
    pyramid=(2, 1),
)
SMALL = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
POSITIONS = {"max_position_embeddings": 40}


@pytest.fixture(autouse=True)
def _packages() -> None:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason=f"the package {package} is not installed")


def assert_exported(folder: Path, texts: list[str]) -> None:
    """Compare an exported checkpoint with torch, whatever the batch."""
    theirs, ours = load_checkpoint(folder).model, load_graphs(folder).model
    for some in (texts[:1], texts):
        assert_near(encode_texts(ours, some), encode_texts(theirs, some), TOLERANCE)
    assert_near(
        encode_photos(ours, random_photos(3)), encode_photos(theirs, random_photos(3)), TOLERANCE
    )
    boxes = theirs.image.encoder.region_boxes(80, 50)
    assert np.array_equal(ours.image.encoder.region_boxes(80, 50), boxes)


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "siglip2"])
def test_dual_encoders(family: Family, tmp_path: Path) -> None:
    save_dual_encoder(family, tmp_path / "source")
    convert_towers(str(tmp_path / "source"), tmp_path / "checkpoint", TowersOptions())
    export_graphs(tmp_path / "checkpoint")
    assert_exported(tmp_path / "checkpoint", ["a small red circle", "dogs", CAPTIONS[1]])


@pytest.mark.parametrize(
    "image",
    [
        MOBILENET,
        dataclasses.replace(MOBILENET, layers=(-3,), pyramid=None),
        ImageEncoderConfig(
            architecture=SMALL | {"model_type": "dinov2", "image_size": 28, "patch_size": 14},
            preprocessing=ImagePreprocessing(height_px=42, width_px=56),  # positions between
        ),
        ImageEncoderConfig(
            architecture={
                "model_type": "swin",
                "image_size": 32,
                "patch_size": 2,
                "embed_dim": 6,
                "depths": [2, 1],
                "num_heads": [1, 2],
                "window_size": 4,
            },
            layers=(0,),
            preprocessing=ImagePreprocessing(height_px=32, width_px=32),
        ),
    ],
    ids=["mobilenet", "mobilenet-layers", "dinov2", "swin"],
)
def test_vision_towers(
    build_tiny: Callable[..., AladinModel], image: ImageEncoderConfig, tmp_path: Path
) -> None:
    trunk = tiny_config().image_tower.trunk
    tower = TowerConfig(trunk=trunk, aggregate="mean", positions=True)
    matching = MatchingHeadConfig(layers=0, pooling=("first", "mean", "max"), dim=6)
    model = build_tiny(image_encoder=image, image_tower=tower, matching=matching)
    save_checkpoint(tmp_path / "checkpoint", model)
    export_graphs(tmp_path / "checkpoint")
    assert_exported(tmp_path / "checkpoint", CAPTIONS)


@pytest.mark.parametrize("kind", ["roberta", "distilbert"])
def test_text_towers(build_tiny: Callable[..., AladinModel], kind: str, tmp_path: Path) -> None:
    sizes = SMALL | POSITIONS
    if kind == "distilbert":
        sizes = {"dim": 24, "n_layers": 2, "n_heads": 2, "hidden_dim": 32} | POSITIONS
    text = TextEncoderConfig(architecture=sizes | {"model_type": kind}, max_tokens=32)
    tower = TowerConfig(aggregate="learned", trunk=tiny_config().text_tower.trunk)
    alignment = AlignmentHeadConfig(dim=8, official_trim=True, empty_fill="zero")
    model = build_tiny(text_encoder=text, text_tower=tower, alignment=alignment)
    save_checkpoint(tmp_path / "checkpoint", model)
    export_graphs(tmp_path / "checkpoint")
    assert_exported(tmp_path / "checkpoint", CAPTIONS)
