"""BERT for the texts of queries, without the transformers library.

Importing that library takes longer than a search. The parameters have the library's names, so that
the weights of an `hf` text encoder load as they are, and the arithmetic is the library's; settings
that this network does not know are left to it (`reads_config`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, cast

import torch
from jaxtyping import Bool, Float, Int
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from aladin_network.config import ImageEncoderConfig, TextEncoderConfig
from aladin_network.encoders.base import Features, ImageEncoder, TextBatch, TextEncoder
from aladin_network.encoders.tokenized_text import TokenizedTextEncoder, train_tokenizer
from aladin_network.errors import ConfigError

# The library's defaults of what its configuration may leave out.
_DEFAULTS: dict[str, Any] = {
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
# Settings that change nothing about an encoded text, and the only known value of others.
_WITHOUT_EFFECT = {
    "model_type",
    "attention_probs_dropout_prob",
    "classifier_dropout",
    "dtype",
    "torch_dtype",
    "gradient_checkpointing",
    "hidden_dropout_prob",
    "initializer_range",
    "pad_token_id",
    "use_cache",
}
_ONLY_VALUES: dict[str, Any] = {
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}


def reads_config(config: TextEncoderConfig) -> bool:
    """Return whether `BertTextEncoder` computes what the encoder of a checkpoint does."""
    architecture = config.architecture or {}
    if (config.name, architecture.get("model_type")) != ("hf", "bert"):
        return False
    if config.pooled or config.pad_to is not None:
        return False
    known = _DEFAULTS.keys() | _WITHOUT_EFFECT | _ONLY_VALUES.keys()
    return (
        architecture.keys() <= known
        and architecture.get("attn_implementation", "sdpa") in ("eager", "sdpa")
        and all(architecture.get(name, value) == value for name, value in _ONLY_VALUES.items())
    )


class BertTextEncoder(TokenizedTextEncoder):
    """Word-piece states of a BERT, in evaluation mode."""

    def __init__(self, config: TextEncoderConfig, tokenizer: Tokenizer) -> None:
        """Build from a configuration that `reads_config` accepts, with random weights.

        Args:
            config: Configuration of a checkpoint.
            tokenizer: Tokenizer that adds its own special tokens.

        Raises:
            ConfigError: If the architecture is too small for the tokenizer.
        """
        super().__init__(config, tokenizer)
        settings = _DEFAULTS | (config.architecture or {})
        self.model = _Bert(settings)
        self.dim = int(settings["hidden_size"])
        self._check_vocabulary(int(settings["vocab_size"]))

    @classmethod
    def from_source(
        cls,
        config: TextEncoderConfig,  # noqa: ARG003
        tokenizer: Tokenizer | None,  # noqa: ARG003
    ) -> TokenizedTextEncoder:
        """Refuse: this encoder is built from checkpoints alone.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError("text_encoder: this encoder cannot be trained")

    @staticmethod
    def learn_tokenizer(texts: Iterable[str], vocabulary_size: int) -> Tokenizer:
        """Train a word-piece tokenizer; see `train_tokenizer`."""
        return train_tokenizer(texts, vocabulary_size)

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
                "word_embeddings": nn.Embedding(int(settings["vocab_size"]), width),
                "position_embeddings": nn.Embedding(
                    int(settings["max_position_embeddings"]), width
                ),
                "token_type_embeddings": nn.Embedding(int(settings["type_vocab_size"]), width),
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
        self._heads = int(settings["num_attention_heads"])
        self._is_eager = settings["attn_implementation"] == "eager"
        own = {name: nn.Linear(width, width) for name in ("query", "key", "value")}
        self.attention = nn.ModuleDict(
            {"self": nn.ModuleDict(own), "output": _dense_and_norm(width, width, epsilon)}
        )
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, inner)})
        self.output = _dense_and_norm(inner, width, epsilon)

    def forward(
        self,
        states: Float[Tensor, "batch tokens dim"],
        mask: Bool[Tensor, "batch 1 1 tokens"] | None,
    ) -> Float[Tensor, "batch tokens dim"]:
        """Run the layer; without a mask, all tokens are real."""
        own = cast(nn.ModuleDict, self.attention["self"])
        query, key, value = (
            own[name](states).unflatten(-1, (self._heads, -1)).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        mixed = (_attend if self._is_eager else _attend_fused)(query, key, value, mask)
        mixed = mixed.transpose(1, 2).flatten(2)
        attended = _add_and_norm(self.attention["output"], mixed, states)
        inner = F.gelu(self.intermediate["dense"](attended))
        return _add_and_norm(self.output, inner, attended)


Heads = Float[Tensor, "batch heads tokens dim"]
Padding = Bool[Tensor, "batch 1 1 tokens"]


def _attend(query: Heads, key: Heads, value: Heads, mask: Padding | None) -> Heads:
    scores = query @ key.transpose(2, 3) * query.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return scores.softmax(dim=-1) @ value


def _attend_fused(query: Heads, key: Heads, value: Heads, mask: Padding | None) -> Heads:
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def _dense_and_norm(in_dim: int, out_dim: int, epsilon: float) -> nn.ModuleDict:
    norm = nn.LayerNorm(out_dim, eps=epsilon)
    return nn.ModuleDict({"dense": nn.Linear(in_dim, out_dim), "LayerNorm": norm})


def _add_and_norm(parts: nn.Module, states: Tensor, residual: Tensor) -> Tensor:
    layers = cast(nn.ModuleDict, parts)
    return layers["LayerNorm"](layers["dense"](states) + residual)


class AbsentImageEncoder(ImageEncoder):
    """The image encoder of a network of which only the half for texts was loaded.

    It has no parameters and encodes nothing.
    """

    reads = "photo"

    def __init__(
        self,
        config: ImageEncoderConfig,
        text_encoder: TextEncoder | None = None,
        *,
        dim: int = 0,
        num_tokens: int | None = None,
    ) -> None:
        """Stand for an encoder.

        Args:
            config: Configuration of a checkpoint.
            text_encoder: Text encoder of the same network; unused.
            dim: Width of the states of the encoder.
            num_tokens: Number of tokens of every photo, or None if it differs.
        """
        super().__init__(config, text_encoder)
        self.config, self.dim, self.num_tokens = config, dim, num_tokens

    @classmethod
    def from_source(
        cls, config: ImageEncoderConfig, text_encoder: TextEncoder | None = None
    ) -> ImageEncoder:
        """Refuse, as every method that needs the encoder itself."""
        return cls(config, text_encoder)._refuse()

    def preprocess(self, photo: object) -> NoReturn:  # noqa: ARG002
        """Refuse."""
        self._refuse()

    def collate(self, inputs: object) -> NoReturn:  # noqa: ARG002
        """Refuse."""
        self._refuse()

    def forward(self, batch: object) -> NoReturn:  # noqa: ARG002
        """Refuse."""
        self._refuse()

    def region_boxes(self, width_px: int, height_px: int) -> NoReturn:  # noqa: ARG002
        """Refuse."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ConfigError("this network was loaded for texts only, without its image encoder")
