"""A stage's task: the network, the terms of its loss, and what they share of a batch.

Branches that are trained together, each boosted by those before it (DBL, OSS).
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from aladin_network.errors import ConfigError
from aladin_network.model import AladinModel
from aladin_training.adapters.parts import set_trained_parts, set_training_mode
from aladin_training.batches.batch import Batch
from aladin_training.config.stage import StageConfig, TaskConfig, task_kind
from aladin_training.losses import LOSSES
from aladin_training.tasks import TASKS
from aladin_training.tasks.frozen import MomentumAnchor
from aladin_training.tasks.pair_tasks import PairTask
from aladin_training.tasks.scores import (
    BatchScorer,
    BatchScores,
    BatchTeacher,
    Encode,
    encode_directly,
)


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
        self,
        model: AladinModel,
        stage: StageConfig,
        teacher: BatchTeacher | None = None,
        anchors: Sequence[BatchScorer] = (),
        reads: str = "",
    ) -> None:
        """Set the network up for a stage.

        Args:
            model: the network; its trained parts are chosen here.
            stage: tasks and trained parts.
            teacher: of the distillation tasks; None: the network's own alignment scores.
            anchors: of the boosting tasks, networks that do not learn from this task's loss.
            reads: the network's name in `Batch.others`, if it stands there.

        Raises:
            ConfigError: an unknown loss, options that it does not take, or a loss that does not
                fit its task.
        """
        super().__init__()
        self.model = model
        self.stage = stage
        self._teacher = teacher
        self.anchors = tuple(anchors)
        self._reads = reads
        set_trained_parts(model, stage.train, stage.tune)
        self.terms = nn.ModuleDict(build_tasks(stage))
        self._epoch = 0

    @property
    def branches(self) -> tuple[JointTask, ...]:
        """The networks that are trained, each with its tasks; the last one is the target."""
        return (self,)

    def train(self, mode: bool = True) -> JointTask:
        """Switch the mode; parts that this stage does not train stay in evaluation mode."""
        super().train(mode)
        if mode and not self.stage.frozen_dropout:
            set_training_mode(self.model)
        return self

    def start_epoch(self, epoch: int) -> None:
        """Get ready to train; from here on the tasks of this epoch, counted from 0, take part."""
        self._epoch = epoch
        self.train()

    def forward(self, batch: Batch, encode: Encode = encode_directly) -> LossReport:
        """Compute the loss of a batch.

        Args:
            batch: this process's share of it.
            encode: runs the encoders of the network, its anchors and its teacher.
        """
        return self.report(self.scores(batch, encode))

    def scores(self, batch: Batch, encode: Encode) -> BatchScores:
        """Encode a batch with this network and with its anchors."""
        seen = [anchor(batch, encode) for anchor in self.anchors]
        own = batch.for_network(self._reads)
        return BatchScores(self.model, own, encode, seen, self._teacher)

    def report(self, scores: BatchScores) -> LossReport:
        """Sum the losses of a batch."""
        active = {
            name: task
            for name, task in self.terms.items()
            if self.stage.tasks[name].after_epochs <= self._epoch
        }
        losses = {name: task(scores) for name, task in active.items()}
        weights = {name: config.weight for name, config in self.stage.tasks.items()}
        total = torch.stack([weights[name] * loss for name, loss in losses.items()]).sum()
        return LossReport(total, {name: loss.detach() for name, loss in losses.items()})

    def after_step(self, step: int, steps: int) -> None:
        """Let momentum anchors follow; `step` of `steps` has just been taken, from 0."""
        for anchor in self._momentum_anchors():
            anchor.update(step, steps)

    def anchor_state(self) -> list[dict[str, Any]]:
        """Return the state of the momentum anchors, which is none of the trained weights."""
        return [anchor.state_dict() for anchor in self._momentum_anchors()]

    def load_anchor_state(self, state: list[dict[str, Any]]) -> None:
        """Go on from a saved `anchor_state`."""
        for anchor, own in zip(self._momentum_anchors(), state, strict=True):
            anchor.load_state_dict(own)

    def _momentum_anchors(self) -> list[MomentumAnchor]:
        return [anchor for anchor in self.anchors if isinstance(anchor, MomentumAnchor)]


def build_tasks(stage: StageConfig) -> dict[str, PairTask]:
    """Build the tasks of a stage with their losses.

    Raises:
        ConfigError: an unknown loss, options that it does not take, or a loss that does not fit
            its task.
    """
    tasks: dict[str, PairTask] = {}
    for name, config in stage.tasks.items():
        loss = build_loss(config)
        parameters = inspect.signature(loss.forward).parameters
        needed = tuple(key for key, each in parameters.items() if each.default is each.empty)
        kind = TASKS[task_kind(name)]
        if needed != kind.takes:
            raise ConfigError(
                f"stage {stage.name!r}: task {name} gives its loss {', '.join(kind.takes)}; "
                f"loss {config.loss!r} takes {', '.join(needed)}"
            )
        tasks[name] = kind.build(loss)
    return tasks


def build_loss(config: TaskConfig) -> nn.Module:
    if config.loss not in LOSSES:
        raise ConfigError(f"unknown loss {config.loss!r}, known are {sorted(LOSSES)}")
    try:
        return LOSSES[config.loss](**config.options)
    except TypeError as error:
        raise ConfigError(f"loss {config.loss!r}: {error}") from None


class OnlineBranches(nn.Module):
    """Several networks on the same batches, all in training mode.

    All scores of a batch are computed before any branch takes its step, and no gradient passes
    between branches, so one optimizer over all of them takes the steps of one for each.
    """

    def __init__(self, anchors: Sequence[JointTask], target: JointTask) -> None:
        """Put the branches in order.

        Args:
            anchors: the first has no anchor, the second the first, and so on.
            target: boosted by all of them; the network that the stage is about.
        """
        super().__init__()
        self._branches = nn.ModuleList([*anchors, target])

    @property
    def branches(self) -> tuple[JointTask, ...]:
        """The networks that are trained, each with its tasks; the last one is the target."""
        return tuple(cast(JointTask, branch) for branch in self._branches)

    def start_epoch(self, epoch: int) -> None:
        """Get all branches ready to train."""
        for branch in self.branches:
            branch.start_epoch(epoch)

    def forward(self, batch: Batch, encode: Encode = encode_directly) -> LossReport:
        """Compute the losses of all branches; the terms shown are the target's."""
        scores = [branch.scores(batch, encode) for branch in self.branches]
        for number, own in enumerate(scores):
            own.anchors = tuple(scores[:number])
        reports = [branch.report(own) for branch, own in zip(self.branches, scores, strict=True)]
        total = sum((report.total for report in reports[:-1]), reports[-1].total)
        return LossReport(total, reports[-1].terms)

    def after_step(self, step: int, steps: int) -> None:
        """Do nothing: online anchors follow nobody."""

    def anchor_state(self) -> list[dict[str, Any]]:
        """Return nothing: all branches are trained weights."""
        return []

    def load_anchor_state(self, state: list[dict[str, Any]]) -> None:
        """Do nothing."""
