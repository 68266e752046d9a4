"""A small collection that is indexed in less than a second.

It has random photos and texts, and an untrained network of a few thousand parameters.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_network.checkpoint import save_checkpoint
from aladin_network.config import (
    AlignmentHeadConfig,
    ImageEncoderConfig,
    ImagePreprocessing,
    MatchingHeadConfig,
    ModelConfig,
    TextEncoderConfig,
    TowerConfig,
    TrunkConfig,
)
from aladin_network.model import AladinModel, text_encoder_class

_WORDS = ["a", "red", "green", "blue", "dog", "bird", "boat", "runs", "flies", "by", "the", "sea"]
_PHOTO_PX = 64


def small_model(
    embedding_dim: int, token_dim: int, words: str = "two dogs run on the green grass"
) -> AladinModel:
    """Make a network whose encodings have these sizes, the same at every call.

    Args:
        embedding_dim: Size of an embedding.
        token_dim: Size of a token.
        words: Words that its tokenizer knows.
    """
    torch.manual_seed(0)
    trunk = TrunkConfig(width=16, layers=1, heads=2, feedforward=32)
    config = ModelConfig(
        image_encoder=ImageEncoderConfig(
            architecture={
                "model_type": "vit",
                "hidden_size": 24,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "intermediate_size": 32,
                "image_size": 32,
                "patch_size": 8,
            },
            preprocessing=ImagePreprocessing(height_px=32, width_px=32),
        ),
        text_encoder=TextEncoderConfig(
            architecture={
                "model_type": "bert",
                "hidden_size": 20,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "intermediate_size": 32,
                "max_position_embeddings": 64,
            },
            max_tokens=32,
        ),
        image_tower=TowerConfig(trunk=trunk),
        text_tower=TowerConfig(trunk=trunk),
        alignment=AlignmentHeadConfig(dim=token_dim),
        matching=MatchingHeadConfig(layers=1, heads=2, dim=embedding_dim),
    )
    tokenizer = text_encoder_class(config).learn_tokenizer([words], 400)
    return AladinModel.create(config, tokenizer).eval()


def save_small_network(folder: Path) -> None:
    """Write the checkpoint of a network of some thousand random weights."""
    save_checkpoint(folder, small_model(16, 16, " ".join(_WORDS)))


def write_photos(folder: Path, count: int) -> list[ImageItem]:
    """Write photos of random pixels, one of them broken, and describe them."""
    folder.mkdir()
    random = np.random.default_rng(0)
    items: list[ImageItem] = []
    for number in range(count):
        path = folder / f"{number:04d}.png"
        pixels = random.integers(0, 256, (_PHOTO_PX, _PHOTO_PX, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path, compress_level=0)
        metadata = {"number": number, "parity": ("even", "odd")[number % 2], "tags": ["a", "b"]}
        items.append(ImageItem(id=f"photo {number}", path=path, uri=path.name, metadata=metadata))
    items[count // 2].path.write_bytes(b"broken")
    return items


def make_texts(count: int) -> list[TextItem]:
    """Make texts of one to eight words."""
    random = np.random.default_rng(1)
    return [
        TextItem(id=f"text {number}", text=" ".join(random.choice(_WORDS, 1 + number % 8)))
        for number in range(count)
    ]
