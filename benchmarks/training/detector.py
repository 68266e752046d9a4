"""Milliseconds per photo of the detectors, relative to the encoder that needs none.

    python -m benchmarks.training.detector [--photo FILE] [--classifier FOLDER] [--rounds 5]
    [DETECTOR ...]

The time to detect the regions of a decoded query photo is compared with that of the `hf` image
encoder of the same classifier, which needs no detector because its regions are the cells of a grid.
All take turns on one thread, so that other load on the machine slows all of them and ratios remain
comparable. DETR and YOLOS have the sizes of facebook/detr-resnet-50 and hustvl/yolos-tiny with
random weights: this shows their cost, and nothing about their quality. The windows, and the
detectors given as arguments, have trained weights.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import (
    DetrConfig,
    DetrForObjectDetection,
    DetrImageProcessorPil,
    ResNetConfig,
    YolosConfig,
    YolosForObjectDetection,
    YolosImageProcessorPil,
)

from aladin_network.config import ImageEncoderConfig
from aladin_network.detectors.base import Detector, load_detector
from aladin_network.detectors.objects import ObjectDetector, ObjectOptions
from aladin_network.encoders.base import ImageEncoder
from aladin_network.encoders.hf_image import HFImageEncoder
from aladin_network.photos.decoding import read_image
from benchmarks.lib.measuring import ratio, time_in_turn
from benchmarks.lib.output import print_rows

_BASE = "grid of cells"
_SIZE = {"shortest_edge": 800, "longest_edge": 1333}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("detectors", nargs="*", help="further detectors, in the form of --detector")
    parser.add_argument("--photo", type=Path, help="a photo; default: noise of 500 x 375 px")
    parser.add_argument(
        "--classifier", default="encoders/mobilenet_v2_1.0_224", help="folder of it"
    )
    parser.add_argument("--rounds", type=int, default=5, help="timed repetitions")
    options = parser.parse_args()
    torch.set_num_threads(1)
    photo = read_image(options.photo) if options.photo else _noise()
    encoder = HFImageEncoder.from_source(ImageEncoderConfig(source=options.classifier)).eval()
    detectors: dict[str, Detector] = {
        "windows, 1 + 2 x 2": load_detector(f"windows={options.classifier},grid=2"),
        "windows, 1 + 3 x 3": load_detector(f"windows={options.classifier},grid=3"),
        "YOLOS tiny, random weights": _yolos(),
        "DETR ResNet-50, random weights": _detr(),
    } | {name: load_detector(name) for name in options.detectors}
    runs: dict[str, Callable[[int], object]] = {_BASE: partial(_encode, encoder, photo)}
    for name, detector in detectors.items():
        runs[name] = partial(_detect, detector, photo)
    times = time_in_turn(runs, options.rounds, warm_up=1)
    print(f"{photo.width} x {photo.height} px, one thread, medians of {options.rounds} turns")
    rows = [
        [
            name,
            encoder.num_tokens if name == _BASE else len(detectors[name].detect(photo)),
            f"{np.median(each_ms):.0f}",
            f"{ratio(times, name, _BASE):.1f}",
        ]
        for name, each_ms in times.items()
    ]
    print_rows(["detector", "regions", "ms per photo", "ratio"], rows)


@torch.inference_mode()
def _encode(encoder: ImageEncoder, photo: Image.Image, _: int) -> object:
    return encoder(encoder.collate([encoder.preprocess(photo)]))


def _detect(detector: Detector, photo: Image.Image, _: int) -> object:
    return detector.detect(photo)


def _noise() -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (375, 500, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def _detr() -> ObjectDetector:
    # Plain data: these configurations declare only some of the names that they accept.
    backbone: dict[str, Any] = {"out_features": ["stage4"]}
    settings: dict[str, Any] = {
        "use_timm_backbone": False,
        "backbone": None,
        "use_pretrained_backbone": False,
        "backbone_config": ResNetConfig(**backbone),
        "num_labels": 91,
    }
    model = DetrForObjectDetection(DetrConfig(**settings))
    return _random(model, DetrImageProcessorPil(size=_SIZE))


def _yolos() -> ObjectDetector:
    settings: dict[str, Any] = {
        "hidden_size": 192,
        "num_hidden_layers": 12,
        "num_attention_heads": 3,
        "intermediate_size": 768,
        "image_size": [800, 1333],
        "use_mid_position_embeddings": False,
        "num_labels": 91,
    }
    model = YolosForObjectDetection(YolosConfig(**settings))
    return _random(model, YolosImageProcessorPil(size=_SIZE))


def _random(model: Any, processor: Any) -> ObjectDetector:
    return ObjectDetector(model.eval(), processor, ObjectOptions())


if __name__ == "__main__":
    main()
