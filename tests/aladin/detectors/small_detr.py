"""The configuration of a small DETR."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from transformers import ResNetConfig

QUERIES = 6


def small_detr(config: Callable[..., Any], width: int) -> Any:
    """Configure a network of DETR's family, random weights large enough to tell photos apart.

    Args:
        config: its class.
        width: of the decoder's states.
    """
    # Any: the library's signatures do not name what its configurations inherit.
    backbone = cast(Any, ResNetConfig)(
        embedding_size=4,
        hidden_sizes=[4, 8],
        depths=[1, 1],
        layer_type="basic",
        out_features=["stage2"],
    )
    return config(
        use_timm_backbone=False,
        backbone=None,
        use_pretrained_backbone=False,
        backbone_config=backbone,
        d_model=width,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=8,
        decoder_ffn_dim=8,
        num_queries=QUERIES,
        num_labels=3,
        init_std=1.0,
    )
