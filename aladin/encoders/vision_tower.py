"""What image encoders share that run a vision tower of the transformers library on photos."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import ClassVar, Literal

from torch import nn

from aladin.config import ImageEncoderConfig
from aladin.encoders.base import ImageEncoder, TextEncoder
from aladin.encoders.dual_encoder import load_dual_tower
from aladin.encoders.transformers_model import load_tower
from aladin.preprocessing import read_preprocessing


class VisionTowerEncoder(ImageEncoder):
    """Base of the image encoders that read photos; its source may be one tower, or a pair."""

    reads: ClassVar[Literal["photo", "regions"]] = "photo"

    @abstractmethod
    def __init__(
        self,
        config: ImageEncoderConfig,
        text_encoder: TextEncoder | None = None,
        model: nn.Module | None = None,
    ) -> None:
        """Build from a complete configuration, with random weights unless `model` is given.

        Args:
            config: `architecture` is set.
            text_encoder: shares nothing with this one.
            model: the tower that `architecture` describes.

        Raises:
            ConfigError: `architecture` is missing or impossible, or does not go with the rest.
        """
        super().__init__(config, text_encoder)

    @classmethod
    def from_source(
        cls, config: ImageEncoderConfig, text_encoder: TextEncoder | None = None
    ) -> VisionTowerEncoder:
        """Load the pretrained weights that ``config.source`` names."""
        if config.source is None:
            return cls(config, text_encoder)
        projection = None
        if config.pooled:
            model, architecture, projection = load_dual_tower(config.source, "vision")
        else:
            model, architecture = load_tower(config.source, "vision")
        preprocessing = config.preprocessing or read_preprocessing(config.source)
        config = dataclasses.replace(config, architecture=architecture, preprocessing=preprocessing)
        encoder = cls(config, text_encoder, model)
        encoder.projection = projection
        return encoder
