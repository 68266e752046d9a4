"""CLIP's text tower for the texts of queries, without the transformers library; see `text_only`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from aladin_network.config import TextEncoderConfig
from aladin_network.encoders.base import Features, TextBatch, with_front
from aladin_network.encoders.text_only import (
    Attended,
    TextOnlyEncoder,
    attend,
    empty_embedding,
    empty_linear,
)

# With this id in a configuration, the tower pools at the highest id of a text: the first releases
# of CLIP had a wrong number.
_WRONG_END = 2


class ClipTextEncoder(TextOnlyEncoder):
    """Token states of CLIP's text tower, in evaluation mode; the pooled vector comes in front."""

    MODEL_TYPE: ClassVar[str] = "clip_text_model"
    POOLED: ClassVar[bool] = True
    DEFAULTS: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {
            "vocab_size": 49408,
            "hidden_size": 512,
            "num_hidden_layers": 12,
            "num_attention_heads": 8,
            "intermediate_size": 2048,
            "max_position_embeddings": 77,
            "layer_norm_eps": 1e-5,
            "hidden_act": "quick_gelu",
            "eos_token_id": 49407,
            "attn_implementation": "sdpa",
        }
    )
    WITHOUT_EFFECT: ClassVar[frozenset[str]] = frozenset(
        {"attention_dropout", "bos_token_id", "initializer_factor", "projection_dim"}
    )
    ONLY_VALUES: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    @classmethod
    def reads(cls, config: TextEncoderConfig) -> bool:
        """Return whether this encoder computes what the `hf` encoder of a checkpoint does."""
        settings = {**cls.DEFAULTS, **(config.architecture or {})}
        known = settings["hidden_act"] in _ACTIVATIONS and isinstance(settings["eos_token_id"], int)
        return known and super().reads(config)

    def build(self, settings: Mapping[str, Any]) -> nn.Module:
        """Return the network."""
        self._end_id = int(settings["eos_token_id"])
        return _Clip(settings)

    def forward(self, batch: TextBatch) -> Features:
        """Encode tokenised texts."""
        states = self.model(batch.ids, batch.mask)
        is_end = batch.ids if self._end_id == _WRONG_END else (batch.ids == self._end_id).int()
        pooled = states[torch.arange(len(states)), is_end.argmax(dim=1)]
        return with_front(Features(states, batch.mask, batch.content), pooled)


def _quick_gelu(states: Tensor) -> Tensor:
    return states * torch.sigmoid(1.702 * states)


_ACTIVATIONS = {"quick_gelu": _quick_gelu, "gelu": F.gelu}


class _Clip(nn.Module):
    """Embeddings, layers and the last norm, with the library's parameter names."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__()
        width = int(settings["hidden_size"])
        positions = int(settings["max_position_embeddings"])
        self.embeddings = nn.ModuleDict(
            {
                "token_embedding": empty_embedding(int(settings["vocab_size"]), width),
                "position_embedding": empty_embedding(positions, width),
            }
        )
        layers = (_Layer(settings) for _ in range(int(settings["num_hidden_layers"])))
        self.encoder = nn.ModuleDict({"layers": nn.ModuleList(layers)})
        self.final_layer_norm = nn.LayerNorm(width, eps=float(settings["layer_norm_eps"]))

    def forward(
        self, ids: Int[Tensor, "batch tokens"], mask: Bool[Tensor, "batch tokens"]
    ) -> Float[Tensor, "batch tokens dim"]:
        """Return the states after the last norm; a token attends to itself and those before it."""
        count = ids.shape[1]
        states = self.embeddings["token_embedding"](ids)
        states = states + self.embeddings["position_embedding"](torch.arange(count).unsqueeze(0))
        earlier = torch.ones(count, count, dtype=torch.bool).tril()
        attended = earlier & mask[:, None, None, :]
        for layer in cast(nn.ModuleList, self.encoder["layers"]):
            states = layer(states, attended)
        return self.final_layer_norm(states)


class _Layer(nn.Module):
    """Self-attention and a feed-forward network, each of normed states."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__()
        width, inner = int(settings["hidden_size"]), int(settings["intermediate_size"])
        epsilon = float(settings["layer_norm_eps"])
        self._settings = settings
        self._activation = _ACTIVATIONS[settings["hidden_act"]]
        names = ("q_proj", "k_proj", "v_proj", "out_proj")
        self.self_attn = nn.ModuleDict({name: empty_linear(width, width) for name in names})
        self.layer_norm1 = nn.LayerNorm(width, eps=epsilon)
        self.mlp = nn.ModuleDict(
            {"fc1": empty_linear(width, inner), "fc2": empty_linear(inner, width)}
        )
        self.layer_norm2 = nn.LayerNorm(width, eps=epsilon)

    def forward(
        self, states: Float[Tensor, "batch tokens dim"], attended: Attended
    ) -> Float[Tensor, "batch tokens dim"]:
        """Run the layer."""
        own, normed = self.self_attn, self.layer_norm1(states)
        query, key, value = (own[name](normed) for name in ("q_proj", "k_proj", "v_proj"))
        states = states + own["out_proj"](attend(query, key, value, attended, self._settings))
        inner = self._activation(self.mlp["fc1"](self.layer_norm2(states)))
        return states + self.mlp["fc2"](inner)
