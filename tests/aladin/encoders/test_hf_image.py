"""The `hf` image encoder on small random networks that the tests save and load themselves."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import (
    AutoConfig,
    AutoModel,
    CLIPImageProcessor,
    PreTrainedModel,
    ViTImageProcessor,
)

from aladin_network.config import ImageEncoderConfig, ImagePreprocessing
from aladin_network.encoders.base import ImageEncoder
from aladin_network.encoders.hf_image import HFImageEncoder
from aladin_network.errors import CheckpointError, ConfigError

SMALL = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "image_size": 32,
    "patch_size": 8,
}
# A wide start, so that something is left of the photo after seventeen blocks.
MOBILENET = {"depth_multiplier": 0.25, "min_depth": 4, "initializer_range": 0.5}
TEXT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 50}


def save(folder: Path, model_type: str, **settings: Any) -> PreTrainedModel:
    """Save a random network with the preprocessing of 32 x 32 px; returns it in eval mode."""
    torch.manual_seed(0)
    model = AutoModel.from_config(AutoConfig.for_model(model_type, **settings)).eval()
    model.save_pretrained(folder)
    ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    return model


def load(folder: Path, **settings: Any) -> HFImageEncoder:
    return HFImageEncoder.from_source(ImageEncoderConfig(source=str(folder), **settings)).eval()


@pytest.fixture
def pixels() -> torch.Tensor:
    """Three random preprocessed photos."""
    return torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def states_of(model: torch.nn.Module, pixels: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return model(pixel_values=pixels).last_hidden_state


def test_vit_gives_its_cls_and_its_patches(tmp_path: Path, pixels: torch.Tensor) -> None:
    model = save(tmp_path, "vit", **SMALL)
    encoder = load(tmp_path)
    assert isinstance(encoder, ImageEncoder)
    features = encoder(pixels)
    torch.testing.assert_close(features.states, states_of(model, pixels))
    assert features.states.shape == (3, encoder.num_tokens, encoder.dim) == (3, 17, 24)
    assert features.mask.all()
    assert features.content.tolist() == [[False] + [True] * 16] * 3


def test_register_tokens_are_dropped(tmp_path: Path, pixels: torch.Tensor) -> None:
    model = save(tmp_path, "dinov2_with_registers", num_register_tokens=4, **SMALL)
    features = load(tmp_path)(pixels)
    expected = states_of(model, pixels)
    assert expected.shape[1] == 1 + 4 + 16
    torch.testing.assert_close(features.states[:, 0], expected[:, 0])
    torch.testing.assert_close(features.states[:, 1:], expected[:, 5:])
    assert features.content.sum() == 3 * 16


@pytest.mark.parametrize(("kind", "has_cls"), [("clip", True), ("siglip", False)])
def test_the_vision_tower_of_a_pair(
    tmp_path: Path, pixels: torch.Tensor, kind: str, has_cls: bool
) -> None:
    model = save(tmp_path, kind, vision_config=SMALL, text_config=TEXT)
    encoder = load(tmp_path)
    features = encoder(pixels)
    torch.testing.assert_close(
        features.states, states_of(model.vision_model, pixels), atol=1e-6, rtol=1e-5
    )
    assert (encoder.has_cls, encoder.num_tokens) == (has_cls, 16 + has_cls)
    assert features.content.sum() == 3 * 16
    assert encoder.config.architecture is not None
    assert encoder.config.architecture["model_type"] == f"{kind}_vision_model"


def test_a_convolutional_network_gives_the_cells_of_its_map(
    tmp_path: Path, pixels: torch.Tensor
) -> None:
    model = save(tmp_path, "mobilenet_v2", **MOBILENET)
    larger = torch.nn.functional.interpolate(pixels, size=(64, 96))
    encoder = load(tmp_path, preprocessing=ImagePreprocessing(height_px=64, width_px=96))
    features = encoder(larger)
    expected = states_of(model, larger)  # (3, dim, 2, 3)
    assert encoder.grid == (2, 3)
    for row in range(2):
        for column in range(3):
            torch.testing.assert_close(
                features.states[:, 3 * row + column], expected[:, :, row, column]
            )
    assert features.content.all()


SWIN = {
    "model_type": "swin",
    "image_size": 32,
    "patch_size": 2,
    "embed_dim": 6,
    "depths": [1, 1],
    "num_heads": [1, 2],
    "window_size": 4,
}


def test_patches_that_were_merged_lie_on_a_coarser_grid(pixels: torch.Tensor) -> None:
    preprocessing = ImagePreprocessing(height_px=32, width_px=32)
    config = ImageEncoderConfig(architecture=SWIN, preprocessing=preprocessing)
    encoder = HFImageEncoder(config).eval()
    output = encoder.model(pixel_values=pixels, output_hidden_states=True)
    assert output.last_hidden_state.shape == (3, 64, 12)  # 16 x 16 patches, 2 x 2 to a token
    assert (encoder.grid, encoder.has_cls, encoder.dim, encoder.num_tokens) == (
        (8, 8),
        False,
        12,
        64,
    )
    torch.testing.assert_close(encoder(pixels).states, output.last_hidden_state)
    boxes = encoder.region_boxes(100, 100)
    np.testing.assert_allclose(boxes[9], [0.125, 0.125, 0.25, 0.25], atol=1e-6)

    finer = HFImageEncoder(dataclasses.replace(config, layers=(0,)), model=encoder.model).eval()
    first = torch.nn.functional.layer_norm(output.hidden_states[0], (6,)).view(3, 16, 16, 6)
    states = finer(pixels).states.view(3, 8, 8, 4 * 6 + 12)
    for row, column in ((0, 0), (3, 5), (7, 7)):
        cell = first[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
        found = states[:, row, column, :24].view(3, 6, 2, 2)  # the four patches of each channel
        torch.testing.assert_close(found, cell.permute(0, 3, 1, 2))


def test_merged_patches_that_are_on_no_grid_are_refused() -> None:
    preprocessing = ImagePreprocessing(height_px=30, width_px=32)  # 15 x 16, padded to merge
    with pytest.raises(ConfigError, match="64 tokens of 15 x 16 patches are on no grid"):
        HFImageEncoder(ImageEncoderConfig(architecture=SWIN, preprocessing=preprocessing))


def test_a_loaded_encoder_can_be_built_again_from_its_configuration(
    tmp_path: Path, pixels: torch.Tensor
) -> None:
    """What a checkpoint stores is enough: the source folder is not needed any more."""
    for kind, settings in (
        ("vit", SMALL),
        ("dinov2", SMALL),
        ("clip", {"vision_config": SMALL, "text_config": TEXT}),
        ("siglip", {"vision_config": SMALL, "text_config": TEXT}),
        ("mobilenet_v2", MOBILENET),
    ):
        folder = tmp_path / kind
        save(folder, kind, **settings)
        loaded = load(folder)
        rebuilt = HFImageEncoder(loaded.config).eval()
        rebuilt.load_state_dict(loaded.state_dict())
        expected = loaded(pixels).states.detach()
        assert float(expected.std()) > 1e-3, kind
        # Seventeen random blocks amplify the rounding of differently aligned weights.
        states = rebuilt(pixels).states.detach()
        torch.testing.assert_close(states, expected, atol=1e-3, rtol=1e-2)


def test_the_preprocessing_comes_with_the_source(tmp_path: Path) -> None:
    save(tmp_path, "vit", **SMALL)
    CLIPImageProcessor(
        size={"shortest_edge": 40}, crop_size={"height": 32, "width": 32}
    ).save_pretrained(tmp_path)
    assert load(tmp_path).preprocessing.shortest_edge_px == 40
    own = ImagePreprocessing(height_px=32, width_px=32, resample="lanczos")
    assert load(tmp_path, preprocessing=own).preprocessing == own


def test_a_pyramid_averages_cells(tmp_path: Path, pixels: torch.Tensor) -> None:
    model = save(tmp_path, "vit", **SMALL)
    encoder = load(tmp_path, pyramid=(2, 1))
    cells = states_of(model, pixels)[:, 1:].view(3, 4, 4, 24)
    features = encoder(pixels)
    assert features.states.shape == (3, 1 + 4 + 1, 24)
    torch.testing.assert_close(features.states[:, 2], cells[:, :2, 2:].mean(dim=(1, 2)))
    torch.testing.assert_close(features.states[:, 5], cells.mean(dim=(1, 2)))
    boxes = encoder.region_boxes(100, 100)
    assert boxes.tolist() == [
        [0, 0, 0.5, 0.5],
        [0.5, 0, 1, 0.5],
        [0, 0.5, 0.5, 1],
        [0.5, 0.5, 1, 1],
        [0, 0, 1, 1],
    ]
    with pytest.raises(ConfigError, match=r"pyramid \(5,\), the grid is \(4, 4\)"):
        load(tmp_path, pyramid=(5,))


def test_boxes_of_a_cropped_photo_tile_the_crop(tmp_path: Path) -> None:
    save(tmp_path, "vit", **SMALL)
    crop = ImagePreprocessing(height_px=32, width_px=32, shortest_edge_px=32)
    boxes = load(tmp_path, preprocessing=crop).region_boxes(200, 100)
    assert boxes[:, 0].min() == pytest.approx(0.25)
    assert boxes[:, 2].max() == pytest.approx(0.75)
    assert (boxes[:, 1].min(), boxes[:, 3].max()) == (0, 1)


def test_a_region_sees_the_place_of_its_box() -> None:
    """Brighten one cell of a photo: the region of that box changes, those far away do not."""
    torch.manual_seed(0)
    encoder = HFImageEncoder(
        ImageEncoderConfig(
            architecture={"model_type": "vit", **SMALL, "num_hidden_layers": 0},
            preprocessing=ImagePreprocessing(height_px=32, width_px=32),
        )
    ).eval()
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


def test_a_frozen_encoder_gets_no_gradient_and_stays_in_evaluation_mode(
    tmp_path: Path, pixels: torch.Tensor
) -> None:
    save(tmp_path, "mobilenet_v2", **MOBILENET)
    encoder = load(tmp_path, frozen=True)
    before = encoder.weights_digest()
    encoder.train()
    states = encoder(pixels).states
    assert not states.requires_grad
    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    assert encoder.weights_digest() == before  # batch norm has counted nothing
    free = load(tmp_path)
    free.train()
    assert free(pixels).states.requires_grad
    assert free.weights_digest() != before


@pytest.mark.parametrize(
    ("architecture", "reason"),
    [
        (None, "give a source or an architecture"),
        ({"hidden_size": 8}, "model_type"),
        ({"model_type": "no-such-network"}, "no-such-network"),
        ({"model_type": "vit", **SMALL, "patch_size": 256}, r"cannot take photos of 224 x 224 px"),
    ],
)
def test_impossible_architectures(architecture: dict[str, Any] | None, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        HFImageEncoder(ImageEncoderConfig(architecture=architecture))


def test_a_source_that_is_no_network(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot load a vision encoder"):
        load(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    with pytest.raises(CheckpointError, match="cannot load a vision encoder"):
        load(tmp_path)
