"""How a stage fine-tunes an encoder.

One stage of a recipe: what is trained, on which losses, with whose help.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from aladin_network.errors import ConfigError
from aladin_network.types import ScoreName
from aladin_training.config.defaults import NUM_IMAGES, NUM_TEXTS

EncoderPart = Literal["image_encoder", "text_encoder"]
TuneMode = Literal["full", "last", "lora"]


@dataclass(frozen=True, kw_only=True)
class FineTuneConfig:
    """Fine-tuning of one encoder in a stage.

    Attributes:
        mode: "full": all of its weights; "last": its last `layers` layers and what follows them;
            "lora": low-rank changes of its matrices, which are added to these when the stage
            ends (Hu et al., LoRA, 2021).
        layers: for "last".
        rank: of the changes, for "lora" as all that follows up to `targets`.
        alpha: the changes count alpha / rank times.
        dropout: of what enters the changes.
        targets: ends of the names of the modules that are changed, e.g. ("query", "value"); None:
            all linear maps of the encoder's layers, and their 1 x 1 convolutions.
        lr_decay: each layer learns so many times as fast as the one above it, and the embeddings
            slowest; the last layer, and what follows it, at the encoder's own rate.
        checkpointing: compute the layers' inner states again in the backward pass instead of
            keeping them: about a third more time for a fraction of the memory.
    """

    mode: TuneMode = "full"
    layers: int | None = None
    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.0
    targets: tuple[str, ...] | None = None
    lr_decay: float = 1.0
    checkpointing: bool = False

    def __post_init__(self) -> None:
        """Refuse impossible values.

        Raises:
            ConfigError: a value is out of its range, or belongs to another mode.
        """
        if (self.mode == "last") != (self.layers is not None):
            raise ConfigError('tune: mode "last" and layers need each other')
        if self.layers is not None and self.layers < 1:
            raise ConfigError(f"tune: layers is {self.layers}, expected at least 1")
        if self.rank < 1 or self.alpha <= 0:
            raise ConfigError("tune: rank must be at least 1 and alpha above 0")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"tune: dropout is {self.dropout}, expected [0, 1)")
        if self.targets is not None and (self.mode != "lora" or not self.targets):
            raise ConfigError('tune: targets go with mode "lora", and name at least one')
        if not 0 < self.lr_decay <= 1:
            raise ConfigError(f"tune: lr_decay is {self.lr_decay}, expected (0, 1]")


Part = Literal[
    "image_encoder",
    "text_encoder",
    "image_trunk",
    "text_trunk",
    "alignment",
    "matching",
    "attention",
]
ResettablePart = Literal["image_trunk", "text_trunk", "alignment", "matching", "attention"]

TaskName = Literal[
    "matching",
    "alignment",
    "attention",
    "matching_boosting",
    "alignment_boosting",
    "attention_boosting",
    "matching_quintuplet",
    "alignment_quintuplet",
    "attention_quintuplet",
    "distillation",
    "alignment_distillation",
    "intra_modal",
    "captions",
]

TASK_NAMES: tuple[str, ...] = get_args(TaskName)

# In place of a stage's name: an anchor branch that starts from new weights.
RANDOM = "random"


def task_kind(task: str) -> TaskName:
    """Return what a stage's task is: its name up to a colon.

    ``matching_boosting:relative`` and ``matching_boosting:absolute`` are two tasks of one kind.

    Raises:
        ConfigError: there is no such kind.
    """
    kind = task.partition(":")[0]
    if kind not in TASK_NAMES:
        raise ConfigError(f"unknown task {kind!r}, known are {sorted(TASK_NAMES)}")
    return cast(TaskName, kind)


def trained_score(task: str) -> ScoreName:
    """Return the score that a task is to better; the matching where the name says none."""
    if task.startswith("alignment"):
        return "alignment"
    return "attention" if task.startswith("attention") else "matching"


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """One task of a stage.

    Attributes:
        loss: key in `aladin_training.losses.LOSSES`.
        weight: of this loss in the stage's sum.
        after_epochs: the task joins the stage after so many epochs of the others (A-7).
        options: arguments of the loss.
    """

    loss: str
    weight: float = 1.0
    after_epochs: int = 0
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
class AnchorsConfig:
    """The anchor branches of deep boosting learning (DBL).

    The boosting losses of the stage are averaged over the anchors: M branches are M - 1 anchors
    and the target.

    Attributes:
        scenario: where the anchors come from. "offline" (OAS): the frozen networks of earlier
            stages. "online" (OSS): networks that are trained along on the same batches, each
            boosted by those before it, the first by none. "momentum" (MSS): moving averages of
            the target's weights.
        stages: one anchor for each. Offline: the stage whose network it is. Online: the stage
            whose weights it starts from, or "random".
        decays: momentum: one anchor for each, its beta at the stage's start, in [0, 1].
    """

    scenario: Literal["offline", "online", "momentum"]
    stages: tuple[str, ...] = ()
    decays: tuple[float, ...] = (0.99995,)

    def __post_init__(self) -> None:
        """Refuse impossible values.

        Raises:
            ConfigError: no anchor, or a decay out of its range.
        """
        if self.scenario == "momentum":
            if self.stages:
                raise ConfigError("anchors: momentum anchors follow the target; give no stages")
            if not self.decays or not all(0 <= decay <= 1 for decay in self.decays):
                raise ConfigError(f"anchors: decays are {self.decays}, expected some in [0, 1]")
        elif not self.stages:
            raise ConfigError(f"anchors: the {self.scenario} scenario needs stages")


@dataclass(frozen=True, kw_only=True)
class OfflineNegativesConfig:
    """Hard negatives mined from the whole training split (AOQ).

    Attributes:
        stage: earlier stage of this recipe whose network mines them.
        file: or a file that `aladin mine` wrote of the same data.
        miner: folder of the checkpoint that must have mined the file; None: any may have.
        score: of the miner that ranks them.
        num_texts: captions listed for each photo.
        num_images: photos listed for each caption.
        coupled: draw both negatives of a pair at one common rank and never again, as the
            official code does (Q-1).
    """

    stage: str | None = None
    file: str | None = None
    miner: str | None = None
    score: ScoreName = "matching"
    num_texts: int = NUM_TEXTS
    num_images: int = NUM_IMAGES
    coupled: bool = False

    def __post_init__(self) -> None:
        """Refuse impossible values.

        Raises:
            ConfigError: not just one source, or an empty list.
        """
        if (self.stage is None) == (self.file is None):
            raise ConfigError("offline: give either a stage or a file")
        if self.miner is not None and self.file is None:
            raise ConfigError("offline: a miner goes with a file; a stage's own network mines")
        if self.num_texts < 1 or self.num_images < 1:
            raise ConfigError("offline: num_texts and num_images must be at least 1")


@dataclass(frozen=True, kw_only=True)
class StageConfig:
    """One stage of training.

    Attributes:
        name: unique in the recipe.
        tasks: by name, keys of `aladin_training.tasks.TASKS`; more than one is joint training. Two
            tasks of one kind are told apart by what follows a colon, see `task_kind`.
        start: stage whose best weights this one starts from; None: the previous stage's.
        teacher: earlier stage whose frozen network is the teacher of the distillation tasks;
            None: this network's own alignment scores are.
        teacher_score: the teacher's score that is distilled; "fused" is that of its second stage.
        anchors: of the boosting tasks.
        offline: the mined negatives of the quintuplet tasks.
        negatives: which pairs of a batch may serve as such. "image": those of different photos;
            "diagonal": all but the pair itself, as the papers' official codes do (C-1).
        reset: parts that start at random again.
        train: parts that are trained; None: all that the encoders' configuration leaves free.
        tune: encoders that are fine-tuned, frozen otherwise or not; they read photos and texts
            themselves instead of cached features.
        frozen_dropout: leave what is not trained in training mode, as ALADIN's official code
            does with its frozen backbone; else it is in evaluation mode.
        epochs: passes over the training split.
        batch_size: photos a step, those of all processes together.
        chunk_size: photos, or texts, that a process encodes at a time; memory is that of one
            chunk's graph then, and every encoder runs twice a step (GradCache). None: all at once.
        captions_per_photo: random captions of each photo in a batch, an epoch being all photos;
            None: one caption each, an epoch being all captions, as the papers sample.
        lr: peak learning rate.
        lr_scale: factor for single parts.
        weight_decay: decoupled (AdamW), not on biases, norms and vectors.
        schedule: of the learning rate.
        clip_norm: bound of the gradient's norm, of each branch for itself.
        average_decay: decay of the weights' moving average; 0 validates the weights themselves.
        validate_every_epochs: how often; the last epoch always is.
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
    tune: dict[EncoderPart, FineTuneConfig] = field(default_factory=dict)
    frozen_dropout: bool = False
    epochs: int = 10
    batch_size: int = 128
    chunk_size: int | None = None
    captions_per_photo: int | None = None
    lr: float = 1e-3
    lr_scale: dict[Part, float] = field(default_factory=dict)
    weight_decay: float = 0.0
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    clip_norm: float = 2.0
    average_decay: float = 0.0
    validate_every_epochs: int = 1

    def __post_init__(self) -> None:
        """Refuse impossible values and combinations.

        Raises:
            ConfigError: a count or a rate is out of its range, or a task lacks what it needs.
        """
        where = f"stage {self.name!r}"
        for name in ("epochs", "batch_size", "validate_every_epochs"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{where}: {name} is {getattr(self, name)}, expected at least 1")
        for name in ("captions_per_photo", "chunk_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{where}: {name} is {value}, expected at least 1 or null")
        if self.lr <= 0 or self.clip_norm <= 0:
            raise ConfigError(f"{where}: lr and clip_norm must be above 0")
        if not 0 <= self.average_decay < 1:
            raise ConfigError(f"{where}: average_decay is {self.average_decay}, expected [0, 1)")
        if not self.tasks:
            raise ConfigError(f"{where}: give it at least one task")
        if all(task.after_epochs for task in self.tasks.values()):
            raise ConfigError(f"{where}: one task at least must begin with the stage")
        for encoder in self.tune:
            if self.train is not None and encoder not in self.train:
                raise ConfigError(f"{where}: tune.{encoder}: train does not list it")
        if self._has("alignment_distillation") and self.teacher is None:
            raise ConfigError(f"{where}: alignment_distillation needs a teacher")
        if self._has("boosting") != (self.anchors is not None):
            raise ConfigError(f"{where}: boosting tasks and anchors need each other")
        if self._has("quintuplet") != (self.offline is not None):
            raise ConfigError(f"{where}: quintuplet tasks and offline negatives need each other")
        if self.offline is not None and self.captions_per_photo not in (None, 1):
            raise ConfigError(f"{where}: offline negatives need one caption a photo")

    @property
    def needed_stages(self) -> dict[str, str]:
        """Names of earlier stages that this one needs, by what needs them."""
        needed = {
            "start": self.start,
            "teacher": self.teacher,
            "offline.stage": self.offline.stage if self.offline else None,
        }
        for number, stage in enumerate(self.anchors.stages if self.anchors else ()):
            online = self.anchors is not None and self.anchors.scenario == "online"
            if not (online and stage == RANDOM):
                needed[f"anchors.stages[{number}]"] = stage
        return {key: stage for key, stage in needed.items() if stage is not None}

    @property
    def trained_scores(self) -> frozenset[ScoreName]:
        """The scores that the tasks are to better."""
        return frozenset(trained_score(task) for task in self.tasks)

    def _has(self, kind: str) -> bool:
        return any(task_kind(task).endswith(kind) for task in self.tasks)
