"""Preprocessing: the same numbers as the transformers processors of pretrained encoders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import (
    CLIPImageProcessor,
    SiglipImageProcessor,
    ViTImageProcessor,
)
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil

from aladin_network.config import ImagePreprocessing
from aladin_network.encoders.pixels import (
    input_window,
    normalised,
    patch_grid,
    preprocess_patches,
    preprocess_photo,
)
from aladin_network.encoders.vision_tower import read_preprocessing
from aladin_network.errors import CheckpointError, ConfigError

SIZES = [(48, 32), (97, 51), (40, 130), (33, 47)]


def photo(width: int, height: int) -> Image.Image:
    """A smooth random photo: noise alone would hide a shift by a fraction of a pixel."""
    rng = np.random.default_rng(width * height)
    coarse = Image.fromarray(rng.integers(0, 256, (9, 9, 3), dtype=np.uint8))
    return coarse.resize((width, height), Image.Resampling.BICUBIC)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("processor", "expected"),
    [
        (
            ViTImageProcessor(size={"height": 48, "width": 32}),
            ImagePreprocessing(height_px=48, width_px=32),
        ),
        (
            SiglipImageProcessor(size={"height": 32, "width": 32}),
            ImagePreprocessing(height_px=32, width_px=32, resample="bicubic"),
        ),
        (
            CLIPImageProcessor(size={"shortest_edge": 40}, crop_size={"height": 32, "width": 32}),
            ImagePreprocessing(
                height_px=32,
                width_px=32,
                shortest_edge_px=40,
                mean=(0.48145466, 0.4578275, 0.40821073),
                std=(0.26862954, 0.26130258, 0.27577711),
                resample="bicubic",
            ),
        ),
    ],
    ids=["vit", "siglip", "clip"],
)
def test_numbers_equal_those_of_the_processor(
    tmp_path: Path, size: tuple[int, int], processor: Any, expected: ImagePreprocessing
) -> None:
    processor.save_pretrained(tmp_path)
    config = read_preprocessing(str(tmp_path))
    assert config == expected
    ours = torch.from_numpy(normalised(preprocess_photo(photo(*size), config), config))
    theirs = processor(photo(*size), return_tensors="pt")["pixel_values"][0]
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


def test_a_long_strip_is_not_resized_whole() -> None:
    strip = Image.new("RGB", (200_000, 2), (255, 0, 0))
    strip.paste((0, 0, 255), (99_990, 0, 100_010, 2))
    config = ImagePreprocessing(
        height_px=32, width_px=32, shortest_edge_px=32, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)
    )
    pixels = preprocess_photo(strip, config)  # of its middle, two pixels wide
    assert (pixels == np.array([0, 0, 255])[:, None, None]).all()


@pytest.mark.parametrize("size", [*SIZES, (700, 20), (5, 5)])
def test_patches_equal_the_processor_of_naflex(tmp_path: Path, size: tuple[int, int]) -> None:
    processor = Siglip2ImageProcessorPil(patch_size=8, max_num_patches=30)
    processor.save_pretrained(tmp_path)
    config = read_preprocessing(str(tmp_path))
    assert config.max_patches == 30
    ours = preprocess_patches(photo(*size), config, patch_px=8)
    theirs = processor(photo(*size), return_tensors="pt")
    assert list(ours.grid) == theirs["spatial_shapes"][0].tolist()
    count = ours.grid[0] * ours.grid[1]
    assert len(ours.values) == count == int(theirs["pixel_attention_mask"][0].sum())
    torch.testing.assert_close(
        torch.from_numpy(ours.values), theirs["pixel_values"][0][:count], atol=1e-5, rtol=0
    )
    assert patch_grid(*size, config, patch_px=8) == ours.grid


def test_a_grid_keeps_the_shape_of_the_photo() -> None:
    config = ImagePreprocessing(max_patches=256)
    assert patch_grid(640, 640, config, patch_px=16) == (16, 16)
    assert patch_grid(1280, 320, config, patch_px=16) == (8, 32)
    assert patch_grid(1, 100_000, config, patch_px=16) == (256, 1)
    with pytest.raises(ConfigError, match="need max_patches"):
        patch_grid(640, 640, ImagePreprocessing(), patch_px=16)


@pytest.mark.parametrize(
    ("size", "shortest_px", "window"),
    [
        ((640, 480), None, (0, 0, 1, 1)),
        # The short side keeps 32/40 = 80 %, the long one half of that.
        ((400, 200), 40, (0.3, 0.1, 0.7, 0.9)),
        ((200, 400), 40, (0.1, 0.3, 0.9, 0.7)),
        # 53 x 40 px after the resize; of the 53 columns the 11th to the 42nd are kept.
        ((640, 480), 40, (10 / 53, 4 / 40, 42 / 53, 36 / 40)),
        ((100, 100), 30, (0, 0, 1, 1)),  # a crop larger than the resized photo
    ],
)
def test_the_window_that_the_network_sees(
    size: tuple[int, int], shortest_px: int | None, window: tuple[float, ...]
) -> None:
    config = ImagePreprocessing(height_px=32, width_px=32, shortest_edge_px=shortest_px)
    assert input_window(*size, config) == pytest.approx(window)


@pytest.mark.parametrize(
    "processor",
    [
        ViTImageProcessor(do_normalize=False),
        CLIPImageProcessor(size={"height": 40, "width": 40}, crop_size={"height": 32, "width": 32}),
    ],
)
def test_preprocessing_that_cannot_be_expressed(tmp_path: Path, processor: Any) -> None:
    with pytest.raises(CheckpointError, match="cannot read its preprocessing"):
        read_preprocessing(str(tmp_path))
    processor.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="unsupported preprocessing"):
        read_preprocessing(str(tmp_path))
