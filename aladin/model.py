"""The two-headed network: every item is encoded once, before any pair is scored."""

from __future__ import annotations

import dataclasses
from typing import Literal, TypeVar, assert_never

from jaxtyping import Float
from tokenizers import Tokenizer
from torch import Tensor, nn

from aladin.config import ModelConfig
from aladin.encoders import IMAGE_ENCODERS, TEXT_ENCODERS
from aladin.encoders.base import Features, ImageBatch, ImageEncoder, TextBatch
from aladin.encoders.tokenized_text import TokenizedTextEncoder
from aladin.encoding import Encoding
from aladin.errors import ConfigError
from aladin.heads.alignment import AlignmentHead
from aladin.heads.attention import AttentionHead
from aladin.heads.matching import MatchingHead
from aladin.heads.tower_start import fit_to_towers, start_as
from aladin.scoring import (
    ScoreName,
    alignment_scores,
    matching_scores,
    paired_alignment_scores,
    paired_matching_scores,
)
from aladin.tower import Tower

T = TypeVar("T")


class AladinModel(nn.Module):
    """Image tower, text tower, alignment head, matching head and perhaps an attention head.

    The two modalities never see each other before the score.
    """

    def __init__(
        self, config: ModelConfig, image_encoder: ImageEncoder, text_encoder: TokenizedTextEncoder
    ) -> None:
        """Put the towers and heads on two encoders.

        Args:
            config: the towers and heads; its encoder parts are replaced by the encoders' own.
            image_encoder: with its weights.
            text_encoder: with its weights and tokenizer.

        Raises:
            ConfigError: an impossible combination.
        """
        super().__init__()
        self.config = dataclasses.replace(
            config, image_encoder=image_encoder.config, text_encoder=text_encoder.config
        )
        self.image = Tower(image_encoder, config.image_tower, image_encoder.num_tokens)
        self.text = Tower(text_encoder, config.text_tower)
        widths = self.image.width, self.text.width
        if config.alignment.dim is None and widths[0] != widths[1]:
            raise ConfigError(
                f"alignment: the towers' widths differ ({widths[0]} and {widths[1]}); give a dim"
            )
        self.alignment = AlignmentHead(config.alignment, *widths)
        self.matching = MatchingHead(config.matching, *widths)
        if config.attention is not None and not config.alignment.normalize:
            raise ConfigError("attention: it compares unit vectors; set alignment.normalize")
        if config.attention is not None and self.alignment.zero_tokens:
            raise ConfigError("attention: it would attend to zeros; set alignment.empty_fill")
        self.attention = (
            AttentionHead(config.attention, self.alignment.dim) if config.attention else None
        )

    @classmethod
    def create(cls, config: ModelConfig, tokenizer: Tokenizer | None = None) -> AladinModel:
        """Build a network for training: pretrained encoders are loaded, the rest is random.

        Args:
            config: of a recipe.
            tokenizer: for a text encoder that starts at random.

        Raises:
            ConfigError: an unknown encoder or an impossible combination.
            CheckpointError: a pretrained encoder cannot be loaded.
        """
        # The image encoder comes second: it may share the text encoder's weights.
        text_encoder = text_encoder_class(config).from_source(config.text_encoder, tokenizer)
        image_encoder = image_encoder_class(config).from_source(config.image_encoder, text_encoder)
        return cls.on_encoders(config, image_encoder, text_encoder)

    @classmethod
    def on_encoders(
        cls, config: ModelConfig, image_encoder: ImageEncoder, text_encoder: TokenizedTextEncoder
    ) -> AladinModel:
        """Put new towers and heads on two encoders: random ones, or as their sources' projections.

        Args:
            config: the towers and heads.
            image_encoder: with its weights.
            text_encoder: with its weights and tokenizer.

        Raises:
            ConfigError: an impossible combination.
        """
        config, projections = fit_to_towers(
            config, image_encoder.projection, text_encoder.projection
        )
        model = cls(config, image_encoder, text_encoder)
        if projections is not None and config.matching.start == "towers":
            start_as(model.matching.projections, projections)
        if projections is not None and config.alignment.start == "towers":
            start_as(model.alignment.projections, projections)
        return model

    def encode_images(self, batch: ImageBatch | Features) -> Encoding:
        """Encode collated photos, or the image encoder's cached output."""
        return self._heads(self.image(batch), "image")

    def encode_texts(self, batch: TextBatch | Features) -> Encoding:
        """Encode tokenised texts, or the text encoder's cached output."""
        return self._heads(self.text(batch), "text")

    @property
    def score_names(self) -> tuple[ScoreName, ...]:
        """The heads that this network has."""
        own = ("matching", "alignment")
        return own if self.attention is None else (*own, "attention")

    def scores(
        self, name: ScoreName, images: Encoding, texts: Encoding
    ) -> Float[Tensor, "images texts"]:
        """Score all pairs of two batches by one head, chunked to the memory budget.

        Raises:
            ConfigError: the network has no such head.
        """
        match name:
            case "matching":
                return matching_scores(images, texts)
            case "alignment":
                return self.alignment_scores(images, texts)
            case "attention":
                return self._attention_head()(images, texts)
            case _:
                assert_never(name)

    def paired_scores(
        self, name: ScoreName, images: Encoding, texts: Encoding
    ) -> Float[Tensor, " pairs"]:
        """Score each image with the text in its row: the diagonal of `scores`.

        Raises:
            ConfigError: the network has no such head.
            ShapeError: the batches differ in length.
        """
        match name:
            case "matching":
                return paired_matching_scores(images, texts)
            case "alignment":
                return paired_alignment_scores(images, texts)
            case "attention":
                return self._attention_head().paired(images, texts)
            case _:
                assert_never(name)

    def alignment_scores(self, images: Encoding, texts: Encoding) -> Float[Tensor, "images texts"]:
        """Score all pairs by the alignment head's rule."""
        return alignment_scores(images, texts)

    def _attention_head(self) -> AttentionHead:
        if self.attention is None:
            raise ConfigError("attention: this network has no such head")
        return self.attention

    def _heads(self, features: Features, modality: Literal["image", "text"]) -> Encoding:
        tokens, mask = self.alignment(features, modality)
        return Encoding(self.matching(features, modality), tokens, mask)


def image_encoder_class(config: ModelConfig) -> type[ImageEncoder]:
    """Look an image encoder up by its configured name."""
    return _look_up(IMAGE_ENCODERS, config.image_encoder.name, "image_encoder")


def text_encoder_class(config: ModelConfig) -> type[TokenizedTextEncoder]:
    """Look a text encoder up by its configured name."""
    return _look_up(TEXT_ENCODERS, config.text_encoder.name, "text_encoder")


def _look_up(registry: dict[str, T], name: str, where: str) -> T:
    if name not in registry:
        raise ConfigError(f"{where}.name: unknown {name!r}, known are {sorted(registry)}")
    return registry[name]
