"""Small random encoders, alone, in pairs and in networks, and inputs for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tokenizers import Tokenizer
from transformers import (
    AutoConfig,
    AutoModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    ViTImageProcessor,
)

from aladin_network.config import (
    AlignmentHeadConfig,
    ImageEncoderConfig,
    ImagePreprocessing,
    MatchingHeadConfig,
    TextEncoderConfig,
    TowerConfig,
)
from aladin_network.encoders.hf_image import HFImageEncoder
from aladin_network.encoders.naflex import NaFlexImageEncoder
from aladin_network.encoders.vocabulary import train_tokenizer
from aladin_network.model import AladinModel
from aladin_network.photos.regions import RegionSet
from tests.conftest import tiny_model
from tests.dual_encoders import Family, SavedDualEncoder, save_dual_encoder

CAPTIONS = ["a small red circle above a striped blue square", "two dogs run on the green grass"]
SIZES = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
PATCHES = {"hidden_size": 24, "image_size": 32, "patch_size": 8, **SIZES}
WORDS = {"hidden_size": 20, "max_position_embeddings": 64, **SIZES}
# A wide start, so that something is left of the photo after seventeen blocks.
MOBILENET = {"depth_multiplier": 0.25, "min_depth": 4, "initializer_range": 0.5}
RESNET = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
SWIN = {
    "image_size": 32,
    "patch_size": 2,
    "embed_dim": 6,
    "depths": [1, 1],
    "num_heads": [1, 2],
    "window_size": 4,
}
SIGLIP2 = {"hidden_size": 12, "patch_size": 8, "num_patches": 16, **SIZES}
BERT = {
    "model_type": "bert",
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
    # A wide start, so that what is attended to makes a difference.
    "initializer_range": 0.5,
}


@pytest.fixture(scope="session")
def dual_encoder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Family], SavedDualEncoder]:
    """A random dual encoder of a family, saved once for all tests."""
    saved: dict[Family, SavedDualEncoder] = {}

    def of(family: Family) -> SavedDualEncoder:
        if family not in saved:
            folder = tmp_path_factory.mktemp("dual") / family
            saved[family] = save_dual_encoder(family, folder)
        return saved[family]

    return of


@pytest.fixture(scope="session")
def photos() -> list[Image.Image]:
    """Smooth random photos of several shapes."""
    rng = np.random.default_rng(5)
    sizes = [(96, 72), (72, 96), (40, 40), (130, 50)]
    coarse = [Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)) for _ in sizes]
    return [
        photo.resize(size, Image.Resampling.BICUBIC)
        for photo, size in zip(coarse, sizes, strict=True)
    ]


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """A vocabulary of the captions' word pieces."""
    return train_tokenizer(CAPTIONS, 200)


def save(
    folder: Path, model_type: str, tokenizer: Tokenizer | None = None, **settings: Any
) -> PreTrainedModel:
    """Save a random network as the hub has one; its photos have 32 x 32 px."""
    torch.manual_seed(0)
    model = AutoModel.from_config(AutoConfig.for_model(model_type, **settings)).eval()
    model.save_pretrained(folder)
    if tokenizer is None:
        ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    else:
        special = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]"}
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, **{f"{name}_token": each for name, each in special.items()}
        ).save_pretrained(folder)
    return model


def image_encoder(model_type: str, px: int = 32, /, **architecture: Any) -> HFImageEncoder:
    """A random encoder of photos that were not loaded from anywhere."""
    torch.manual_seed(0)
    preprocessing = ImagePreprocessing(height_px=px, width_px=px)
    architecture = {"model_type": model_type, **architecture}
    config = ImageEncoderConfig(architecture=architecture, preprocessing=preprocessing)
    return HFImageEncoder(config).eval()


def naflex(**settings: Any) -> NaFlexImageEncoder:
    """A random encoder of photos of any shape."""
    torch.manual_seed(0)
    options: dict[str, Any] = {
        "architecture": {"model_type": "siglip2_vision_model", **SIGLIP2},
        "preprocessing": ImagePreprocessing(max_patches=24),
    }
    config = ImageEncoderConfig(name="naflex", **(options | settings))
    return NaFlexImageEncoder.from_source(config).eval()


def region_sets() -> list[RegionSet]:
    """Photos with 3, 2, 1 and 8 regions of 5 numbers."""
    rng = np.random.default_rng(3)
    labels = [("dog", "red circle", "grass"), (), ("blue square",), tuple("abcdefgh")]
    return [
        RegionSet(rng.normal(size=(count, 5)).astype(np.float32), labels=of_photo)
        for count, of_photo in zip((3, 2, 1, 8), labels, strict=True)
    ]


def region_model(frozen: bool = False, **changes: Any) -> AladinModel:
    """A network whose heads read the encoders' own states, as ALADIN's."""
    options = changes.pop("architecture", {})
    parts: dict[str, Any] = {
        "image_encoder": ImageEncoderConfig(
            name="regions",
            architecture={"region_dim": 5, "max_regions": 6, "max_label_tokens": 7, **options},
            frozen=frozen,
        ),
        "text_encoder": TextEncoderConfig(architecture=BERT, max_tokens=24, frozen=frozen),
        "image_tower": TowerConfig(trunk=None),
        "text_tower": TowerConfig(trunk=None),
        "alignment": AlignmentHeadConfig(dim=None),
        "matching": MatchingHeadConfig(layers=1, heads=2),
    }
    return tiny_model(**(parts | changes))
