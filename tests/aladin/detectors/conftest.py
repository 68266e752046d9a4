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
    YolosConfig,
    YolosForObjectDetection,
    YolosImageProcessorPil,
)

from aladin_network.encoders.transformers_model import quiet
from tests.aladin.detectors.small_detr import QUERIES, small_detr

WIDTH = 8


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
            lambda: DetrForObjectDetection(small_detr(DetrConfig, WIDTH)),
            DetrImageProcessorPil(**sizes),
        ),
        "conditional_detr": (
            lambda: ConditionalDetrForObjectDetection(small_detr(ConditionalDetrConfig, WIDTH)),
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
