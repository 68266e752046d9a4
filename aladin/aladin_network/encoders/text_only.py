"""Encoding of texts without the transformers library, for commands that answer one query.

Importing that library takes 2.4 s of CPU time, more than the rest of ``aladin search``: 1.7 s with
the networks here, 4.1 s with the library's, on two cores. So the text towers of the usual indexes,
BERT and CLIP, are here a second time, for inference on a CPU. Their parameters have the library's
names, so that the weights of an `hf` text encoder load as they are, and they compute what the
library does; a configuration with any setting that they do not know is left to the library
(`TextOnlyEncoder.reads`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, NoReturn

import torch
from jaxtyping import Bool, Float
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from aladin_network.config import ImageEncoderConfig, TextEncoderConfig
from aladin_network.encoders.base import ImageEncoder, TextEncoder
from aladin_network.encoders.tokenized_text import TokenizedTextEncoder, train_tokenizer
from aladin_network.errors import ConfigError

# Settings of the library that change nothing about an encoded text.
_WITHOUT_EFFECT = {
    "model_type",
    "dtype",
    "torch_dtype",
    "gradient_checkpointing",
    "initializer_range",
    "pad_token_id",
}


class TextOnlyEncoder(TokenizedTextEncoder):
    """Base of the text encoders of this package that need no transformers library.

    Attributes:
        MODEL_TYPE: Name of the architecture in the library.
        POOLED: Whether the encoder is the tower of a dual encoder, see `ImageEncoderConfig.pooled`.
        DEFAULTS: The library's defaults of the settings that the network depends on.
        WITHOUT_EFFECT: Settings of this architecture that change nothing about an encoded text.
        ONLY_VALUES: The only known value of other settings.
    """

    MODEL_TYPE: ClassVar[str]
    POOLED: ClassVar[bool]
    DEFAULTS: ClassVar[Mapping[str, Any]]
    WITHOUT_EFFECT: ClassVar[frozenset[str]]
    ONLY_VALUES: ClassVar[Mapping[str, Any]]

    def __init__(self, config: TextEncoderConfig, tokenizer: Tokenizer) -> None:
        """Build from a configuration for which `reads` is true, without weights.

        They have to be assigned: ``load_state_dict(..., assign=True)``.

        Args:
            config: Configuration of a checkpoint.
            tokenizer: Tokenizer that adds its own special tokens.

        Raises:
            ConfigError: If the architecture is too small for the tokenizer.
        """
        super().__init__(config, tokenizer)
        settings = {**self.DEFAULTS, **(config.architecture or {})}
        self.model = self.build(settings)
        self.dim = int(settings["hidden_size"])
        self._check_vocabulary(int(settings["vocab_size"]))

    @classmethod
    def reads(cls, config: TextEncoderConfig) -> bool:
        """Return whether this encoder computes what the `hf` encoder of a checkpoint does."""
        architecture = config.architecture or {}
        if (config.name, architecture.get("model_type")) != ("hf", cls.MODEL_TYPE):
            return False
        if config.pooled != cls.POOLED or config.pad_to is not None:
            return False
        known = cls.DEFAULTS.keys() | _WITHOUT_EFFECT | cls.WITHOUT_EFFECT | cls.ONLY_VALUES.keys()
        return (
            architecture.keys() <= known
            and architecture.get("attn_implementation", "sdpa") in ("eager", "sdpa")
            and all(
                architecture.get(name, value) == value for name, value in cls.ONLY_VALUES.items()
            )
        )

    @abstractmethod
    def build(self, settings: Mapping[str, Any]) -> nn.Module:
        """Return the network without weights; its parameters have the library's names.

        Args:
            settings: All settings of the architecture.
        """

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


def empty_linear(in_dim: int, out_dim: int) -> nn.Linear:
    """Return a layer whose tensors are on the meta device: a checkpoint's are assigned to it."""
    return nn.Linear(in_dim, out_dim, device="meta")


def empty_embedding(rows: int, dim: int) -> nn.Embedding:
    """Return an embedding without initial values: drawing them takes longer than a query."""
    return nn.Embedding.from_pretrained(torch.empty(rows, dim))


Heads = Float[Tensor, "batch heads tokens dim"]
# True where a query token (third axis) attends to a key token (fourth axis).
Attended = Bool[Tensor, "#batch #heads #tokens tokens"]


def attend(
    query: Float[Tensor, "batch tokens dim"],
    key: Float[Tensor, "batch tokens dim"],
    value: Float[Tensor, "batch tokens dim"],
    attended: Attended | None,
    settings: Mapping[str, Any],
) -> Float[Tensor, "batch tokens dim"]:
    """Return the attention of all heads, by the implementation that the settings name.

    Args:
        query: Queries of all heads.
        key: Keys of all heads.
        value: Values of all heads.
        attended: Which tokens each token attends to, or None if all do to all.
        settings: Settings of the architecture.
    """
    heads = int(settings["num_attention_heads"])
    query, key, value = (
        part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (query, key, value)
    )
    is_eager = settings["attn_implementation"] == "eager"
    mixed = (_attend_eagerly if is_eager else _attend_fused)(query, key, value, attended)
    return mixed.transpose(1, 2).flatten(2)


def _attend_eagerly(query: Heads, key: Heads, value: Heads, attended: Attended | None) -> Heads:
    scores = query @ key.transpose(2, 3) * query.shape[-1] ** -0.5
    if attended is not None:
        scores = scores.masked_fill(~attended, torch.finfo(scores.dtype).min)
    return scores.softmax(dim=-1) @ value


def _attend_fused(query: Heads, key: Heads, value: Heads, attended: Attended | None) -> Heads:
    return F.scaled_dot_product_attention(query, key, value, attn_mask=attended)


# Matrices that may come directly after the image encoder: the trunk's or else a head's.
_AFTER_IMAGE_ENCODER = (
    "image.trunk.projection.weight",
    "alignment.projections.image.weight",
    "matching.projections.image.weight",
)


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
    def beside(
        cls, weights: Mapping[str, Tensor], config: ImageEncoderConfig
    ) -> AbsentImageEncoder:
        """Stand for the image encoder of a network whose other weights are given.

        Args:
            weights: Weights of the network, by name.
            config: Configuration of its image encoder.

        Raises:
            StopIteration: If no weights tell the width of the encoder's states.
        """
        positions = weights.get("image.positions")
        return cls(
            config,
            dim=next(weights[name].shape[1] for name in _AFTER_IMAGE_ENCODER if name in weights),
            num_tokens=None if positions is None else positions.shape[0],
        )

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
