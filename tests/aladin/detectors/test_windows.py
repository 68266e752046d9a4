"""Windows of a photo through a classifier."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from transformers import AutoModelForImageClassification

from aladin_network.detectors.base import load_detector
from aladin_network.detectors.windows import window_boxes
from aladin_network.encoders.transformers_model import quiet


def test_windows_are_the_photo_and_a_grid_that_overlaps() -> None:
    assert window_boxes(1, 0.5).tolist() == [[0, 0, 1, 1]]
    # Two windows of 2/3 that share half of themselves: 0 to 2/3 and 1/3 to 1.
    thirds = np.array([[0, 0, 2, 2], [1, 0, 3, 2], [0, 1, 2, 3], [1, 1, 3, 3]]) / 3
    np.testing.assert_allclose(window_boxes(2, 0.5), [[0, 0, 1, 1], *thirds], atol=1e-6)
    plain = window_boxes(3, 0.0)
    assert plain.shape == (10, 4)
    np.testing.assert_allclose(plain[1:, 2:] - plain[1:, :2], 1 / 3, atol=1e-6)


def test_a_region_is_what_the_classifier_makes_of_its_window(
    detector_folders: dict[str, Path],
) -> None:
    folder = detector_folders["classifier"]
    detector = load_detector(f"windows={folder},grid=2,overlap=0")
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    photo = Image.fromarray(pixels)
    regions = detector.detect(photo)
    assert regions.vectors.shape == (5, detector.dim)
    with quiet():
        model = AutoModelForImageClassification.from_pretrained(folder).eval()
    corner = torch.from_numpy(pixels[32:, :32] / 127.5 - 1).permute(2, 0, 1).float().unsqueeze(0)
    with torch.inference_mode():
        pooled = model.mobilenet_v2(corner).pooler_output[0]
        number = int(model(corner).logits.argmax())
    np.testing.assert_allclose(regions.vectors[3, :-6], pooled, atol=1e-4)
    np.testing.assert_allclose(regions.vectors[3, -6:], [0, 0.5, 0.5, 1, 0.5, 0.5], atol=1e-6)
    assert regions.labels[3] == f"word {number}"


def test_a_photo_one_pixel_high_has_all_windows(detector_folders: dict[str, Path]) -> None:
    detector = load_detector(f"windows={detector_folders['classifier']},grid=4")
    assert len(detector.detect(Image.new("RGB", (900, 1)))) == 17
