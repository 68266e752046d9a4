"""Pretrained dual encoders: without any training the matching score is their own similarity."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from aladin.checkpoint import load_checkpoint, save_checkpoint
from aladin.config import (
    AlignmentHeadConfig,
    ImageEncoderConfig,
    MatchingHeadConfig,
    ModelConfig,
    TextEncoderConfig,
    TowerConfig,
)
from aladin.inference import encode_photos, encode_texts
from aladin.model import AladinModel
from aladin.query_precision import QueryModels
from aladin.scoring import matching_scores

FAMILIES = [
    "clip",
    "metaclip_2",
    "chinese_clip",
    "siglip",
    "siglip2-fixed",
    "siglip2",
    "vit-xlm-roberta",
]
TEXTS = [
    "a small red circle",
    "Two dogs run on the green grass, don't they?",
    "公园里有两只狗",
    "ein Hund läuft " * 2,
]
BARE = TowerConfig(trunk=None)


def config(folder: Path, family: str, **changes: Any) -> ModelConfig:
    name = "naflex" if family == "siglip2" else "hf"
    image = changes.pop("image", {})
    return ModelConfig(
        image_encoder=ImageEncoderConfig(name=name, source=str(folder), pooled=True, **image),
        text_encoder=TextEncoderConfig(source=str(folder), pooled=True, max_tokens=48),
        image_tower=BARE,
        text_tower=BARE,
        matching=MatchingHeadConfig(layers=0, start="towers"),
        alignment=AlignmentHeadConfig(dim=8, start="towers"),
        **changes,
    )


def similarity(model: AladinModel, photos: list[Image.Image]) -> torch.Tensor:
    return matching_scores(encode_photos(model, photos), encode_texts(model, TEXTS))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_untrained_matching_score_is_the_towers_own_similarity(
    dual_encoder: Callable[[str], Any], photos: list[Image.Image], family: str, tmp_path: Path
) -> None:
    saved = dual_encoder(family)
    folder = tmp_path / "source"
    shutil.copytree(saved.folder, folder)
    model = AladinModel.create(config(folder, family)).eval()
    shutil.rmtree(folder)
    expected = saved.similarity(photos, TEXTS)
    assert float(expected.std(dim=0).mean()) > 0.01, "photos differ"
    assert float(expected.std(dim=1).mean()) > 0.01, "texts differ"
    torch.testing.assert_close(similarity(model, photos), expected, atol=1e-4, rtol=0)
    # A checkpoint is complete: the source is gone.
    save_checkpoint(tmp_path / "checkpoint", model)
    loaded = load_checkpoint(tmp_path / "checkpoint").model
    torch.testing.assert_close(similarity(loaded, photos), expected, atol=1e-4, rtol=0)
    # Queries in bfloat16 stay near.
    half = QueryModels("bfloat16").for_texts(loaded)
    texts = encode_texts(half, TEXTS)
    rounded = matching_scores(encode_photos(loaded, photos), texts)
    torch.testing.assert_close(rounded, expected, atol=0.05, rtol=0)
