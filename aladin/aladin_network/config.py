"""The network's configuration, as stored in a checkpoint's ``config.json``.

Also the strict reading of any configuration into a frozen dataclass: unknown keys and wrong types
are errors.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError

from aladin_network.errors import ConfigError

T = TypeVar("T")

# For the outermost dataclass of a schema; pydantic applies it to the nested ones, too.
STRICT = ConfigDict(extra="forbid")

# The validator of a schema takes ten times as long to make as a validation.
_validator: Callable[[Any], TypeAdapter[Any]] = functools.cache(TypeAdapter)


def parse_config(schema: type[T], data: Mapping[str, Any], where: str) -> T:
    """Build the frozen dataclass `schema` from plain data.

    Args:
        schema: Dataclass with ``__pydantic_config__ = STRICT``.
        data: Data as returned by a JSON or TOML reader.
        where: Name of the source in error messages, e.g. the file.

    Returns:
        An instance of `schema`, nested dataclasses included.

    Raises:
        ConfigError: If a key is unknown or missing, or a value is invalid; the message lists all
            of these faults.
    """
    try:
        # JSON mode is strict about types, but accepts lists for tuples.
        return _validator(schema).validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        faults = [
            f"{'.'.join(map(str, fault['loc'])) or '(top)'}: {_say(fault['type'], fault['msg'])}"
            for fault in error.errors(include_url=False)
        ]
        raise ConfigError(f"{where}: " + "; ".join(faults)) from None
    except TypeError as error:
        raise ConfigError(f"{where}: {error}") from None


def dump_config(config: object) -> dict[str, Any]:
    """Return the plain data from which `parse_config` builds an equal dataclass."""
    return dataclasses.asdict(cast(Any, config))


def dump_changes(config: object) -> dict[str, Any]:
    """Return `dump_config` without the fields that have default values, nested ones included.

    The result identifies a configuration as long as no default changes; a new field with a default
    value does not alter it.
    """
    changes: dict[str, Any] = {}
    for entry in dataclasses.fields(cast(Any, config)):
        value, default = getattr(config, entry.name), entry.default
        if entry.default_factory is not dataclasses.MISSING:
            default = entry.default_factory()
        if value != default:
            changes[entry.name] = dump_changes(value) if dataclasses.is_dataclass(value) else value
    return changes


def _say(kind: str, message: str) -> str:
    return "unknown key" if kind == "unexpected_keyword_argument" else message


@dataclass(frozen=True, kw_only=True)
class ImagePreprocessing:
    """Conversion of a photo to a tensor, the same in training, indexing and serving.

    Attributes:
        shortest_edge_px: Length to which the shorter side is resized before the centre is
            cropped, or None to resize the whole photo to the input's size, changing its aspect
            ratio.
        crop_start: Rounding of the crop's first row and column where half a pixel is left over:
            "down", as the transformers library does, or to an "even" number, as torchvision, and so
            open_clip, does.
        max_patches: Maximum number of patches, for networks that read patches of photos of any
            shape (NaFlex). The photo then keeps its aspect ratio, and the sizes above are not
            used. None for all other networks.
        mean: Values subtracted from red, green and blue in [0, 1].
        std: Values by which red, green and blue are then divided.
    """

    height_px: int = 224
    width_px: int = 224
    shortest_edge_px: int | None = None
    crop_start: Literal["down", "even"] = "down"
    max_patches: int | None = None
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    resample: Literal["nearest", "bilinear", "bicubic", "lanczos"] = "bilinear"


@dataclass(frozen=True, kw_only=True)
class ImageEncoderConfig:
    """Configuration of an image encoder of `aladin_network.encoders.registry.IMAGE_ENCODERS`.

    Attributes:
        source: Folder or hub name of pretrained weights, or None for random weights.
        architecture: Configuration of the transformers library, or None to read it from `source`.
            For region encoders, the options of `RegionsArchitecture` that differ from VinVL's.
        frozen: Whether the encoder is kept without gradients and in evaluation mode; its outputs
            are then cached on disk for training.
        preprocessing: Conversion of photos to tensors, or None to read it from `source`.
        pyramid: Side lengths of the square grids to which the encoder's grid is averaged, e.g.
            (4, 1) for sixteen cells and the whole photo as regions, or None to keep the encoder's
            own cells.
        layers: Indices of hidden states to concatenate with the last one, each normalised
            separately: early layers represent colour and texture that the last one has lost.
        pooled: For towers of dual encoders (`aladin_network.encoders.pretrained`), whether
            element 0 is the vector that the tower's own similarity compares, before its
            projection, and all states have passed the tower's last norm. Otherwise element 0 is
            the network's CLS, if it has one, and the states are those of the last layer.
        detector: Name of the detector whose regions a region encoder was trained on, as in
            `RegionSet.detector`, or None if unknown. Regions of other detectors are refused.
    """

    name: str = "hf"
    source: str | None = None
    architecture: dict[str, Any] | None = None
    frozen: bool = False
    preprocessing: ImagePreprocessing | None = None
    pyramid: tuple[int, ...] | None = None
    layers: tuple[int, ...] = ()
    pooled: bool = False
    detector: str | None = None


@dataclass(frozen=True, kw_only=True)
class TextEncoderConfig:
    """Configuration of a text encoder of `aladin_network.encoders.registry.TEXT_ENCODERS`.

    Attributes:
        source: Folder or hub name of pretrained weights, or None for random weights.
        architecture: Configuration of the transformers library, or None to read it from `source`.
            For recurrent encoders, the options of `RecurrentArchitecture` that differ from DBL's.
        frozen: Whether the encoder is kept without gradients and in evaluation mode; its outputs
            are then cached on disk for training.
        max_tokens: Maximum length of a text in tokens, special tokens included.
        pooled: See `ImageEncoderConfig.pooled`.
        pad_to: Number of tokens to which texts are padded, for networks such as SigLIP's that
            attend to padding as they do to words, or None if padding is masked. Read from
            `source`.
        pad_id: Token id of the padding, relative to which RoBERTa and similar networks count
            positions. Read from `source`.
    """

    name: str = "hf"
    source: str | None = None
    architecture: dict[str, Any] | None = None
    frozen: bool = False
    max_tokens: int = 64
    pooled: bool = False
    pad_to: int | None = None
    pad_id: int = 0


@dataclass(frozen=True, kw_only=True)
class TrunkConfig:
    """Trainable transformer layers after an encoder.

    Attributes:
        width: Hidden size, a multiple of `heads`.
        layers: Number of transformer layers; 0 for a projection only.
        dropout: Dropout rate of the transformer layers' inputs and outputs.
        input_dropout: Dropout rate of the encoder's channels.
        token_dropout: Dropout rate of whole tokens of the encoder's output.
        input_norm: Normalisation of the encoder's states before the projection: layer norm, unit
            length of each token (IMC), or none (DBL).
        norm: Position of the layer norms: "post" as in the paper, or "pre", which can be trained
            at higher learning rates.
    """

    width: int = 256
    layers: int = 1
    heads: int = 4
    feedforward: int = 1024
    dropout: float = 0.1
    input_dropout: float = 0.0
    token_dropout: float = 0.0
    input_norm: Literal["layer", "l2", "none"] = "layer"
    norm: Literal["post", "pre"] = "post"


@dataclass(frozen=True, kw_only=True)
class TowerConfig:
    """Configuration of the layers between an encoder and the heads.

    Attributes:
        trunk: Trainable layers, or None to pass the encoder's output to the heads unchanged.
        aggregate: Origin of element 0. "encoder": the encoder's own CLS; "mean": the mean of the
            content tokens; "learned": a trained vector; "first_region": the first region, which
            takes the place of the CLS and is not aligned, as in ALADIN's official code (A-1); the
            encoder's own CLS, if it has one, is dropped.
        positions: Whether to add a learned position embedding to every token, for grids without
            position embeddings of their own.
    """

    trunk: TrunkConfig | None = field(default_factory=TrunkConfig)
    aggregate: Literal["encoder", "mean", "learned", "first_region"] = "encoder"
    positions: bool = False


@dataclass(frozen=True, kw_only=True)
class AlignmentHeadConfig:
    """Options of the alignment head (ALADIN eqs 1-2).

    Attributes:
        dim: Size of the projected tokens, or None to keep the towers' width, as in the paper.
        normalize: Whether scores are cosines (the default) or plain dot products (A-3).
        official_trim: Whether to drop each text's last word piece as well, as in the official
            code (A-4).
        empty_fill: "zero" gives every image one more region with score zero, equivalent to the
            padding of the official code (A-5); "exclude" uses the image's own regions only.
        start: Initial weights of the projections. "towers" uses those of the two pretrained
            towers; if `dim` is smaller, a random orthonormal map shared by both modalities
            follows, which roughly preserves cosines. Requires encoders with `pooled`, and towers
            without a trunk.
    """

    dim: int | None = 128
    normalize: bool = True
    official_trim: bool = False
    empty_fill: Literal["exclude", "zero"] = "exclude"
    start: Literal["random", "towers"] = "random"


@dataclass(frozen=True, kw_only=True)
class MatchingHeadConfig:
    """Options of the matching head (ALADIN eq 4).

    Attributes:
        layers: Number of transformer layers shared by both modalities; 0 pools the towers' output.
        feedforward: Hidden size of the feed-forward blocks, or None for the towers' width.
        pooling: Element 0 ("first", as in the paper), or the mean or maximum of the content
            tokens; several are concatenated.
        dim: Size of the embedding, obtained by one more linear map per modality, or None to keep
            the towers' width; None requires a single pooling.
        start: Initial weights of the projections. "towers" uses those of the two pretrained
            towers, so that the untrained head reproduces their zero-shot similarity. Requires
            encoders with `pooled`, towers without a trunk, ``layers=0`` and
            ``pooling=("first",)``; `dim` is then the size of the towers' projections.
    """

    layers: int = 2
    heads: int = 4
    feedforward: int | None = None
    dropout: float = 0.1
    pooling: tuple[Literal["first", "mean", "max"], ...] = ("first",)
    dim: int | None = None
    start: Literal["random", "towers"] = "random"


@dataclass(frozen=True, kw_only=True)
class AttentionHeadConfig:
    """Options of the attention head, DBL's single-branch baseline (eqs 1-3).

    Attributes:
        dim: Size of the vector that compares a word with its attended regions.
        temperature: Factor by which similarities are multiplied before the softmax.
        form: "official" weights negative similarities by 0.1, and L2-normalises the attended
            regions and each pair's pooled comparison; "paper" follows the printed equations (D-7).
    """

    dim: int = 256
    temperature: float = 9.0
    form: Literal["official", "paper"] = "official"


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Complete configuration of an `AladinModel`.

    Attributes:
        attention: Third head, on the alignment head's tokens, or None to omit it.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    image_encoder: ImageEncoderConfig
    text_encoder: TextEncoderConfig
    image_tower: TowerConfig = field(default_factory=TowerConfig)
    text_tower: TowerConfig = field(default_factory=TowerConfig)
    alignment: AlignmentHeadConfig = field(default_factory=AlignmentHeadConfig)
    matching: MatchingHeadConfig = field(default_factory=MatchingHeadConfig)
    attention: AttentionHeadConfig | None = None


def with_frozen(
    config: ModelConfig, frozen: Mapping[Literal["image_encoder", "text_encoder"], bool]
) -> ModelConfig:
    """Return a configuration whose encoders are frozen, or not, as given by their names."""
    encoders = {
        part: dataclasses.replace(getattr(config, part), frozen=value)
        for part, value in frozen.items()
    }
    return dataclasses.replace(config, **encoders)
