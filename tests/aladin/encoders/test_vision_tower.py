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
    patch_grid,
    preprocess_patches,
    preprocess_photo,
)
from aladin_network.encoders.vision_tower import read_preprocessing
from aladin_network.errors import CheckpointError, ConfigError

SIZES = [(64, 64), (97, 51), (40, 130), (640, 480), (33, 47)]


def photo(width: int, height: int) -> Image.Image:
    """A smooth random photo: noise alone would hide a shift by a fraction of a pixel."""
    rng = np.random.default_rng(width * height)
    coarse = Image.fromarray(rng.integers(0, 256, (9, 9, 3), dtype=np.uint8))
    return coarse.resize((width, height), Image.Resampling.BICUBIC)


def by_transformers(processor: Any, picture: Image.Image) -> torch.Tensor:
    return processor(picture, return_tensors="pt")["pixel_values"][0]


@pytest.mark.parametrize("size", SIZES)
def test_squashing_equals_the_processor_of_vit(tmp_path: Path, size: tuple[int, int]) -> None:
    processor = ViTImageProcessor(size={"height": 48, "width": 32})
    processor.save_pretrained(tmp_path)
    config = read_preprocessing(str(tmp_path))
    assert config == ImagePreprocessing(height_px=48, width_px=32)
    ours = torch.from_numpy(preprocess_photo(photo(*size), config))
    torch.testing.assert_close(ours, by_transformers(processor, photo(*size)), atol=1e-5, rtol=0)


@pytest.mark.parametrize("size", SIZES)
def test_squashing_equals_the_processor_of_siglip(tmp_path: Path, size: tuple[int, int]) -> None:
    processor = SiglipImageProcessor(size={"height": 32, "width": 32})
    processor.save_pretrained(tmp_path)
    config = read_preprocessing(str(tmp_path))
    assert config.resample == "bicubic"
    ours = torch.from_numpy(preprocess_photo(photo(*size), config))
    torch.testing.assert_close(ours, by_transformers(processor, photo(*size)), atol=1e-5, rtol=0)


@pytest.mark.parametrize("size", SIZES)
def test_resizing_and_cropping_equals_the_processor_of_clip(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    processor = CLIPImageProcessor(
        size={"shortest_edge": 40}, crop_size={"height": 32, "width": 32}
    )
    processor.save_pretrained(tmp_path)
    config = read_preprocessing(str(tmp_path))
    assert (config.shortest_edge_px, config.height_px, config.width_px) == (40, 32, 32)
    assert config.mean == pytest.approx((0.48145466, 0.4578275, 0.40821073))
    ours = torch.from_numpy(preprocess_photo(photo(*size), config))
    theirs = by_transformers(processor, photo(*size))
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


def test_a_long_strip_is_not_resized_whole() -> None:
    strip = Image.new("RGB", (200_000, 2), (255, 0, 0))
    strip.paste((0, 0, 255), (99_990, 0, 100_010, 2))
    config = ImagePreprocessing(
        height_px=32, width_px=32, shortest_edge_px=32, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)
    )
    pixels = torch.from_numpy(preprocess_photo(strip, config))  # of its middle, two pixels wide
    assert torch.equal(pixels, torch.tensor([0.0, 0.0, 1.0])[:, None, None].expand(3, 32, 32))


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


def test_worked_by_hand() -> None:
    picture = Image.new("RGB", (5, 3), (255, 127, 0))
    config = ImagePreprocessing(
        height_px=2, width_px=4, mean=(0.5, 0.0, 0.25), std=(0.5, 1.0, 0.25)
    )
    pixels = torch.from_numpy(preprocess_photo(picture, config))
    assert pixels.shape == (3, 2, 4)
    expected = torch.tensor([1.0, 127 / 255, -1.0])[:, None, None].expand(3, 2, 4)
    torch.testing.assert_close(pixels, expected)


def test_a_photo_of_the_right_size_is_not_resampled() -> None:
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8))
    config = ImagePreprocessing(height_px=6, width_px=8, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    pixels = torch.from_numpy(preprocess_photo(picture, config))
    expected = torch.from_numpy(np.array(picture)).permute(2, 0, 1).float() / 255
    assert torch.equal(pixels, expected)


def test_the_window_of_a_squashed_photo_is_all_of_it() -> None:
    assert input_window(640, 480, ImagePreprocessing()) == (0, 0, 1, 1)


@pytest.mark.parametrize("size", [(400, 200), (200, 400)])
def test_the_window_of_a_cropped_photo_is_its_centre(size: tuple[int, int]) -> None:
    config = ImagePreprocessing(height_px=32, width_px=32, shortest_edge_px=40)
    window = input_window(*size, config)
    # The short side keeps 32/40 = 80 %, the long one half of that.
    narrow, wide = (0.3, 0.7), (0.1, 0.9)
    (x0, x1), (y0, y1) = (narrow, wide) if size[0] > size[1] else (wide, narrow)
    assert window == pytest.approx((x0, y0, x1, y1))


def test_the_window_of_an_odd_photo_counts_in_whole_pixels_of_the_resized_one() -> None:
    config = ImagePreprocessing(height_px=32, width_px=32, shortest_edge_px=40)
    # 640 x 480 becomes 53 x 40; of the 53 columns the 11th to the 42nd are kept.
    window = input_window(640, 480, config)
    assert window == pytest.approx((10 / 53, 4 / 40, 42 / 53, 36 / 40))


def test_a_crop_larger_than_the_resized_photo_keeps_all_of_it() -> None:
    config = ImagePreprocessing(height_px=64, width_px=64, shortest_edge_px=40)
    assert input_window(100, 100, config) == (0, 0, 1, 1)


def test_what_a_crop_shows_is_what_the_window_says() -> None:
    picture = Image.new("RGB", (300, 100), (0, 0, 0))
    picture.paste((255, 255, 255), (100, 0, 200, 100))
    config = ImagePreprocessing(
        height_px=20, width_px=20, shortest_edge_px=20, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)
    )
    assert input_window(300, 100, config) == pytest.approx((1 / 3, 0, 2 / 3, 1))
    pixels = torch.from_numpy(preprocess_photo(picture, config))
    inside = pixels[:, :, 1:-1]  # the edge columns blend with black
    assert bool((inside == 1).all())


def test_a_source_without_preprocessing(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot read its preprocessing"):
        read_preprocessing(str(tmp_path))


@pytest.mark.parametrize(
    "processor",
    [
        ViTImageProcessor(do_normalize=False),
        CLIPImageProcessor(size={"height": 40, "width": 40}, crop_size={"height": 32, "width": 32}),
    ],
)
def test_preprocessing_that_cannot_be_expressed(tmp_path: Path, processor: Any) -> None:
    processor.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="unsupported preprocessing"):
        read_preprocessing(str(tmp_path))
