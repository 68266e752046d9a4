"""Exports of the families of encoders, small and random."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

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
Parts = dict[str, Any]

SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
SMALL = SIZES | {"intermediate_size": 32}
WORDS = {"max_position_embeddings": 40}
MOBILENET = {"model_type": "mobilenet_v2", "depth_multiplier": 0.35}
DINO = SMALL | {"model_type": "dinov2", "image_size": 28, "patch_size": 14}
SWIN = {
    "model_type": "swin",
    "image_size": 32,
    "patch_size": 2,
    "embed_dim": 6,
    "depths": [2, 1],
    "num_heads": [1, 2],
    "window_size": 4,
}
DISTILBERT = {"model_type": "distilbert", "dim": 24, "n_layers": 2, "n_heads": 2, "hidden_dim": 32}
RECURRENT = {"embedding_size": 6, "hidden_size": 10, "layers": 2}
TRUNK = tiny_config().image_tower.trunk


def photo_parts(architecture: dict[str, Any], height: int, width: int, **settings: Any) -> Parts:
    preprocessing = ImagePreprocessing(height_px=height, width_px=width)
    return {
        "image_encoder": ImageEncoderConfig(
            architecture=architecture, preprocessing=preprocessing, **settings
        ),
        "image_tower": TowerConfig(trunk=TRUNK, aggregate="mean", positions=True),
        "matching": MatchingHeadConfig(layers=0, pooling=("first", "mean", "max"), dim=6),
    }


def word_parts(architecture: dict[str, Any]) -> Parts:
    return {
        "text_encoder": TextEncoderConfig(architecture=architecture | WORDS, max_tokens=32),
        "text_tower": TowerConfig(aggregate="learned", trunk=tiny_config().text_tower.trunk),
        "alignment": AlignmentHeadConfig(dim=8, official_trim=True, empty_fill="zero"),
    }


def recurrent_parts(name: str, **options: Any) -> Parts:
    return {
        "text_encoder": TextEncoderConfig(name=name, architecture=RECURRENT | options),
        "text_tower": TowerConfig(aggregate="encoder"),
        "image_tower": TowerConfig(aggregate="mean"),
    }


NETWORKS: dict[str, Parts] = {
    "mobilenet": photo_parts(MOBILENET, 64, 96, pyramid=(2, 1)),
    "mobilenet, layers": photo_parts(MOBILENET, 64, 96, layers=(-3,)),
    "dinov2": photo_parts(DINO, 42, 56),  # positions between
    "swin": photo_parts(SWIN, 32, 32, layers=(0,)),
    "roberta": word_parts(SMALL | {"model_type": "roberta"}),
    "distilbert": word_parts(DISTILBERT),
    "gru": recurrent_parts("gru", bidirectional=True),
    "lstm": recurrent_parts("lstm", bidirectional=False),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_towers(build_tiny: Callable[..., AladinModel], name: str, tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "checkpoint", build_tiny(**NETWORKS[name]))
    export_graphs(tmp_path / "checkpoint")
    assert_exported(tmp_path / "checkpoint", CAPTIONS)


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
    assert ours.text.encoder.spans(texts[0]) == theirs.text.encoder.spans(texts[0])
    boxes = theirs.image.encoder.region_boxes(80, 50)
    assert np.array_equal(ours.image.encoder.region_boxes(80, 50), boxes)


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "siglip2"])
def test_dual_encoders(family: Family, tmp_path: Path) -> None:
    save_dual_encoder(family, tmp_path / "source")
    convert_towers(str(tmp_path / "source"), tmp_path / "checkpoint", TowersOptions())
    export_graphs(tmp_path / "checkpoint")
    assert_exported(tmp_path / "checkpoint", ["a small red circle", "dogs", CAPTIONS[1]])
