"""BERT for the texts of queries, without the transformers library; see `text_only`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from aladin_network.encoders.base import Features, TextBatch
from aladin_network.encoders.text_only import (
    Attended,
    TextOnlyEncoder,
    attend,
    empty_embedding,
    empty_linear,
)


class BertTextEncoder(TextOnlyEncoder):
    """Word-piece states of a BERT, in evaluation mode."""

    MODEL_TYPE: ClassVar[str] = "bert"
    POOLED: ClassVar[bool] = False
    DEFAULTS: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {
            "vocab_size": 30522,
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "intermediate_size": 3072,
            "max_position_embeddings": 512,
            "type_vocab_size": 2,
            "layer_norm_eps": 1e-12,
            "attn_implementation": "sdpa",
        }
    )
    WITHOUT_EFFECT: ClassVar[frozenset[str]] = frozenset(
        {
            "attention_probs_dropout_prob",
            "classifier_dropout",
            "hidden_dropout_prob",
            "use_cache",
        }
    )
    ONLY_VALUES: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {
            "hidden_act": "gelu",
            "position_embedding_type": "absolute",
            "is_decoder": False,
            "add_cross_attention": False,
        }
    )

    def build(self, settings: Mapping[str, Any]) -> nn.Module:
        """Return the network."""
        return _Bert(settings)

    def forward(self, batch: TextBatch) -> Features:
        """Encode tokenised texts."""
        return Features(self.model(batch.ids, batch.mask), batch.mask, batch.content)


class _Bert(nn.Module):
    """Embeddings and layers, with the library's parameter names."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__()
        width, epsilon = int(settings["hidden_size"]), float(settings["layer_norm_eps"])
        self.embeddings = nn.ModuleDict(
            {
                "word_embeddings": empty_embedding(int(settings["vocab_size"]), width),
                "position_embeddings": empty_embedding(
                    int(settings["max_position_embeddings"]), width
                ),
                "token_type_embeddings": empty_embedding(int(settings["type_vocab_size"]), width),
                "LayerNorm": nn.LayerNorm(width, eps=epsilon),
            }
        )
        layers = (_Layer(settings) for _ in range(int(settings["num_hidden_layers"])))
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(layers)})

    def forward(
        self, ids: Int[Tensor, "batch tokens"], mask: Bool[Tensor, "batch tokens"]
    ) -> Float[Tensor, "batch tokens dim"]:
        """Return the states after the last layer."""
        parts = self.embeddings
        states = parts["word_embeddings"](ids)
        states = states + parts["token_type_embeddings"](torch.zeros_like(ids))
        states = states + parts["position_embeddings"](torch.arange(ids.shape[1]).unsqueeze(0))
        states = parts["LayerNorm"](states)
        padded = None if bool(mask.all()) else mask[:, None, None, :]
        for layer in cast(nn.ModuleList, self.encoder["layer"]):
            states = layer(states, padded)
        return states


class _Layer(nn.Module):
    """Self-attention and a feed-forward network, each followed by its norm."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__()
        width, inner = int(settings["hidden_size"]), int(settings["intermediate_size"])
        epsilon = float(settings["layer_norm_eps"])
        self._settings = settings
        own = {name: empty_linear(width, width) for name in ("query", "key", "value")}
        self.attention = nn.ModuleDict(
            {"self": nn.ModuleDict(own), "output": _dense_and_norm(width, width, epsilon)}
        )
        self.intermediate = nn.ModuleDict({"dense": empty_linear(width, inner)})
        self.output = _dense_and_norm(inner, width, epsilon)

    def forward(
        self,
        states: Float[Tensor, "batch tokens dim"],
        mask: Attended | None,
    ) -> Float[Tensor, "batch tokens dim"]:
        """Run the layer; without a mask, all tokens are real."""
        own = cast(nn.ModuleDict, self.attention["self"])
        query, key, value = (own[name](states) for name in ("query", "key", "value"))
        mixed = attend(query, key, value, mask, self._settings)
        attended = _add_and_norm(self.attention["output"], mixed, states)
        inner = F.gelu(self.intermediate["dense"](attended))
        return _add_and_norm(self.output, inner, attended)


def _dense_and_norm(in_dim: int, out_dim: int, epsilon: float) -> nn.ModuleDict:
    norm = nn.LayerNorm(out_dim, eps=epsilon)
    return nn.ModuleDict({"dense": empty_linear(in_dim, out_dim), "LayerNorm": norm})


def _add_and_norm(parts: nn.Module, states: Tensor, residual: Tensor) -> Tensor:
    layers = cast(nn.ModuleDict, parts)
    return layers["LayerNorm"](layers["dense"](states) + residual)
