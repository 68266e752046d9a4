"""A network of some thousand parameters, for an index has to have one; untrained."""

from __future__ import annotations

import torch

from aladin.config import (
    AlignmentHeadConfig,
    ImageEncoderConfig,
    ImagePreprocessing,
    MatchingHeadConfig,
    ModelConfig,
    TextEncoderConfig,
    TowerConfig,
    TrunkConfig,
)
from aladin.model import AladinModel, text_encoder_class


def small_model(
    embedding_dim: int, token_dim: int, words: str = "two dogs run on the green grass"
) -> AladinModel:
    """Make a network whose encodings have these sizes, the same at every call.

    Args:
        embedding_dim: size of an embedding.
        token_dim: size of a token.
        words: that its tokenizer knows.
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
