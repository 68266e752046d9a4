"""Encoders of photos on small random networks: states, cells, and where on the photo they are."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from transformers import CLIPImageProcessor

from aladin_network.config import ImageEncoderConfig, ImagePreprocessing
from aladin_network.encoders.hf_image import HFImageEncoder
from aladin_network.encoders.pixels import pooled_boxes
from aladin_network.encoders.vision_tower import pooled_cells
from tests.aladin.encoders.conftest import MOBILENET, PATCHES, SWIN, image_encoder, naflex, save

TEXT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 50}
PAIR = {"vision_config": PATCHES, "text_config": TEXT}
QUARTERS = [[0, 0, 0.5, 0.5], [0.5, 0, 1, 0.5], [0, 0.5, 0.5, 1], [0.5, 0.5, 1, 1]]


def load(folder: Path, **settings: Any) -> HFImageEncoder:
    return HFImageEncoder.from_source(ImageEncoderConfig(source=str(folder), **settings)).eval()


@pytest.fixture
def pixels() -> Tensor:
    """Three random preprocessed photos."""
    return torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))


@torch.inference_mode()
def states_of(model: torch.nn.Module, pixels: Tensor) -> Tensor:
    return getattr(model, "vision_model", model)(pixel_values=pixels).last_hidden_state


@pytest.mark.parametrize(
    ("kind", "settings", "has_cls", "registers"),
    [
        ("vit", PATCHES, True, 0),
        ("dinov2_with_registers", PATCHES | {"num_register_tokens": 4}, True, 4),
        ("clip", PAIR, True, 0),
        ("siglip", PAIR, False, 0),
    ],
)
def test_states_are_those_of_transformers_without_registers(
    kind: str,
    settings: dict[str, Any],
    has_cls: bool,
    registers: int,
    tmp_path: Path,
    pixels: Tensor,
) -> None:
    expected = states_of(save(tmp_path, kind, **settings), pixels)
    encoder = load(tmp_path)
    features = encoder(pixels)
    assert expected.shape[1] == has_cls + registers + 16
    kept = torch.cat([expected[:, :has_cls], expected[:, has_cls + registers :]], dim=1)
    torch.testing.assert_close(features.states, kept, atol=1e-6, rtol=1e-5)
    assert (encoder.has_cls, encoder.num_tokens, encoder.dim) == (has_cls, 16 + has_cls, 24)
    assert features.content.tolist() == [[False] * has_cls + [True] * 16] * 3
    assert encoder.config.architecture is not None
    tower = f"{kind}_vision_model" if settings is PAIR else kind
    assert encoder.config.architecture["model_type"] == tower


def test_a_convolutional_network_gives_the_cells_of_its_map(tmp_path: Path, pixels: Tensor) -> None:
    model = save(tmp_path, "mobilenet_v2", **MOBILENET)
    larger = torch.nn.functional.interpolate(pixels, size=(64, 96))
    encoder = load(tmp_path, preprocessing=ImagePreprocessing(height_px=64, width_px=96))
    assert encoder.grid == (2, 3)
    cells = states_of(model, larger).flatten(2).transpose(1, 2)  # row by row
    torch.testing.assert_close(encoder(larger).states, cells)


def test_patches_that_were_merged_lie_on_a_coarser_grid(pixels: Tensor) -> None:
    encoder = image_encoder("swin", **SWIN)
    output = encoder.model(pixel_values=pixels, output_hidden_states=True)
    assert output.last_hidden_state.shape == (3, 64, 12)  # 16 x 16 patches, 2 x 2 to a token
    facts = (encoder.grid, encoder.has_cls, encoder.dim, encoder.num_tokens)
    assert facts == ((8, 8), False, 12, 64)
    torch.testing.assert_close(encoder(pixels).states, output.last_hidden_state)
    boxes = encoder.region_boxes(100, 100)
    np.testing.assert_allclose(boxes[9], [0.125, 0.125, 0.25, 0.25], atol=1e-6)

    config = dataclasses.replace(encoder.config, layers=(0,))
    finer = HFImageEncoder(config, model=encoder.model).eval()
    first = torch.nn.functional.layer_norm(output.hidden_states[0], (6,)).view(3, 16, 16, 6)
    states = finer(pixels).states.view(3, 8, 8, 4 * 6 + 12)
    for row, column in ((0, 0), (3, 5), (7, 7)):
        cell = first[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
        found = states[:, row, column, :24].view(3, 6, 2, 2)  # the four patches of each channel
        torch.testing.assert_close(found, cell.permute(0, 3, 1, 2))


def test_the_preprocessing_comes_with_the_source(tmp_path: Path) -> None:
    save(tmp_path, "vit", **PATCHES)
    sizes: dict[str, Any] = {"shortest_edge": 40}, {"height": 32, "width": 32}
    CLIPImageProcessor(size=sizes[0], crop_size=sizes[1]).save_pretrained(tmp_path)
    assert load(tmp_path).preprocessing.shortest_edge_px == 40
    own = ImagePreprocessing(height_px=32, width_px=32, resample="lanczos")
    assert load(tmp_path, preprocessing=own).preprocessing == own


@pytest.mark.parametrize("level", [(4, 6), (2, 3), (3, 4), (1, 1), (5, 6)])
def test_a_region_of_a_level_averages_the_cells_of_its_box(level: tuple[int, int]) -> None:
    cells = torch.randn(2, 3, 4, 6, generator=torch.Generator().manual_seed(0))
    regions, boxes = pooled_cells(cells, [level]), pooled_boxes((4, 6), [level])
    assert regions.shape == (2, level[0] * level[1], 3)
    for region, (x0, y0, x1, y1) in enumerate(boxes.tolist()):
        rows, columns = slice(round(4 * y0), round(4 * y1)), slice(round(6 * x0), round(6 * x1))
        torch.testing.assert_close(regions[:, region], cells[:, :, rows, columns].mean(dim=(2, 3)))


def test_a_pyramid_averages_cells(pixels: Tensor) -> None:
    plain = image_encoder("vit", **PATCHES)
    config = dataclasses.replace(plain.config, pyramid=(2, 1))
    encoder = HFImageEncoder(config, model=plain.model).eval()
    cells, states = plain(pixels).states[:, 1:].view(3, 4, 4, 24), encoder(pixels).states
    assert states.shape == (3, 1 + 4 + 1, 24)
    torch.testing.assert_close(states[:, 2], cells[:, :2, 2:].mean(dim=(1, 2)))
    torch.testing.assert_close(states[:, 5], cells.mean(dim=(1, 2)))
    assert encoder.region_boxes(100, 100).tolist() == [*QUARTERS, [0, 0, 1, 1]]


def test_boxes_of_a_cropped_photo_tile_the_crop() -> None:
    plain = image_encoder("vit", **PATCHES)
    crop = ImagePreprocessing(height_px=32, width_px=32, shortest_edge_px=32)
    encoder = HFImageEncoder(dataclasses.replace(plain.config, preprocessing=crop))
    boxes = encoder.region_boxes(200, 100)
    edges = boxes[:, 0].min(), boxes[:, 2].max(), boxes[:, 1].min(), boxes[:, 3].max()
    assert edges == pytest.approx((0.25, 0.75, 0, 1))


def test_a_region_sees_the_place_of_its_box() -> None:
    """Brighten one cell of a photo: the region of that box changes, those far away do not."""
    encoder = image_encoder("vit", **{**PATCHES, "num_hidden_layers": 0})
    boxes = encoder.region_boxes(64, 64)
    dark = Image.new("RGB", (64, 64))
    for region in (0, 6, 15):
        bright = dark.copy()
        x0, y0, x1, y1 = (int(64 * edge) for edge in boxes[region].tolist())
        bright.paste((255, 255, 255), (x0 + 4, y0 + 4, x1 - 4, y1 - 4))
        pair = torch.stack([encoder.preprocess(photo) for photo in (dark, bright)])
        states = encoder(pair).states[:, 1:]
        changed = (states[0] - states[1]).abs().amax(dim=1) > 1e-6
        assert changed.nonzero().flatten().tolist() == [region]


def test_boxes_tile_each_photo_by_its_own_grid() -> None:
    encoder = naflex()
    assert encoder.num_tokens is None
    for size in ((96, 64), (20, 200), (50, 50)):
        rows, columns = encoder.preprocess(Image.new("RGB", size)).grid
        boxes = encoder.region_boxes(*size)
        assert boxes.shape == (rows * columns, 4)
        assert boxes[1].tolist() == pytest.approx(
            [1 / columns, 0, 2 / columns, 1 / rows] if columns > 1 else [0, 1 / rows, 1, 2 / rows]
        )
        areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        assert float(areas.sum()) == pytest.approx(1)


def test_a_pyramid_averages_each_photo_by_its_own_grid(photos: list[Image.Image]) -> None:
    plain, pyramid = naflex(), naflex(pyramid=(2, 1))
    pyramid.load_state_dict(plain.state_dict())
    inputs = [plain.preprocess(photo.resize((96, 64))) for photo in photos[:1]]
    inputs.append(plain.preprocess(photos[1].resize((64, 96))))
    batch = plain.collate(inputs)
    cells, pooled = plain(batch).states, pyramid(batch).states
    assert pooled.shape == (2, pyramid.num_tokens, 12) == (2, 5, 12)
    for row, one in enumerate(inputs):
        rows, columns = one.grid
        grid = cells[row, : rows * columns].view(rows, columns, 12)
        torch.testing.assert_close(pooled[row, 4], grid.mean(dim=(0, 1)))
        assert rows % 2 == columns % 2 == 0
        quarter = grid[: rows // 2, columns // 2 :].mean(dim=(0, 1))
        torch.testing.assert_close(pooled[row, 1], quarter)
    assert pyramid.region_boxes(96, 64)[1].tolist() == QUARTERS[1]
