"""Image encoders that run a vision tower of the transformers library on photos.

Their preprocessing as published, averaging of grid cells, and the base class of these encoders.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from aladin_network.config import ImageEncoderConfig, ImagePreprocessing
from aladin_network.encoders.base import ImageEncoder, Reads, TextEncoder
from aladin_network.encoders.pixels import Grid
from aladin_network.encoders.pretrained import build_tower, load_tower
from aladin_network.encoders.transformers_model import loading
from aladin_network.errors import ConfigError


def read_preprocessing(source: str) -> ImagePreprocessing:
    """Read the preprocessing that comes with a pretrained encoder."""
    from transformers import AutoImageProcessor  # building an encoder does not need it

    with loading(source, "read its preprocessing"):
        processor = AutoImageProcessor.from_pretrained(
            source, backend="pil", trust_remote_code=False
        )
    if not processor.do_normalize:
        raise ConfigError(f"{source}: unsupported preprocessing (it does not normalise)")
    look: dict[str, Any] = {
        "mean": tuple(processor.image_mean),
        "std": tuple(processor.image_std),
        "resample": Image.Resampling(processor.resample).name.lower(),
    }
    max_patches = getattr(processor, "max_num_patches", None)
    if max_patches is not None:
        return ImagePreprocessing(max_patches=int(max_patches), **look)
    size = dict(processor.size)
    crop = dict(processor.crop_size) if getattr(processor, "do_center_crop", False) else None
    shortest_edge = size.get("shortest_edge")
    final = crop or size
    if "height" not in final and shortest_edge is not None:
        final = {"height": shortest_edge, "width": shortest_edge}
    squashed_then_cropped = crop is not None and shortest_edge is None
    if "height" not in final or squashed_then_cropped:
        raise ConfigError(f"{source}: unsupported preprocessing (size {size}, crop {crop})")
    return ImagePreprocessing(
        height_px=final["height"],
        width_px=final["width"],
        shortest_edge_px=shortest_edge,
        **look,
    )


class VisionTowerEncoder(ImageEncoder):
    """Base of the image encoders that read photos; its source is one tower or a pair.

    `has_front` says whether element 0 is the tower's CLS or pooled vector, and no region.
    """

    reads: ClassVar[Reads] = "photo"
    default_preprocessing: ClassVar[ImagePreprocessing]
    has_front: bool

    def __init__(
        self,
        config: ImageEncoderConfig,
        text_encoder: TextEncoder | None = None,
        model: nn.Module | None = None,
    ) -> None:
        super().__init__(config, text_encoder)
        self.preprocessing = config.preprocessing or self.default_preprocessing
        self.config = dataclasses.replace(config, preprocessing=self.preprocessing)
        self.check(self.config)
        if model is None:
            model = build_tower(config.architecture or {}, pooled=config.pooled)
        self.model = model
        self.freeze()
        self.measure()

    @staticmethod
    @abstractmethod
    def check(config: ImageEncoderConfig) -> None:
        """Refuse an architecture that is missing, impossible or does not go with the rest."""

    @abstractmethod
    def measure(self) -> None:
        """Find what the model makes of a photo: `dim`, `num_tokens`, `has_front`."""

    @classmethod
    def from_source(
        cls, config: ImageEncoderConfig, text_encoder: TextEncoder | None = None
    ) -> VisionTowerEncoder:
        if config.source is None:
            return cls(config, text_encoder)
        tower = load_tower(config.source, "vision", pooled=config.pooled)
        config = dataclasses.replace(
            config,
            architecture=tower.architecture,
            preprocessing=config.preprocessing or read_preprocessing(config.source),
        )
        encoder = cls(config, text_encoder, tower.model)
        encoder.projection = tower.projection
        return encoder


def pooled_cells(
    cells: Float[Tensor, "batch dim rows columns"], levels: Sequence[Grid]
) -> Float[Tensor, "batch regions dim"]:
    """Average cells to each of several grids; a level of the same size keeps them."""
    regions = [F.adaptive_avg_pool2d(cells, level).flatten(2) for level in levels]
    return torch.cat(regions, dim=2).transpose(1, 2)
