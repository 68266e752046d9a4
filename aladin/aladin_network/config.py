"""Frozen dataclasses from JSON or TOML data: unknown keys and wrong types are errors.

The network's configuration, stored in a checkpoint's ``config.json``.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError

from aladin_network.errors import ConfigError

T = TypeVar("T")

# Put on the outermost dataclass of a schema; pydantic hands it on to the nested ones.
STRICT = ConfigDict(extra="forbid")


def parse_config(schema: type[T], data: Mapping[str, Any], where: str) -> T:
    """Build the frozen dataclass `schema` from plain data.

    Args:
        schema: a dataclass with ``__pydantic_config__ = STRICT``.
        data: what a JSON or TOML reader returned.
        where: names the source in the error, e.g. the file.

    Returns:
        The dataclass, nested ones included.

    Raises:
        ConfigError: a key is unknown or missing, or a value is impossible; every one is named.
    """
    try:
        # JSON mode is strict about types, yet takes lists for tuples.
        return TypeAdapter(schema).validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        faults = [
            f"{'.'.join(map(str, fault['loc'])) or '(top)'}: {_say(fault['type'], fault['msg'])}"
            for fault in error.errors(include_url=False)
        ]
        raise ConfigError(f"{where}: " + "; ".join(faults)) from None
    except TypeError as error:
        raise ConfigError(f"{where}: {error}") from None


def dump_config(config: object) -> dict[str, Any]:
    """Return the plain data from which `parse_config` builds the same dataclass again."""
    return dataclasses.asdict(cast(Any, config))


def dump_changes(config: object) -> dict[str, Any]:
    """Return `dump_config` without the fields that have their defaults, nested ones included.

    It identifies a configuration for as long as no default changes: a field that is new, and has a
    default, changes nothing.
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
    """From a photo to a tensor; one definition for training, indexing and serving.

    Attributes:
        height_px: height of the network's input.
        width_px: width of the network's input.
        shortest_edge_px: resize the shorter side to this, then crop the centre; None squashes
            the whole photo into the input.
        max_patches: for networks that take patches of photos of any shape (NaFlex): the photo
            keeps its aspect ratio, in at most so many patches of the network's size; the sizes
            above then do not count. None for all others.
        mean: subtracted from the red, green and blue values in [0, 1].
        std: divides what is left.
        resample: filter of the resize.
    """

    height_px: int = 224
    width_px: int = 224
    shortest_edge_px: int | None = None
    max_patches: int | None = None
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    resample: Literal["nearest", "bilinear", "bicubic", "lanczos"] = "bilinear"


@dataclass(frozen=True, kw_only=True)
class ImageEncoderConfig:
    """An image encoder of the registry `aladin_network.encoders.IMAGE_ENCODERS`.

    Attributes:
        name: key in the registry.
        source: folder or hub name of pretrained weights; None starts at random.
        architecture: the transformers configuration; read from `source` when None. For regions
            the options of `RegionsArchitecture` that differ from VinVL's.
        frozen: no gradient, evaluation mode always, outputs cached on disk for training.
        preprocessing: read from `source` when None.
        pyramid: sides of the square grids that the encoder's own grid is averaged to, e.g.
            (4, 1) for sixteen cells and the whole photo as regions; None keeps its own cells.
        layers: numbers of hidden states to put beside the last one, each normalised on its own:
            what a network's early layers see (colour, texture) its last one has left behind.
        pooled: for towers of dual encoders (`aladin_network.encoders.dual_encoder`): element 0 is
            the vector that the tower's own similarity compares, before its projection, and all
            states have passed the tower's last norm. Without it, element 0 is the network's CLS,
            if it has one, and the states are the last layer's.
        detector: which one made the regions that a network of regions was trained on, as a
            `RegionSet` names it; those of another are refused. None: not known.
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
    """A text encoder of the registry `aladin_network.encoders.TEXT_ENCODERS`.

    Attributes:
        name: key in the registry.
        source: folder or hub name of pretrained weights; None starts at random.
        architecture: the transformers configuration; read from `source` when None. For a
            recurrent encoder the options of `RecurrentArchitecture` that differ from DBL's.
        frozen: no gradient, evaluation mode always, outputs cached on disk for training.
        max_tokens: longest text, special tokens included.
        pooled: as of the image encoder.
        pad_to: texts are padded to so many tokens, and the network attends to padding as to
            words, as SigLIP's were trained; read from `source`. None: padding is masked.
        pad_id: of the padding, from which RoBERTa's kin count positions; read from `source`.
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
        width: hidden size, a multiple of `heads`.
        layers: number of transformer layers; 0 leaves the projection alone.
        heads: attention heads.
        feedforward: hidden size of the feed-forward blocks.
        dropout: of the transformer layers' outputs and of what enters them.
        input_dropout: of the encoder's channels.
        token_dropout: of whole tokens of the encoder's output.
        input_norm: of the encoder's states before the projection: layer norm, unit length of
            each token (IMC), or none (DBL).
        norm: "post" as the paper's layers; "pre" trains at higher rates.
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
    """How the encoder's output becomes the sequence that both heads read.

    Attributes:
        trunk: the trainable layers; None hands the encoder's output to the heads as it is.
        aggregate: where element 0 comes from. "encoder": the encoder's own CLS; "mean": the
            mean of the content tokens; "learned": a trained vector; "first_region": the first
            region plays the CLS and leaves the alignment, as in ALADIN's official code (A-1); the
            encoder's own CLS, if it has one, is dropped.
        positions: add a learned position to every token (for grids without their own).
    """

    trunk: TrunkConfig | None = field(default_factory=TrunkConfig)
    aggregate: Literal["encoder", "mean", "learned", "first_region"] = "encoder"
    positions: bool = False


@dataclass(frozen=True, kw_only=True)
class AlignmentHeadConfig:
    """Options of the alignment head (ALADIN eqs 1-2).

    Attributes:
        dim: size the tokens are projected to; None keeps the towers' width, as the paper.
        normalize: cosine (the default) or plain dot product (A-3).
        official_trim: also drop each text's last word piece, as the official code (A-4).
        empty_fill: "zero": every image has one more region, which scores zero, as the padding of
            the official code (A-5); "exclude": it has its own regions only.
        start: "towers": the projections start as those of the two pretrained towers; where `dim`
            is smaller, followed by a random orthonormal map that both share, which keeps cosines
            about as they were. Needs encoders with `pooled`, and towers without a trunk.
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
        layers: transformer layers shared by both modalities; 0 pools the towers' output.
        heads: attention heads.
        feedforward: hidden size of the feed-forward blocks; None: the towers' width.
        dropout: of the transformer layers.
        pooling: element 0 ("first", the paper), the mean or the maximum of the content tokens;
            several are concatenated.
        dim: size of the embedding by one more linear map per modality; None keeps the towers'
            width, and takes one pooling only.
        start: "towers": the projections start as those of the two pretrained towers, so that the
            untrained head gives their own zero-shot similarity. Needs encoders with `pooled`,
            towers without a trunk, ``layers=0``, ``pooling=("first",)``; `dim` is then that of
            the projections.
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
        dim: size of a word's comparison with what it attends to.
        temperature: sharpness of the attention.
        form: "official": negative similarities count a tenth, and what a word attends to and a
            pair's pooled comparison are L2-normalised; "paper": as printed (D-7).
    """

    dim: int = 256
    temperature: float = 9.0
    form: Literal["official", "paper"] = "official"


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Everything that is needed to build an `AladinModel`.

    Attributes:
        attention: a third head, on the alignment head's tokens; None: the network has none.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    image_encoder: ImageEncoderConfig
    text_encoder: TextEncoderConfig
    image_tower: TowerConfig = field(default_factory=TowerConfig)
    text_tower: TowerConfig = field(default_factory=TowerConfig)
    alignment: AlignmentHeadConfig = field(default_factory=AlignmentHeadConfig)
    matching: MatchingHeadConfig = field(default_factory=MatchingHeadConfig)
    attention: AttentionHeadConfig | None = None
