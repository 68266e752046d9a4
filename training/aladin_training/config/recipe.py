"""What a recipe says of the checkpoint that it starts from.

A recipe: the one description of a run, read from TOML.

A recipe names the data, the network and an ordered list of stages; each stage trains some
parts of the network on one task, or on several at once.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict

from aladin_network.config import STRICT, ModelConfig, parse_config
from aladin_network.errors import ConfigError
from aladin_network.types import ScoreName
from aladin_training.config.defaults import FEATURE_CACHE
from aladin_training.config.stage import RANDOM, EncoderPart, StageConfig
from aladin_training.parallel.numerics import Precision


@dataclass(frozen=True, kw_only=True)
class StartConfig:
    """The network of a checkpoint, in place of one that the recipe describes.

    Attributes:
        checkpoint: its folder; a relative path counts from the working folder.
        model_id: that it must have; None: any, and noted when the run begins.
        frozen: encoders that are frozen or not whatever the checkpoint says, from the keys
            ``model.image_encoder.frozen`` and ``model.text_encoder.frozen``.
    """

    checkpoint: str
    model_id: str | None = None
    frozen: dict[EncoderPart, bool] = field(default_factory=dict)


def with_start(data: dict[str, Any], where: str) -> dict[str, Any]:
    """Bring a recipe's ``start = "CHECKPOINT"`` into the form of a `StartConfig`.

    Args:
        data: of the recipe.
        where: names the recipe in errors.

    Raises:
        ConfigError: the recipe describes a network besides.
    """
    start = data.get("start")
    if start is None:
        return data
    table: dict[str, Any] = {"checkpoint": start} if isinstance(start, str) else dict(start)
    model: Any = data.get("model") or {}
    frozen: dict[str, Any] = {}
    for part, settings in model.items():
        is_encoder = part in ("image_encoder", "text_encoder") and isinstance(settings, dict)
        others = [f"{part}.{key}" for key in settings if key != "frozen"] if is_encoder else [part]
        if others:
            raise ConfigError(
                f"{where}: model.{others[0]}: the network is that of start; only frozen of "
                "image_encoder and text_encoder can be set besides"
            )
        frozen |= {part: settings["frozen"]} if settings else {}
    rest = {key: value for key, value in data.items() if key != "model"}
    return rest | {"start": table | ({"frozen": frozen} if frozen else {})}


@dataclass(frozen=True, kw_only=True)
class StreamConfig:
    """Training photos that come front to back out of webdataset's or img2dataset's tars.

    Nothing is unpacked, and memory holds no more than the shuffle buffer's encoded photos. Tars
    are read in another order in every epoch. An epoch shows each photo once, with
    `captions_per_photo` of its captions at random (null: one). Frozen encoders are not cached:
    they encode every photo when it is shown.

    Attributes:
        shuffle: photos in the buffer that the next ones are drawn from, two batches at least.
            With less than many batches, photos meet those that are near in their tar.
    """

    shuffle: int = 10_000

    def __post_init__(self) -> None:
        """Refuse impossible values.

        Raises:
            ConfigError: a buffer without room.
        """
        if self.shuffle < 1:
            raise ConfigError(f"data.stream: shuffle is {self.shuffle}, expected at least 1")


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The data set.

    Attributes:
        source: any that `aladin_training.data` knows; a relative path counts from the working
            folder.
        stream: read the photos that are trained on front to back; None: in any order, which
            needs a list of all photos in memory.
        train_split: split that is trained on; None: all photos of the source.
        validation_source: data set of the validation split; None: `source`.
        validation_split: split that chooses the checkpoint and fits the fusion.
        cache: folder for the outputs of frozen encoders.
        regions: ready-made regions of the photos, any that `aladin_training.data.regions` knows,
            for networks that read these; files of photos may then be missing.
        region_labels: the regions' labels, where they lie apart.
        mirror: also show the photos mirrored.
        crops: also show so many random crops of each photo.
    """

    source: str
    stream: StreamConfig | None = None
    train_split: str | None = "train"
    validation_source: str | None = None
    validation_split: str = "val"
    cache: str = FEATURE_CACHE
    regions: str | None = None
    region_labels: str | None = None
    mirror: bool = False
    crops: int = 0

    def __post_init__(self) -> None:
        """Refuse impossible combinations.

        Raises:
            ConfigError: ready-made regions are asked for what only photos can do, or there are
                labels without regions.
        """
        if self.regions is None:
            if self.region_labels is not None:
                raise ConfigError(
                    "data: region_labels: expected also regions, which they belong to"
                )
        elif self.stream is not None:
            raise ConfigError("data: a stream shows the photos of its tars, not ready-made regions")
        elif self.mirror or self.crops:
            raise ConfigError("data: mirror and crops are of photos, not of ready-made regions")


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """The vocabulary of a text encoder that starts at random, learnt from the captions."""

    vocabulary_size: int = 4000


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A whole run.

    Attributes:
        name: of the run.
        data: the data set.
        model: the network; None: that of `start`.
        start: checkpoint whose network is trained, in place of `model`.
        stage: the stages, in order.
        final: stage whose checkpoint is the run's; None: the last one.
        tokenizer: for a text encoder that starts at random.
        seed: of weights, batches and dropout.
        precision: "auto" computes in bfloat16 where the processor has instructions for it.
        threads: of the stages, see `aladin_training.parallel.threads`; None: as many as torch
            chooses.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    name: str
    data: DataConfig
    model: ModelConfig | None = None
    start: StartConfig | None = None
    stage: tuple[StageConfig, ...]
    final: str | None = None
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    seed: int = 0
    precision: Precision = "auto"
    threads: int | None = None

    def __post_init__(self) -> None:
        """Check that stages are unique and refer to earlier ones.

        Raises:
            ConfigError: there is no stage, a name repeats, or a reference names no earlier stage;
                or there is no network, or more than one.
        """
        if (self.model is None) == (self.start is None):
            raise ConfigError("a recipe needs either a [model] or a start")
        if self.threads is not None and self.threads < 1:
            raise ConfigError(f"threads is {self.threads}, expected at least 1")
        names: list[str] = []
        for stage in self.stage:
            if stage.name in names:
                raise ConfigError(f"two stages are named {stage.name!r}")
            if stage.name == RANDOM:
                raise ConfigError(f"no stage can be named {RANDOM!r}: it stands for new weights")
            for key, earlier in stage.needed_stages.items():
                if earlier not in names:
                    where = f"stage {stage.name!r}"
                    raise ConfigError(f"{where}: {key} {earlier!r} is no earlier stage")
            if self.data.stream is not None and stage.offline is not None:
                raise ConfigError(
                    f"stage {stage.name!r}: offline negatives need photos in any order, and "
                    "data.stream reads them front to back; mine from a list of photos instead"
                )
            names.append(stage.name)
        if not names:
            raise ConfigError("a recipe needs at least one [[stage]]")
        if self.final is not None and self.final not in names:
            raise ConfigError(f"final {self.final!r} is no stage, known are {names}")

    @property
    def final_stage(self) -> StageConfig:
        """The stage whose checkpoint is the run's."""
        return next((stage for stage in self.stage if stage.name == self.final), self.stage[-1])

    @property
    def own_score(self) -> ScoreName:
        """The score that the final stage trains; the matching if it trains several."""
        scores = self.final_stage.trained_scores
        return "matching" if "matching" in scores else min(scores)


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe.

    Args:
        path: TOML file; its key `extends` may name another one, relative to it, to build on:
            tables are completed, stages of the same name too, and new stages are appended. Its
            table `stage_defaults` holds what stages leave open. TOML has no null: the text
            "null" stands for it.
        overrides: ``dotted.key=value`` settings that replace the file's; stages are reached by
            name, e.g. ``stage.warmup.epochs=2``. A value is JSON, or else taken as a string.

    Raises:
        ConfigError: the file cannot be read, or a key or value is wrong.
    """
    data = _read(path)
    for override in overrides:
        _override(data, override)
    data = with_start(_with_nulls(_with_defaults(data)), str(path))
    return parse_config(Recipe, data, str(path))


def _read(path: Path, extended_by: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Read a recipe's data; `extends` names a file beside it whose tables it completes."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such recipe") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: not a recipe ({error})") from error
    base = data.pop("extends", None)
    if base is None:
        return data
    if not isinstance(base, str):
        raise ConfigError(f"{path}: extends: expected the name of a file, got {base!r}")
    if path in extended_by:
        raise ConfigError(f"{path}: extends itself")
    return _merge(_read(path.parent / base, (*extended_by, path)), data)


def _with_defaults(data: dict[str, Any]) -> dict[str, Any]:
    """Complete every stage from the table of defaults."""
    rest = {key: value for key, value in data.items() if key != "stage_defaults"}
    defaults, stages = data.get("stage_defaults"), data.get("stage")
    if isinstance(defaults, dict) and isinstance(stages, list):
        rest["stage"] = [
            _merge(defaults, stage) if isinstance(stage, dict) else stage for stage in stages
        ]
    return rest


def _with_nulls(value: Any) -> Any:
    """Put None where a recipe says "null"."""
    if isinstance(value, dict):
        return {key: _with_nulls(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_nulls(each) for each in value]
    return None if value == "null" else value


def _merge(base: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    """Complete tables key by key and the list of stages name by name; replace the rest."""
    merged = dict(base)
    for key, value in data.items():
        old = base.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            merged[key] = _merge(old, value)
        elif key == "stage" and isinstance(value, list) and isinstance(old, list):
            merged[key] = _merge_stages(old, value)
        else:
            merged[key] = value
    return merged


def _merge_stages(base: list[Any], stages: list[Any]) -> list[Any]:
    """Complete the stages of the same name, and append the new ones."""
    merged = list(base)
    for stage in stages:
        name = stage.get("name") if isinstance(stage, dict) else None
        same = [
            n for n, old in enumerate(base) if isinstance(old, dict) and old.get("name") == name
        ]
        if same and name is not None:
            merged[same[0]] = _merge(base[same[0]], stage)
        else:
            merged.append(stage)
    return merged


def _override(data: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals:
        raise ConfigError(f"override {override!r}: expected key=value")
    try:
        value: Any = json.loads(text)
    except ValueError:
        value = text
    *path, last = key.strip().split(".")
    node: Any = data
    for step in path:
        if isinstance(node, list):
            named = [each for each in node if isinstance(each, dict) and each.get("name") == step]
            if not named:
                raise ConfigError(f"override {override!r}: no stage named {step!r}")
            node = named[0]
        elif isinstance(node, dict):
            node = node.setdefault(step, {})
    if not isinstance(node, dict):
        raise ConfigError(f"override {override!r}: {'.'.join(path)} has no keys")
    node[last] = value


def recipes_folder() -> Path:
    """Folder of the recipes that are shipped: in the wheel inside the package, else beside it."""
    packaged = Path(__file__).parents[1] / "recipes"
    return packaged if packaged.is_dir() else packaged.parents[1] / "recipes"
