"""A recipe: the complete description of a run, read from TOML.

A recipe names the data, the network or the checkpoint to start from, and an ordered list of
stages; each stage trains some parts of the network on one task, or on several at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict

from aladin_network.config import STRICT, ModelConfig, parse_config
from aladin_network.errors import ConfigError
from aladin_network.types import ScoreName
from aladin_training.config.anchors import RANDOM
from aladin_training.config.defaults import FEATURE_CACHE
from aladin_training.config.rules import Rule, check
from aladin_training.config.stage import StageConfig
from aladin_training.config.toml_files import read_toml
from aladin_training.config.tune import EncoderPart
from aladin_training.parallel.numerics import Precision


@dataclass(frozen=True, kw_only=True)
class StartConfig:
    """The checkpoint whose network is trained, in place of one that the recipe describes.

    Attributes:
        checkpoint: Folder of the checkpoint; a relative path is relative to the working folder.
            `aladin train` also takes a dual encoder by name (`aladin_network.conversion`).
        model_id: Required model id, or None for any; it is recorded when the run begins.
        frozen: Whether an encoder is frozen, overriding the checkpoint; set by the keys
            ``model.image_encoder.frozen`` and ``model.text_encoder.frozen``.
    """

    checkpoint: str
    model_id: str | None = None
    frozen: dict[EncoderPart, bool] = field(default_factory=dict)


def with_start(data: dict[str, Any], where: str) -> dict[str, Any]:
    """Convert a recipe's ``start = "CHECKPOINT"`` to the form of a `StartConfig`."""
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
                f"{where}: model.{others[0]}: the network is that of the start; only frozen of "
                "image_encoder and text_encoder can be set with it"
            )
        frozen |= {part: settings["frozen"]} if settings else {}
    rest = {key: value for key, value in data.items() if key != "model"}
    return rest | {"start": table | ({"frozen": frozen} if frozen else {})}


@dataclass(frozen=True, kw_only=True)
class StreamConfig:
    """Training photos that are read sequentially from the tars of webdataset or img2dataset.

    Nothing is unpacked, and memory holds only the encoded photos of the shuffle buffer. Tars are
    read in a different order in every epoch. An epoch shows each photo once, with
    `captions_per_photo` of its captions at random (null: one). Frozen encoders are not cached: they
    encode every photo each time it is shown.

    Attributes:
        shuffle: Photos in the buffer from which the next ones are drawn, at least two batches. If
            the buffer is not many batches long, photos meet those close to them in their tar.
    """

    shuffle: int = 10_000

    def __post_init__(self) -> None:
        found = f"shuffle is {self.shuffle}, expected at least 1"
        check("data.stream: ", [(self.shuffle >= 1, found)])


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The data set.

    Attributes:
        source: Any source that `aladin_training.data` reads; a relative path is relative to the
            working folder.
        stream: Settings for reading the training photos sequentially, or None to read them in any
            order, which needs a list of all photos in memory.
        train_split: Split to train on, or None for all photos of the source.
        validation_source: Data set of the validation split, or None for `source`.
        validation_split: Split to report on; without `selection`, weights and fusion are chosen on
            it, too.
        selection: Share of the training photos that is kept apart to choose weights and fusion on,
            from 0 to less than 1.
        folds: Number of equal parts that the photos of `train_split` and `validation_split` are
            dealt into, or 1 for the splits as they are; `aladin compare --cross` sets both.
        fold: Part that takes the place of the validation split; the others are trained on.
        cache: Folder for the outputs of frozen encoders.
        regions: Ready-made regions of the photos that `aladin_training.data.regions` reads, for
            networks that read these; the photos themselves may then be missing.
        region_labels: Labels of the regions, if they are in a file of their own.
        mirror: Also show the photos mirrored.
        crops: Number of random crops of each photo to show as well.
    """

    source: str
    stream: StreamConfig | None = None
    train_split: str | None = "train"
    validation_source: str | None = None
    validation_split: str = "val"
    selection: float = 0.0
    folds: int = 1
    fold: int = 0
    cache: str = FEATURE_CACHE
    regions: str | None = None
    region_labels: str | None = None
    mirror: bool = False
    crops: int = 0

    def __post_init__(self) -> None:
        check("data: ", self._rules())

    def _rules(self) -> Iterator[Rule]:
        photos = self.regions is None
        yield bool(self.source.strip()), "source: expected a data set, got an empty string"
        yield (
            0 <= self.selection < 1,
            f"selection: expected at least 0 and less than 1, got {self.selection}",
        )
        yield (
            0 <= self.fold < self.folds,
            f"fold: expected 0 to folds - 1, got {self.fold} of {self.folds}",
        )
        yield (
            self.folds == 1
            or (self.stream is None and None is self.validation_source and bool(self.train_split)),
            "folds deal the photos of two splits of one list: expected a train_split, and neither "
            "a stream nor a validation_source",
        )
        yield (
            not self.selection or self.stream is None,
            "selection needs a list of the photos, and data.stream reads them front to back; "
            "choose on a validation_source of its own instead",
        )
        yield (
            not photos or self.region_labels is None,
            "region_labels: expected regions as well, which the labels belong to",
        )
        yield (
            photos or self.stream is None,
            "a stream shows the photos of its tars, not ready-made regions",
        )
        yield (
            photos or not (self.mirror or self.crops),
            "mirror and crops apply to photos, not to ready-made regions",
        )


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """Vocabulary of a text encoder that starts at random, learnt from the captions."""

    vocabulary_size: int = 4000


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A complete run.

    Attributes:
        name: Name of the run.
        data: Data set.
        model: Network, or None for that of `start`.
        start: Checkpoint whose network is trained, in place of `model`.
        stage: Stages, in order.
        final: Stage whose checkpoint is that of the run, or None for the last one; if it is named,
            `load_recipe` leaves out the stages that it does not need.
        tokenizer: Vocabulary of a text encoder that starts at random.
        seed: Seeds weights, batches and dropout.
        precision: "auto" computes in bfloat16 if the processor has instructions for it.
        threads: Number of threads that torch computes with in the stages, see
            `aladin_training.parallel.threads`, or None for torch's own choice.
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
        check("", self._rules())

    def _rules(self) -> Iterator[Rule]:
        yield (
            (self.model is None) != (self.start is None),
            "a recipe needs either a [model] or a start",
        )
        yield (
            self.threads is None or self.threads >= 1,
            f"threads is {self.threads}, expected at least 1",
        )
        names: list[str] = []
        for stage in self.stage:
            yield stage.name not in names, f"two stages are named {stage.name!r}"
            yield stage.name != RANDOM, f"{RANDOM!r} is a reserved stage name"
            for holds, message in chain(_references(stage, names), self._order(stage)):
                yield holds, f"stage {stage.name!r}: {message}"
            names.append(stage.name)
        yield bool(names), "a recipe needs at least one [[stage]]"
        yield (
            self.final is None or self.final in names,
            f"final {self.final!r} is not a stage, known are {names}",
        )

    def _order(self, stage: StageConfig) -> Iterator[Rule]:
        """Yield what a stage may ask of photos that are streamed, and of states that are cached."""
        own_words = self.model is not None and self.model.text_encoder.source is None
        yield (
            own_words or "text_encoder" not in stage.reset,
            "reset: a text encoder with pretrained weights cannot start from random ones",
        )
        listed = self.data.stream is None
        stream = "and data.stream reads them front to back"
        yield (
            listed or stage.offline is None,
            f"offline negatives need photos in any order, {stream}; mine from a list of photos "
            "instead",
        )
        yield listed or stage.share == 1, f"a share of the photos needs a list of them, {stream}"
        image = stage.tune.get("image_encoder")
        cached = image is not None and image.cached
        yield listed or not cached, f"cached states need a list of the photos, {stream}"
        layers = image.layers if image is not None else None
        yield (
            not cached or layers == self.cached_layers,
            "expected all stages to tune the same number of layers on cached states, got "
            f"{self.cached_layers} and {layers}",
        )

    @property
    def final_stage(self) -> StageConfig:
        """Stage whose checkpoint is that of the run."""
        return next((stage for stage in self.stage if stage.name == self.final), self.stage[-1])

    @property
    def cached_layers(self) -> int | None:
        """Number of the image encoder's last layers that stages tune on cached states, if any."""
        tuned = (stage.tune.get("image_encoder") for stage in self.stage)
        return next((each.layers for each in tuned if each is not None and each.cached), None)

    def without_unneeded(self) -> Recipe:
        """Return the recipe without the stages that a named final stage does not depend on."""
        if self.final is None:
            return self
        needed = {self.final}
        for number, stage in reversed(list(enumerate(self.stage))):
            if stage.name in needed:
                needed.update(stage.needed_stages.values())
                if stage.start is None and number:
                    needed.add(self.stage[number - 1].name)
        return dataclasses.replace(
            self, stage=tuple(stage for stage in self.stage if stage.name in needed)
        )

    @property
    def own_score(self) -> ScoreName:
        """Score that the final stage trains; the matching score if it trains several."""
        scores = self.final_stage.trained_scores
        return "matching" if "matching" in scores else min(scores)


def _references(stage: StageConfig, earlier: Sequence[str]) -> Iterator[Rule]:
    for key, name in stage.needed_stages.items():
        yield name in earlier, f"{key} {name!r} is not an earlier stage"


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe.

    Args:
        path: TOML file. Its key `extends` may name another file, relative to it, on which it
            builds: tables and stages of the same name are merged, and new stages are appended. Its
            table `stage_defaults` completes every stage. TOML has no null: the text "null" stands
            for it. Its table `variants` holds settings by the name of a variant, which
            ``variant=NAME`` chooses; the recipe is then named after both.
        overrides: ``dotted.key=value`` settings that replace those of the file; stages are
            addressed by name, e.g. ``stage.warmup.epochs=2``, the one whose checkpoint is the
            run's also as ``final.epochs=2``, and all together as ``*.epochs=2``. A value is JSON,
            or else a string.

    Returns:
        The recipe, without the stages that its final stage does not need if that is named.

    Raises:
        ConfigError: If the file cannot be read, or a key or value is wrong.
    """
    data = with_start(read_toml(path, overrides), str(path))
    return parse_config(Recipe, data, str(path)).without_unneeded()
