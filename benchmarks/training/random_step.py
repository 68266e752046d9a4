"""A network with random weights and random batches, for measuring training steps."""

from __future__ import annotations

import torch
from torch import Tensor

from aladin_network.config import (
    AlignmentHeadConfig,
    ImageEncoderConfig,
    ImagePreprocessing,
    MatchingHeadConfig,
    ModelConfig,
    TextEncoderConfig,
)
from aladin_network.encoders.base import TextBatch
from aladin_network.model import AladinModel
from aladin_training.batches.batch import Batch, OfflineBatch
from benchmarks.lib.small_collection import random_model

_WORDS = 20
_PX = 64


def random_network() -> AladinModel:
    """Return a network with trained encoders: ViT of 6 layers, BERT of 3, of width 192."""
    config = ModelConfig(
        image_encoder=ImageEncoderConfig(
            architecture={
                "model_type": "vit",
                "hidden_size": 192,
                "num_hidden_layers": 6,
                "num_attention_heads": 3,
                "intermediate_size": 768,
                "image_size": _PX,
                "patch_size": 16,
            },
            preprocessing=ImagePreprocessing(height_px=_PX, width_px=_PX),
        ),
        text_encoder=TextEncoderConfig(
            architecture={
                "model_type": "bert",
                "hidden_size": 192,
                "num_hidden_layers": 3,
                "num_attention_heads": 3,
                "intermediate_size": 768,
                "max_position_embeddings": 64,
            }
        ),
        alignment=AlignmentHeadConfig(dim=64),
        matching=MatchingHeadConfig(layers=1, heads=4),
    )
    return random_model(config, ["a red circle on the grass"], vocabulary=100).train()


def random_batch(size: int, *, offline: bool = False) -> Batch:
    """Return a batch of random photos, each with a random text of 20 tokens.

    Args:
        size: Number of photos.
        offline: Add as many of each kind of mined negatives (AOQ).
    """
    generator = torch.Generator().manual_seed(0)
    batch = Batch(
        images=_photos(size, generator),
        texts=_texts(size, generator),
        negatives=~torch.eye(size, dtype=torch.bool),
    )
    if not offline:
        return batch
    negatives = OfflineBatch(
        images_bar=_photos(size, generator),
        texts_bar=_texts(size, generator),
        images_tilde=_photos(size, generator),
        texts_tilde=_texts(size, generator),
        cross=torch.ones(size, dtype=torch.bool),
    )
    return batch._replace(offline=negatives)


def _photos(size: int, generator: torch.Generator) -> Tensor:
    return torch.randn(size, 3, _PX, _PX, generator=generator)


def _texts(size: int, generator: torch.Generator) -> TextBatch:
    ids = torch.randint(5, 30, (size, _WORDS), generator=generator)
    mask = torch.ones(size, _WORDS, dtype=torch.bool)
    content = mask.clone()
    content[:, [0, -1]] = False
    return TextBatch(ids, mask, content)
