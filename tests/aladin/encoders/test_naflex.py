"""Photos of any shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from aladin_network.config import ImageEncoderConfig, ImagePreprocessing
from aladin_network.encoders.naflex import NaFlexImageEncoder
from aladin_network.errors import ConfigError

ARCHITECTURE = {
    "model_type": "siglip2_vision_model",
    "hidden_size": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "patch_size": 8,
    "num_patches": 16,
}


def build(**settings: Any) -> NaFlexImageEncoder:
    torch.manual_seed(0)
    options: dict[str, Any] = {
        "architecture": ARCHITECTURE,
        "preprocessing": ImagePreprocessing(max_patches=24),
    }
    config = ImageEncoderConfig(name="naflex", **(options | settings))
    return NaFlexImageEncoder.from_source(config).eval()


def picture(width: int, height: int) -> Image.Image:
    rng = np.random.default_rng(width)
    return Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))


@pytest.mark.parametrize("pooled", [False, True])
def test_neither_padding_nor_other_photos_change_a_state(pooled: bool) -> None:
    encoder = build(pooled=pooled)
    inputs = [encoder.preprocess(picture(*size)) for size in ((96, 64), (24, 24), (20, 200))]
    batch = encoder.collate(inputs)
    together = encoder(batch._replace(values=batch.values + 9.0 * ~batch.mask.unsqueeze(-1)))
    for row, one in enumerate(inputs):
        alone = encoder(encoder.collate([one]))
        count = one.grid[0] * one.grid[1] + int(pooled)
        assert together.mask[row].sum() == alone.mask.sum() == count
        assert together.content[row].sum() == count - int(pooled)
        torch.testing.assert_close(
            together.states[row, :count], alone.states[0], atol=1e-5, rtol=1e-4
        )
    assert encoder.num_tokens is None


def test_boxes_tile_each_photo_by_its_own_grid() -> None:
    encoder = build()
    for size in ((96, 64), (20, 200), (50, 50)):
        rows, columns = encoder.preprocess(picture(*size)).grid
        boxes = encoder.region_boxes(*size)
        assert boxes.shape == (rows * columns, 4)
        assert boxes[1].tolist() == pytest.approx(
            [1 / columns, 0, 2 / columns, 1 / rows] if columns > 1 else [0, 1 / rows, 1, 2 / rows]
        )
        areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        assert float(areas.sum()) == pytest.approx(1)


def test_a_pyramid_averages_each_photo_by_its_own_grid() -> None:
    plain, pyramid = build(), build(pyramid=(2, 1))
    pyramid.load_state_dict(plain.state_dict())
    inputs = [plain.preprocess(picture(*size)) for size in ((96, 64), (64, 96))]
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
    assert pyramid.region_boxes(96, 64)[1].tolist() == [0.5, 0, 1, 0.5]


def test_impossible_naflex_encoders_are_refused() -> None:
    with pytest.raises(ConfigError, match="vision tower of a siglip2 network"):
        build(architecture={"model_type": "vit"})
    with pytest.raises(ConfigError, match="no layers beside"):
        build(layers=(1,))
    with pytest.raises(ConfigError, match="need max_patches"):
        build(preprocessing=ImagePreprocessing())
    with pytest.raises(ConfigError, match=r"pyramid \(0,\)"):
        build(pyramid=(0,))
