"""Conversion of two pretrained towers to a checkpoint.

For the two towers of a dual encoder (CLIP, SigLIP ...) the matching score is the dual encoder's own
similarity, and the checkpoint can be used without training. Any other pair, such as DINOv2 and
XLM-R, gets randomly initialised heads and has to be trained first.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from aladin_network.checkpoint import save_checkpoint
from aladin_network.checkpoint_files import Provenance
from aladin_network.config import (
    AlignmentHeadConfig,
    ImageEncoderConfig,
    ImagePreprocessing,
    MatchingHeadConfig,
    ModelConfig,
    TextEncoderConfig,
    TowerConfig,
)
from aladin_network.conversion.tensors import refuse_existing
from aladin_network.encoders.base import ImageEncoder
from aladin_network.encoders.hf_image import HFImageEncoder
from aladin_network.encoders.hf_text import HFTextEncoder, longest_text
from aladin_network.encoders.naflex import NaFlexImageEncoder
from aladin_network.encoders.pretrained import is_dual_encoder, takes_any_shape
from aladin_network.encoders.vision_tower import VisionTowerEncoder, read_preprocessing
from aladin_network.errors import ConfigError
from aladin_network.model import AladinModel
from aladin_network.scoring.fusion import DirectionFusion, Fusion

# Longer than any caption; BERT-like models have 512 positions, more than captions need.
_MOST_TOKENS = 128
# Small, to save memory while the network is asked how many tokens it can read.
_FEWEST_TOKENS = 3


@dataclass(frozen=True, kw_only=True)
class TowersOptions:
    """Options for converting a pair of pretrained towers.

    Attributes:
        text: Source of the text tower, or None for that of the vision tower.
        size_px: Side of the network's input in pixels, or None for its own size. Positions are
            interpolated.
        max_patches: Largest number of patches per photo, for networks that take photos of any
            shape, or None for the network's own number.
        pyramid: Grids that the patches are averaged to, which makes the token store smaller.
        align_dim: Size of the alignment head's tokens, at most that of the towers' own space.
        max_tokens: Longest text in tokens, or None for what the network can read, at most 128.
        known_as: Name to record instead of the vision tower's source, such as the hub's name of a
            folder that was downloaded, or None.
    """

    text: str | None = None
    size_px: int | None = None
    max_patches: int | None = None
    pyramid: tuple[int, ...] = ()
    align_dim: int = 128
    max_tokens: int | None = None
    seed: int = 0
    known_as: str | None = None


@dataclass(frozen=True, kw_only=True)
class TowersReport:
    """Result of converting two pretrained towers.

    Attributes:
        zero_shot: Whether the matching score is the towers' own similarity; otherwise the heads are
            new.
        regions: Number of regions per photo, or None if it differs from photo to photo.
    """

    out: Path
    vision: str
    text: str
    zero_shot: bool
    dim: int
    regions: int | None
    max_tokens: int


def convert_towers(source: str, out: Path, options: TowersOptions) -> TowersReport:
    """Convert two pretrained towers to a checkpoint.

    Their encoders are frozen until a stage of training tunes them. The second stage leaves the
    order to the matching score, as no alignment head is trained yet.

    Args:
        source: Local folder or hub name of the vision tower, and of the text tower if `options`
            names no other.
        out: Folder of the new checkpoint; it must not exist yet, or be empty.
        options: Options of the conversion.

    Raises:
        CheckpointError: If a source cannot be loaded.
        ConfigError: If `out` is in use, or the options do not fit the towers.
    """
    refuse_existing(out)
    text_source = options.text or source
    pooled = is_dual_encoder(source, "vision") and is_dual_encoder(text_source, "text")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        text_encoder = _text_encoder(text_source, pooled, options.max_tokens)
        image_encoder = _image_encoder(source, pooled, options)
        shared = _shared_dim(image_encoder, text_encoder)
        heads = (
            _new(image_encoder, text_encoder, options)
            if shared is None
            else _towers_own(min(options.align_dim, shared))
        )
        known_as = {source: options.known_as or source}
        vision, text = known_as[source], known_as.get(text_source, text_source)
        config = ModelConfig(
            image_encoder=dataclasses.replace(image_encoder.config, source=vision),
            text_encoder=dataclasses.replace(text_encoder.config, source=text),
            **heads,
        )
        model = AladinModel.on_encoders(config, image_encoder, text_encoder)
    first = DirectionFusion(weight=0.0)
    origin = {"converted_from": {"vision": vision, "text": text}, "seed": options.seed}
    save_checkpoint(
        out,
        model,
        Fusion(text_to_image=first, image_to_text=first),
        Provenance(recipe=json.dumps(origin), stage="convert"),
        alignment_trained=False,
    )
    tokens = image_encoder.num_tokens
    return TowersReport(
        out=out,
        vision=vision,
        text=text,
        zero_shot=shared is not None,
        dim=model.matching.dim,
        regions=None if tokens is None else tokens - int(image_encoder.has_front),
        max_tokens=text_encoder.config.max_tokens,
    )


def _text_encoder(source: str, pooled: bool, max_tokens: int | None) -> HFTextEncoder:
    config = TextEncoderConfig(
        source=source, frozen=True, pooled=pooled, max_tokens=max_tokens or _FEWEST_TOKENS
    )
    encoder = HFTextEncoder.from_source(config, None)
    if max_tokens is not None:
        return encoder
    longest = min(_MOST_TOKENS, longest_text(encoder.model) or _MOST_TOKENS)
    config = dataclasses.replace(encoder.config, max_tokens=longest)
    whole = HFTextEncoder(config, encoder.tokenizer, encoder.model)
    whole.projection = encoder.projection
    return whole


def _image_encoder(source: str, pooled: bool, options: TowersOptions) -> VisionTowerEncoder:
    any_shape = takes_any_shape(source)
    config = ImageEncoderConfig(
        name="naflex" if any_shape else "hf",
        source=source,
        frozen=True,
        pooled=pooled,
        pyramid=options.pyramid or None,
        preprocessing=_preprocessing(source, any_shape, options),
    )
    kind = NaFlexImageEncoder if any_shape else HFImageEncoder
    return kind.from_source(config)


def _preprocessing(source: str, any_shape: bool, options: TowersOptions) -> ImagePreprocessing:
    own = read_preprocessing(source)
    if any_shape:
        if options.size_px is not None:
            raise ConfigError(f"{source} takes photos of any shape: give max_patches, not a size")
        return dataclasses.replace(own, max_patches=options.max_patches or own.max_patches)
    if options.max_patches is not None:
        raise ConfigError(f"{source} takes photos of one size: give a size, not max_patches")
    if options.size_px is None:
        return own
    shortest = own.shortest_edge_px
    if shortest is not None:  # the crop keeps the same part of the photo
        shortest = round(shortest * options.size_px / min(own.height_px, own.width_px))
    return dataclasses.replace(
        own, height_px=options.size_px, width_px=options.size_px, shortest_edge_px=shortest
    )


def _shared_dim(image_encoder: ImageEncoder, text_encoder: HFTextEncoder) -> int | None:
    """Return the size of the space that both towers project to, or None if there is none."""
    image, text = image_encoder.projection, text_encoder.projection
    if image is None or text is None or len(image.weight) != len(text.weight):
        return None
    return len(image.weight)


def _towers_own(align_dim: int) -> dict[str, Any]:
    """Return towers and heads that pass on the dual encoder's output unchanged."""
    bare = TowerConfig(trunk=None)
    return {
        "image_tower": bare,
        "text_tower": bare,
        "matching": MatchingHeadConfig(layers=0, start="towers"),
        "alignment": AlignmentHeadConfig(dim=align_dim, start="towers"),
    }


def _new(
    image_encoder: VisionTowerEncoder,
    text_encoder: HFTextEncoder,
    options: TowersOptions,
) -> dict[str, Any]:
    """Return the default towers and heads, which need training."""
    starts_with_word = bool(text_encoder.preprocess(["a"]).content[0, 0])
    return {
        "image_tower": TowerConfig(aggregate="encoder" if image_encoder.has_front else "mean"),
        "text_tower": TowerConfig(aggregate="mean" if starts_with_word else "encoder"),
        "alignment": AlignmentHeadConfig(dim=options.align_dim),
    }
