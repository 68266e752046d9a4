"""A recipe: the one description of a run, read from TOML.

A recipe names the data, the network and an ordered list of stages; each stage trains some
parts of the network on one task, or on several at once.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict

from aladin.config import ModelConfig
from aladin.errors import ConfigError
from aladin.strict_config import STRICT, parse_config
from training.precision import Precision

Part = Literal[
    "image_encoder", "text_encoder", "image_trunk", "text_trunk", "alignment", "matching"
]

TaskName = Literal["alignment", "matching", "distillation", "alignment_distillation", "captions"]
ResettablePart = Literal["image_trunk", "text_trunk", "alignment", "matching"]


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The data set.

    Attributes:
        source: JSONL, Karpathy JSON or folder; a relative path counts from the working folder.
        train_split: split that is trained on.
        validation_split: split that chooses the checkpoint and fits the fusion.
        cache: folder for the outputs of frozen encoders.
        mirror: also show the photos mirrored.
        crops: also show so many random crops of each photo.
    """

    source: str
    train_split: str = "train"
    validation_split: str = "val"
    cache: str = "~/.cache/aladin-search/features"
    mirror: bool = False
    crops: int = 0


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """The vocabulary of a text encoder that starts at random, learnt from the captions."""

    vocabulary_size: int = 4000


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """One task of a stage.

    Attributes:
        loss: key in `training.losses.LOSSES`.
        weight: of this loss in the stage's sum.
        options: arguments of the loss.
    """

    loss: str
    weight: float = 1.0
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """The learning rate over a stage.

    Attributes:
        shape: "cosine" falls to zero; "step" multiplies by `gamma` every `step_epochs`.
        warmup_steps: linear rise from zero.
        step_epochs: for "step".
        gamma: for "step".
    """

    shape: Literal["cosine", "step", "constant"] = "cosine"
    warmup_steps: int = 0
    step_epochs: int = 15
    gamma: float = 0.1


@dataclass(frozen=True, kw_only=True)
class StageConfig:
    """One stage of training.

    Attributes:
        name: unique in the recipe.
        tasks: by name, keys of `training.tasks.TASKS`; more than one is joint training.
        start: stage whose best weights this one starts from; None: the previous stage's.
        teacher: earlier stage whose frozen network is the teacher of the distillation tasks;
            None: this network's own alignment scores are.
        teacher_score: the teacher's score that is distilled; "fused" is that of its second stage.
        reset: parts that start at random again.
        train: parts that are trained; None: all that the encoders' configuration leaves free.
        epochs: passes over the training split.
        batch_size: photos a step.
        captions_per_photo: random captions of each photo in a batch, an epoch being all photos;
            None: one caption each, an epoch being all captions, as the papers sample.
        lr: peak learning rate.
        lr_scale: factor for single parts.
        weight_decay: decoupled (AdamW), not on biases, norms and vectors.
        schedule: of the learning rate.
        clip_norm: bound of the gradient's norm.
        average_decay: decay of the weights' moving average; 0 validates the weights themselves.
        validate_every_epochs: how often; the last epoch always is.
    """

    name: str
    tasks: dict[TaskName, TaskConfig]
    start: str | None = None
    teacher: str | None = None
    teacher_score: Literal["alignment", "matching", "fused"] = "alignment"
    reset: tuple[ResettablePart, ...] = ()
    train: tuple[Part, ...] | None = None
    epochs: int = 10
    batch_size: int = 128
    captions_per_photo: int | None = None
    lr: float = 1e-3
    lr_scale: dict[Part, float] = field(default_factory=dict)
    weight_decay: float = 0.0
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    clip_norm: float = 2.0
    average_decay: float = 0.0
    validate_every_epochs: int = 1

    def __post_init__(self) -> None:
        """Refuse impossible values.

        Raises:
            ConfigError: a count or a rate is out of its range.
        """
        where = f"stage {self.name!r}"
        for name in ("epochs", "batch_size", "validate_every_epochs"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{where}: {name} is {getattr(self, name)}, expected at least 1")
        if self.captions_per_photo is not None and self.captions_per_photo < 1:
            raise ConfigError(f"{where}: captions_per_photo is {self.captions_per_photo}")
        if self.lr <= 0 or self.clip_norm <= 0:
            raise ConfigError(f"{where}: lr and clip_norm must be above 0")
        if not 0 <= self.average_decay < 1:
            raise ConfigError(f"{where}: average_decay is {self.average_decay}, expected [0, 1)")
        if "alignment_distillation" in self.tasks and self.teacher is None:
            raise ConfigError(f"{where}: alignment_distillation needs a teacher")
        if not self.tasks:
            raise ConfigError(f"{where}: give it at least one task")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A whole run.

    Attributes:
        name: of the run.
        data: the data set.
        model: the network.
        stage: the stages, in order.
        final: stage whose checkpoint is the run's; None: the last one.
        tokenizer: for a text encoder that starts at random.
        seed: of weights, batches and dropout.
        precision: "auto" computes in bfloat16 where the processor has instructions for it.
        threads: of the stages, see `training.threads`; None: as many as torch chooses.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    name: str
    data: DataConfig
    model: ModelConfig
    stage: tuple[StageConfig, ...]
    final: str | None = None
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    seed: int = 0
    precision: Precision = "auto"
    threads: int | None = None

    def __post_init__(self) -> None:
        """Check that stages are unique and refer to earlier ones.

        Raises:
            ConfigError: there is no stage, a name repeats, or `start` or `final` names none.
        """
        if self.threads is not None and self.threads < 1:
            raise ConfigError(f"threads is {self.threads}, expected at least 1")
        names: list[str] = []
        for stage in self.stage:
            if stage.name in names:
                raise ConfigError(f"two stages are named {stage.name!r}")
            for key in ("start", "teacher"):
                earlier = getattr(stage, key)
                if earlier is not None and earlier not in names:
                    where = f"stage {stage.name!r}"
                    raise ConfigError(f"{where}: {key} {earlier!r} is no earlier stage")
            names.append(stage.name)
        if not names:
            raise ConfigError("a recipe needs at least one [[stage]]")
        if self.final is not None and self.final not in names:
            raise ConfigError(f"final {self.final!r} is no stage, known are {names}")


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe.

    Args:
        path: TOML file; its key `extends` may name another one, beside it, to build on.
        overrides: ``dotted.key=value`` settings that replace the file's; stages are reached by
            name, e.g. ``stage.warmup.epochs=2``. A value is JSON, or else taken as a string.

    Raises:
        ConfigError: the file cannot be read, or a key or value is wrong.
    """
    data = _read(path)
    for override in overrides:
        _override(data, override)
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


def _merge(base: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    """Complete tables key by key; anything else, the list of stages too, is replaced."""
    merged = dict(base)
    for key, value in data.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        merged[key] = _merge(base[key], value) if both else value
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
