"""Small random detectors of several families, as folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    ConditionalDetrConfig,
    ConditionalDetrForObjectDetection,
    DetrConfig,
    DetrForObjectDetection,
    DetrImageProcessorPil,
    MobileNetV2Config,
    MobileNetV2ForImageClassification,
    MobileNetV2ImageProcessorPil,
    ResNetConfig,
    YolosConfig,
    YolosForObjectDetection,
    YolosImageProcessorPil,
)

from aladin.encoders.transformers_model import quiet

WIDTH, QUERIES = 8, 6


def _detr(config: Callable[..., Any]) -> Any:
    backbone = ResNetConfig(
        embedding_size=4,
        hidden_sizes=[4, 8],
        depths=[1, 1],
        layer_type="basic",
        out_features=["stage2"],
    )
    return config(
        use_timm_backbone=False,
        backbone=None,
        use_pretrained_backbone=False,
        backbone_config=backbone,
        d_model=WIDTH,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=8,
        decoder_ffn_dim=8,
        num_queries=QUERIES,
        num_labels=3,
        init_std=1.0,
    )


def _yolos() -> Any:
    return YolosConfig(
        hidden_size=WIDTH,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        image_size=[32, 48],
        num_detection_tokens=QUERIES,
        num_labels=3,
        initializer_range=1.0,
    )


@pytest.fixture(scope="session")
def detector_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A detector of each family, and a classifier of six classes."""
    sizes = {"size": {"shortest_edge": 32, "longest_edge": 64}}
    makers: dict[str, tuple[Callable[[], Any], Any]] = {
        "detr": (
            lambda: DetrForObjectDetection(_detr(DetrConfig)),
            DetrImageProcessorPil(**sizes),
        ),
        "conditional_detr": (
            lambda: ConditionalDetrForObjectDetection(_detr(ConditionalDetrConfig)),
            DetrImageProcessorPil(**sizes),
        ),
        "yolos": (
            lambda: YolosForObjectDetection(_yolos()),
            YolosImageProcessorPil(size={"height": 32, "width": 48}),
        ),
        "classifier": (
            lambda: MobileNetV2ForImageClassification(
                MobileNetV2Config(
                    image_size=32,
                    depth_multiplier=0.25,
                    id2label={n: f"word {n}, synonym {n}" for n in range(6)},
                )
            ),
            MobileNetV2ImageProcessorPil(
                size={"shortest_edge": 40}, crop_size={"height": 32, "width": 32}
            ),
        ),
    }
    folders: dict[str, Path] = {}
    for name, (make, processor) in makers.items():
        folders[name] = tmp_path_factory.mktemp(name)
        torch.manual_seed(1)
        with quiet():
            make().save_pretrained(folders[name])
        processor.save_pretrained(folders[name])
    return folders
