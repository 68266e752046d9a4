"""The network: an image tower and a text tower, followed by two to four heads.

A tower is an encoder followed by trainable layers and an aggregate token. Each item is encoded
once, before any pair is scored.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from contextlib import nullcontext
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from tokenizers import Tokenizer
from torch import Tensor, nn

from aladin_network.config import ModelConfig, TowerConfig
from aladin_network.encoders.base import (
    Features,
    ImageBatch,
    ImageEncoder,
    TextBatch,
    TextEncoder,
    sent_to,
    with_front,
)
from aladin_network.encoders.readers import TokenizedTexts
from aladin_network.encoders.registry import image_encoder_class, text_encoder_class
from aladin_network.errors import ConfigError
from aladin_network.heads.alignment import AlignmentHead
from aladin_network.heads.attention import AttentionHead
from aladin_network.heads.matching import MatchingHead
from aladin_network.heads.tower_start import fit_to_towers, start_as
from aladin_network.heads.trunk import Trunk
from aladin_network.inference import PHOTOS_AT_A_TIME, PHOTOS_ON_A_CARD, Throughput
from aladin_network.scoring.encoding import Encoding
from aladin_network.scoring.masking import masked_mean
from aladin_network.scoring.scores import (
    EncodedBatch,
    alignment_scores,
    matching_scores,
    paired_alignment_scores,
    paired_matching_scores,
)
from aladin_network.types import Modality, ScoreName

# Devices that encode photos in half precision, with sums in single, where its range is enough. Of
# MobileNetV2 embeddings keep three digits and the nearest ten of a photo 99.6 % of their members,
# as in TF32, in which cards multiply by default; bfloat16 keeps 95.5 %.
HALF_ON = frozenset({"cuda"})

E = TypeVar("E", bound=ImageEncoder | TextEncoder)

T = TypeVar("T")


class Tower(nn.Module, Generic[E]):
    """The layers of one modality before both heads; element 0 is the aggregate."""

    def __init__(self, encoder: E, config: TowerConfig, positions: int | None = None) -> None:
        """Build the layers after `encoder`."""
        super().__init__()
        self.encoder = encoder
        self.config = config
        self.trunk = Trunk(config.trunk, encoder.dim) if config.trunk else None
        self.width = config.trunk.width if config.trunk else encoder.dim
        if config.positions and positions is None:
            raise ConfigError(
                "tower: positions are for image grids only, whose cells have fixed places"
            )
        self.positions = (
            nn.Parameter(torch.empty(positions or 0, self.width)) if config.positions else None
        )
        self.aggregate = (
            nn.Parameter(torch.empty(self.width)) if config.aggregate == "learned" else None
        )
        # Whether element 0 of the encoder's batches is no content; None until a batch has told.
        self._has_cls: bool | None = None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset this tower's own vectors to random values; its layers reset themselves."""
        for vectors in (self.positions, self.aggregate):
            if vectors is not None:
                nn.init.normal_(vectors, std=0.02)

    def forward(self, batch: object) -> Features:
        """Run the tower."""
        features = batch if isinstance(batch, Features) else self.encoder(batch)
        trunk = self.trunk
        if trunk is not None:
            features = features._replace(
                states=trunk.projected(features, isinstance(batch, Features))
            )
        if self.positions is not None:
            features = features._replace(states=features.states + self.positions)
        features = self._with_aggregate(features)
        if trunk is not None:
            states = trunk.stack(trunk.dropout(features.states), features.mask)
            features = features._replace(states=states)
        return features

    def _with_aggregate(self, features: Features) -> Features:
        states, mask, content = features
        # Looked up once, since it takes waiting for a GPU, and never while compiling, when values
        # are unknown. A batch without any content says nothing.
        if self._has_cls is None and not torch.compiler.is_compiling() and bool(content.any()):
            self._has_cls = not bool(content[:, 0].any())
        has_cls = self._has_cls is not False
        if self.config.aggregate == "encoder":
            if not has_cls:
                raise ConfigError(
                    "tower: this encoder has no CLS of its own; set aggregate to mean or learned"
                )
            return features
        if self.config.aggregate == "first_region":
            if has_cls:  # which nothing reads then
                states, mask, content = states[:, 1:], mask[:, 1:], content[:, 1:]
            content = content.clone()
            content[:, 0] = False
            return Features(states, mask, content)
        if self.aggregate is not None:
            front = self.aggregate.expand(states.shape[0], -1)
        else:
            front = masked_mean(states, content)
        return with_front(features, front)


class _Scorer(NamedTuple):
    """How a head scores all pairs of two batches, and each image with the text of its row."""

    all_pairs: Callable[[EncodedBatch, EncodedBatch], Tensor]
    paired: Callable[[EncodedBatch, EncodedBatch], Tensor]


class AladinModel(nn.Module):
    """Image tower, text tower, alignment head, matching head and two optional heads.

    The two modalities never see each other before the score.

    Attributes:
        has_tokens: Whether the alignment was trained, so that an index stores tokens.
    """

    has_tokens: bool = True

    def __init__(
        self, config: ModelConfig, image_encoder: ImageEncoder, text_encoder: TextEncoder
    ) -> None:
        """Add the towers and heads to two encoders."""
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
        self.embedding_dim, self.token_dim = self.matching.dim, self.alignment.dim
        self.zero_tokens = self.alignment.zero_tokens
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
            config: Configuration of a recipe.
            tokenizer: Tokenizer for a text encoder that starts with random weights.

        Raises:
            ConfigError: If the encoder is unknown or the combination is impossible.
            CheckpointError: If a pretrained encoder cannot be loaded.
        """
        # The image encoder comes second: it may share the text encoder's weights.
        text_encoder = text_encoder_class(config).from_source(config.text_encoder, tokenizer)
        image_encoder = image_encoder_class(config).from_source(config.image_encoder, text_encoder)
        return cls.on_encoders(config, image_encoder, text_encoder)

    @classmethod
    def on_encoders(
        cls, config: ModelConfig, image_encoder: ImageEncoder, text_encoder: TextEncoder
    ) -> AladinModel:
        """Add new towers and heads, random or set to their sources' projections, to two encoders.

        Args:
            config: Configuration of the towers and heads.
            image_encoder: Image encoder with its weights.
            text_encoder: Text encoder with its weights and tokenizer.

        Raises:
            ConfigError: If the combination is impossible.
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

    def encode_images(self, batch: ImageBatch | Features) -> EncodedBatch:
        """Encode collated photos, or the image encoder's cached output."""
        return self._heads(self.image(batch), "image")

    def encode_texts(self, batch: TextBatch | Features) -> EncodedBatch:
        """Encode tokenised texts, or the text encoder's cached output."""
        return self._heads(self.text(batch), "text")

    @torch.inference_mode()
    def infer_images(self, batch: ImageBatch) -> Encoding:
        """Encode collated photos on the network's device, without gradients; see `HALF_ON`."""
        device = next(self.parameters()).device
        sent, is_half = sent_to(batch, device), device.type in HALF_ON
        with torch.autocast(device.type, torch.float16) if is_half else nullcontext():
            found = self.encode_images(sent).arrays()
        real = found.embedding, found.tokens[found.mask]
        if is_half and not all(np.isfinite(each).all() for each in real):
            return self.encode_images(sent).arrays()
        return found

    @torch.inference_mode()
    def infer_texts(self, batch: TokenizedTexts) -> Encoding:
        """Encode tokenised texts on the network's device, without gradients."""
        device = next(self.parameters()).device
        parts = (torch.from_numpy(part).to(device) for part in batch)
        return self.encode_texts(TextBatch(*parts)).arrays()

    def with_texts_in_bfloat16(self) -> AladinModel:
        """Copy everything but the image tower, to encode texts in bfloat16."""
        converted = copy.deepcopy(self, {id(self.image): self.image})
        for part in (converted.text, converted.alignment, converted.matching):
            part.to(torch.bfloat16)
        return converted

    def on_threads(self, count: int) -> AladinModel:  # noqa: ARG002  a graph has its own threads
        """Return the network itself: torch's threads are those of the process."""
        return self

    def throughput(self) -> Throughput:
        """Return one caller, as torch's own threads share every batch; on a card two."""
        if next(self.parameters()).device.type == "cpu":
            return Throughput(self, callers=1, photos_a_call=PHOTOS_AT_A_TIME)
        return Throughput(
            self,
            callers=2,
            photos_a_call=PHOTOS_ON_A_CARD,
            reader=self.image.encoder.pixel_reader(),
        )

    @property
    def score_names(self) -> tuple[ScoreName, ...]:
        """Names of the scores of the heads that this network has."""
        return tuple(self._scorers())

    def scores(
        self, name: ScoreName, images: EncodedBatch, texts: EncodedBatch
    ) -> Float[Tensor, "images texts"]:
        """Score all pairs of two batches by one head, chunked to the memory budget.

        Raises:
            ConfigError: If the network has no such head.
        """
        return self._scorer(name).all_pairs(images, texts)

    def paired_scores(
        self, name: ScoreName, images: EncodedBatch, texts: EncodedBatch
    ) -> Float[Tensor, " pairs"]:
        """Score each image with the text of its row: the diagonal of `scores`.

        Raises:
            ConfigError: If the network has no such head.
            ShapeError: If the batches differ in length.
        """
        return self._scorer(name).paired(images, texts)

    def _scorers(self) -> dict[ScoreName, _Scorer]:
        scorers: dict[ScoreName, _Scorer] = {
            "matching": _Scorer(matching_scores, paired_matching_scores),
            "alignment": _Scorer(alignment_scores, paired_alignment_scores),
        }
        if self.attention is not None:
            scorers["attention"] = _Scorer(self.attention, self.attention.paired)
        return scorers

    def _scorer(self, name: ScoreName) -> _Scorer:
        scorers = self._scorers()
        if name not in scorers:
            raise ConfigError(f"{name}: this network has no such head")
        return scorers[name]

    def _heads(self, features: Features, modality: Modality) -> EncodedBatch:
        tokens, mask = self.alignment(features, modality)
        return EncodedBatch(self.matching(features, modality), tokens, mask)
