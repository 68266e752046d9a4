"""A stage's task: the network, the terms of its loss, and what they share of a batch."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from aladin.errors import ConfigError
from aladin.model import AladinModel
from aladin.scoring import matching_scores
from training.losses import LOSSES
from training.recipe import StageConfig, TaskConfig
from training.tasks import TASKS
from training.tasks.base import Batch, PairScores, PairTask
from training.tasks.parts import set_trained_parts, set_training_mode
from training.tasks.teacher import Teacher


class LossReport(NamedTuple):
    """The loss of a batch.

    Attributes:
        total: weighted sum, to be minimised.
        terms: each task's own loss, unweighted, detached.
    """

    total: Tensor
    terms: dict[str, Tensor]


class JointTask(nn.Module):
    """Encode a batch once, score its pairs, and sum the losses of one task or of several.

    Joint training of ALADIN (A/ft + D/ft) is an alignment and a distillation task; a teacher is
    an alignment task alone. What the stage does not train stays in evaluation mode.
    """

    def __init__(
        self, model: AladinModel, stage: StageConfig, teacher: Teacher | None = None
    ) -> None:
        """Set the network up for a stage.

        Args:
            model: the network; its trained parts are chosen here.
            stage: tasks and trained parts.
            teacher: of the distillation tasks; None: the network's own alignment scores.

        Raises:
            ConfigError: an unknown loss, or options that it does not take.
        """
        super().__init__()
        self.model = model
        self._teacher = teacher
        set_trained_parts(model, stage.train)
        self.weights = {name: config.weight for name, config in stage.tasks.items()}
        self.terms = nn.ModuleDict(
            {name: TASKS[name](build_loss(config)) for name, config in stage.tasks.items()}
        )
        self.needs = frozenset[str]().union(*(term.needs for term in self._tasks().values()))
        self.trains = frozenset[str]().union(*(term.trains for term in self._tasks().values()))

    def train(self, mode: bool = True) -> JointTask:
        """Switch the mode; parts that this stage does not train stay in evaluation mode."""
        super().train(mode)
        if mode:
            set_training_mode(self.model)
        return self

    def forward(self, batch: Batch) -> LossReport:
        """Compute the loss of a batch."""
        images = self.model.encode_images(batch.images)
        texts = self.model.encode_texts(batch.texts)
        own_teacher = "teacher" in self.needs and self._teacher is None
        align = "alignment" in self.needs or own_teacher
        scores = PairScores(
            alignment=self.model.alignment_scores(images, texts) if align else None,
            matching=matching_scores(images, texts) if "matching" in self.needs else None,
            captions=matching_scores(texts, texts) if "captions" in self.needs else None,
        )
        if own_teacher:
            scores = scores._replace(teacher=scores.alignment)
        elif "teacher" in self.needs and self._teacher is not None:
            scores = scores._replace(teacher=self._teacher.scores(batch))
        losses = {name: task(scores, batch.negatives) for name, task in self._tasks().items()}
        total = sum(self.weights[name] * loss for name, loss in losses.items())
        return LossReport(total, {name: loss.detach() for name, loss in losses.items()})  # type: ignore[arg-type]

    def _tasks(self) -> dict[str, PairTask]:
        return dict(self.terms.items())  # type: ignore[arg-type]


def build_loss(config: TaskConfig) -> nn.Module:
    """Build the loss that a recipe names.

    Raises:
        ConfigError: an unknown loss, or options that it does not take.
    """
    if config.loss not in LOSSES:
        raise ConfigError(f"unknown loss {config.loss!r}, known are {sorted(LOSSES)}")
    try:
        return LOSSES[config.loss](**config.options)
    except TypeError as error:
        raise ConfigError(f"loss {config.loss!r}: {error}") from None
