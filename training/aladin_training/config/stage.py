"""One stage of a recipe: what is trained, with which losses, and which networks help."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, cast, get_args

from aladin_network.errors import ConfigError
from aladin_network.types import ScoreName
from aladin_training.config.anchors import AnchorsConfig
from aladin_training.config.defaults import NUM_IMAGES, NUM_TEXTS, Lists
from aladin_training.config.rules import Rule, check
from aladin_training.config.tune import EncoderPart, TuneConfig

Part = Literal[
    "image_encoder",
    "text_encoder",
    "image_trunk",
    "text_trunk",
    "alignment",
    "matching",
    "attention",
]
ResettablePart = Literal[
    "text_encoder", "image_trunk", "text_trunk", "alignment", "matching", "attention"
]

TaskName = Literal[
    "matching",
    "alignment",
    "attention",
    "matching_boosting",
    "alignment_boosting",
    "attention_boosting",
    "matching_imitation",
    "alignment_imitation",
    "attention_imitation",
    "matching_quintuplet",
    "alignment_quintuplet",
    "attention_quintuplet",
    "distillation",
    "alignment_distillation",
    "intra_modal",
    "captions",
]

TASK_NAMES: tuple[str, ...] = get_args(TaskName)


def task_kind(task: str) -> TaskName:
    """Return the kind of a stage's task: its name up to a colon.

    ``matching_boosting:relative`` and ``matching_boosting:absolute`` are two tasks of one kind.
    """
    kind = task.partition(":")[0]
    if kind not in TASK_NAMES:
        raise ConfigError(f"unknown task {kind!r}, known are {sorted(TASK_NAMES)}")
    return cast(TaskName, kind)


def trained_score(task: str) -> ScoreName:
    """Return the score that a task trains: matching, unless its name says otherwise."""
    return next((name for name in get_args(ScoreName) if task.startswith(name)), "matching")


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """One task of a stage.

    Attributes:
        loss: Name of a loss, or MODULE:CLASS; see `aladin_training.losses.loss_class`.
        weight: Weight of this loss in the stage's sum.
        after_epochs: Number of epochs after which the task joins the others (A-7).
        options: Arguments of the loss.
    """

    loss: str
    weight: float = 1.0
    after_epochs: int = 0
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """Schedule of the learning rate over a stage.

    Attributes:
        shape: "cosine" falls to zero; "step" multiplies by `gamma` every `step_epochs`.
        warmup_steps: Number of steps of a linear rise from zero.
        step_epochs: Epochs between two reductions, for "step".
        gamma: Factor of a reduction, for "step".
    """

    shape: Literal["cosine", "step", "constant"] = "cosine"
    warmup_steps: int = 0
    step_epochs: int = 15
    gamma: float = 0.1


@dataclass(frozen=True, kw_only=True)
class OfflineNegativesConfig:
    """Hard negatives mined from the whole training split (AOQ).

    Attributes:
        stage: Earlier stage of this recipe whose network mines them.
        file: Alternatively, a file that `aladin mine` wrote for the same data.
        miner: Folder of the checkpoint that must have mined the file, or None for any.
        score: Score of the miner that ranks them.
        num_texts: Captions listed for each photo.
        num_images: Photos listed for each caption.
        coupled: Draw both negatives of a pair at one common rank and never again, as the
            official code does (Q-1).
        content: Required digest of the file's lists, or None for any; it is recorded when the run
            begins.
    """

    stage: str | None = None
    file: str | None = None
    miner: str | None = None
    score: ScoreName = "matching"
    num_texts: int = NUM_TEXTS
    num_images: int = NUM_IMAGES
    coupled: bool = False
    content: str | None = None

    @property
    def lists(self) -> Lists:
        """What is listed."""
        return Lists(self.score, self.num_texts, self.num_images)

    def __post_init__(self) -> None:
        check("offline: ", self._rules())

    def _rules(self) -> Iterator[Rule]:
        from_file = self.file is not None
        yield (self.stage is None) == from_file, "give either a stage or a file"
        yield (
            self.miner is None or from_file,
            "a miner requires a file; a stage mines with its own network",
        )
        yield (
            self.content is None or from_file,
            "content is that of a file's lists: it requires a file",
        )
        yield (
            min(self.num_texts, self.num_images) >= 1,
            "num_texts and num_images must be at least 1",
        )


@dataclass(frozen=True, kw_only=True)
class StageConfig:
    """One stage of training.

    Attributes:
        name: Unique name in the recipe.
        tasks: Tasks by name, keys of `aladin_training.tasks.TASKS`; several are trained jointly.
            Tasks of one kind are distinguished by a suffix after a colon, see `task_kind`.
        start: Stage from whose best weights this one starts, or None for the previous stage.
        teacher: Earlier stage whose frozen network is the teacher of the distillation tasks, or
            None for this network's own alignment scores.
        teacher_score: Score of the teacher that is distilled; "fused" is that of its second stage.
        anchors: Anchors of the boosting and imitation tasks.
        offline: Mined negatives of the quintuplet tasks.
        negatives: Which pairs of a batch may be negatives. "image": those of different photos;
            "diagonal": all except the pair itself, as in the papers' official codes (C-1).
        reset: Parts that start again from random weights; a first stage, from a fit to the stage's
            photos and captions. A text encoder only if it has no pretrained weights.
        train: Parts that are trained, or None for all that the encoders' configuration leaves free.
        tune: Encoders that are fine-tuned, whether or not they are frozen otherwise; they read
            photos and texts instead of cached features.
        frozen_dropout: Keep parts that are not trained in training mode, as ALADIN's official code
            does with its frozen backbone, instead of evaluation mode.
        share: Share of the training photos that the stage shows, always the same ones: what a
            network learns from less data (DBL).
        epochs: Passes over these photos.
        max_steps: Optimizer steps in place of `epochs`, however many passes they take, or None.
        batch_size: Photos in a step, over all processes.
        chunk_size: Photos, or texts, that a process encodes at a time, or None for all at once.
            Memory then holds one chunk's graph, and every encoder runs twice a step (GradCache).
        captions_per_photo: Random captions of each photo in a batch, where an epoch shows all
            photos; or None for one caption, where an epoch shows all captions, as in the papers.
        short_captions: Share of the captions that shorter texts of their own replace, as users type
            them: some phrases, a noun phrase, a noun. Not with `offline`, mined for whole captions.
        new_crops: Share of the photos that are shown in a random crop drawn anew, half of them
            mirrored, in place of one of the views of `data`. Not for a frozen image encoder or
            cached states, unless the photos are a stream.
        lr: Peak learning rate.
        lr_scale: Factors of the learning rate for single parts.
        weight_decay: Decoupled decay (AdamW), not applied to biases, norms and vectors.
        schedule: Schedule of the learning rate.
        clip_norm: Bound of the gradient's norm, applied to each branch separately.
        average_decay: Decay of the moving average of the weights; 0 validates the weights
            themselves.
        validate_every_epochs: Epochs between validations; the last epoch is always validated.
    """

    name: str
    tasks: dict[str, TaskConfig]
    start: str | None = None
    teacher: str | None = None
    teacher_score: Literal["alignment", "matching", "attention", "fused"] = "alignment"
    anchors: AnchorsConfig | None = None
    offline: OfflineNegativesConfig | None = None
    negatives: Literal["image", "diagonal"] = "image"
    reset: tuple[ResettablePart, ...] = ()
    train: tuple[Part, ...] | None = None
    tune: dict[EncoderPart, TuneConfig] = field(default_factory=dict)
    frozen_dropout: bool = False
    share: float = 1.0
    epochs: int = 10
    max_steps: int | None = None
    batch_size: int = 128
    chunk_size: int | None = None
    captions_per_photo: int | None = None
    short_captions: float = 0.0
    new_crops: float = 0.0
    lr: float = 1e-3
    lr_scale: dict[Part, float] = field(default_factory=dict)
    weight_decay: float = 0.0
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    clip_norm: float = 2.0
    average_decay: float = 0.0
    validate_every_epochs: int = 1

    def __post_init__(self) -> None:
        check(f"stage {self.name!r}: ", chain(self._ranges(), self._combinations()))

    def _ranges(self) -> Iterator[Rule]:
        for name in ("epochs", "batch_size", "validate_every_epochs"):
            value: int = getattr(self, name)
            yield value >= 1, f"{name} is {value}, expected at least 1"
        for name in ("captions_per_photo", "chunk_size", "max_steps"):
            count: int | None = getattr(self, name)
            yield count is None or count >= 1, f"{name} is {count}, expected at least 1 or null"
        yield 0 < self.share <= 1, f"share is {self.share}, expected above 0 and at most 1"
        yield self.lr > 0 and self.clip_norm > 0, "lr and clip_norm must be above 0"
        yield (
            0 <= self.short_captions <= (0 if self.offline else 1),
            f"short_captions is {self.short_captions}, expected 0 to 1",
        )
        yield 0 <= self.new_crops <= 1, f"new_crops is {self.new_crops}, expected 0 to 1"
        yield (
            0 <= self.average_decay < 1,
            f"average_decay is {self.average_decay}, expected [0, 1)",
        )

    def _combinations(self) -> Iterator[Rule]:
        yield bool(self.tasks), "expected at least one task"
        yield (
            any(not task.after_epochs for task in self.tasks.values()),
            "at least one task must begin with the stage",
        )
        for encoder in self.tune:
            yield (
                self.train is None or encoder in self.train,
                f"tune.{encoder}: expected {encoder} in train as well",
            )
        yield (
            not self._has("alignment_distillation") or self.teacher is not None,
            "alignment_distillation needs a teacher",
        )
        yield (
            (self._has("boosting") or self._has("imitation")) == (self.anchors is not None),
            "boosting or imitation and anchors require each other",
        )
        yield (
            self._has("quintuplet") == (self.offline is not None),
            "quintuplet tasks and offline negatives require each other",
        )
        yield (
            self.offline is None or self.captions_per_photo in (None, 1),
            "offline negatives require one caption for each photo",
        )

    def steps(self, batches_per_epoch: int) -> int:
        """Return the optimizer steps of the stage."""
        return self.max_steps or self.epochs * batches_per_epoch

    @property
    def needed_stages(self) -> dict[str, str]:
        """Names of the earlier stages that this one needs, by the key that refers to them."""
        needed = {
            "start": self.start,
            "teacher": self.teacher,
            "offline.stage": self.offline.stage if self.offline else None,
        }
        if self.anchors is not None:
            needed |= {f"anchors.{key}": name for key, name in self.anchors.needed_stages.items()}
        return {key: stage for key, stage in needed.items() if stage is not None}

    @property
    def trained_scores(self) -> frozenset[ScoreName]:
        """Scores that the tasks train."""
        return frozenset(trained_score(task) for task in self.tasks)

    def _has(self, kind: str) -> bool:
        return any(task_kind(task).endswith(kind) for task in self.tasks)
