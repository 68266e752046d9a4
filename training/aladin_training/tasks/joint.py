"""The task of a stage: one network with its losses, or several trained together (DBL, OSS)."""

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
from aladin_training.losses import loss_class
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
        total: Weighted sum, to be minimised.
        terms: Loss of each task, unweighted and detached.
        weighted: Loss of each task, weighted and with its graph.
        shares: Share of each task in the gradient, where it was measured: the norm of the gradient
            of its weighted loss at the encodings (embeddings and tokens), over the sum of these
            norms of all tasks.
    """

    total: Tensor
    terms: dict[str, Tensor]
    weighted: dict[str, Tensor]
    shares: dict[str, float]


class JointTask(nn.Module):
    """Encodes a batch once, scores its pairs, and sums the losses of one or several tasks.

    Joint training of ALADIN (A/ft + D/ft) is an alignment and a distillation task; a teacher is
    an alignment task alone. Parts that the stage does not train stay in evaluation mode.

    Attributes:
        momentum_anchors: Anchors that follow the trained parameters; they are made of the task's
            own network, and so after it.
    """

    def __init__(
        self,
        model: AladinModel,
        stage: StageConfig,
        teacher: BatchTeacher | None = None,
        anchors: Sequence[BatchScorer] = (),
        reads: str = "",
    ) -> None:
        """Set up the network for a stage.

        Args:
            model: Network, whose trained parts are chosen here.
            stage: Tasks and trained parts.
            teacher: Teacher of the distillation tasks, or None for the network's own alignment.
            anchors: Anchors of the boosting tasks, which do not learn from this task's loss.
            reads: Name of the network in `Batch.others`, if it has inputs of its own.

        Raises:
            ConfigError: If a loss is unknown, does not take its options, or does not fit its
                task.
        """
        super().__init__()
        self.model = model
        self.stage = stage
        self._teacher = teacher
        self.anchors = tuple(anchors)
        self.momentum_anchors: tuple[MomentumAnchor, ...] = ()
        self._reads = reads
        set_trained_parts(model, stage.train, stage.tune)
        # Beside the network: losses may have parameters, such as a temperature.
        self.terms = nn.ModuleDict(build_tasks(stage)).to(next(model.parameters()).device)
        self._epoch = 0

    @property
    def branches(self) -> tuple[JointTask, ...]:
        """Trained networks, each with its tasks; the last one is the target."""
        return (self,)

    def train(self, mode: bool = True) -> JointTask:
        """Switch the mode; parts that this stage does not train stay in evaluation mode."""
        super().train(mode)
        if mode and not self.stage.frozen_dropout:
            set_training_mode(self.model)
        return self

    def start_epoch(self, epoch: int) -> None:
        """Prepare for an epoch, counted from 0, and activate the tasks that have begun by then."""
        self._epoch = epoch
        self.train()

    def forward(self, batch: Batch, encode: Encode = encode_directly) -> LossReport:
        """Compute the loss of a batch.

        Args:
            batch: This process's share of the batch.
            encode: Runs the encoders of the network, its anchors and its teacher.
        """
        return self.report(self.scores(batch, encode))

    def scores(self, batch: Batch, encode: Encode) -> BatchScores:
        """Encode a batch with this network and with its anchors."""
        seen = [anchor(batch, encode) for anchor in (*self.anchors, *self.momentum_anchors)]
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
        weighted = {name: self.stage.tasks[name].weight * loss for name, loss in losses.items()}
        terms = {name: loss.detach() for name, loss in losses.items()}
        return LossReport(torch.stack(list(weighted.values())).sum(), terms, weighted, shares={})

    def scalars(self) -> dict[str, float]:
        """Return the numbers that the losses report of themselves, by ``TASK_NAME``."""
        return {
            f"{task}_{name}": torch.as_tensor(value).item()
            for task, term in self.terms.items()
            for name, value in getattr(term.loss, "scalars", dict)().items()
        }

    def after_step(self, step: int, steps: int) -> None:
        """Update momentum anchors after `step` (from 0) of `steps`."""
        for anchor in self.momentum_anchors:
            anchor.update(step, steps)

    def anchor_state(self) -> list[dict[str, Any]]:
        """Return the state of the momentum anchors, which are not among the trained weights."""
        return [anchor.state_dict() for anchor in self.momentum_anchors]

    def load_anchor_state(self, state: list[dict[str, Any]]) -> None:
        """Restore a saved `anchor_state`."""
        for anchor, own in zip(self.momentum_anchors, state, strict=True):
            anchor.load_state_dict(own)


def build_tasks(stage: StageConfig) -> dict[str, PairTask]:
    """Build the tasks of a stage with their losses.

    Raises:
        ConfigError: If a loss is unknown, does not take its options, or does not fit its task.
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
    kind = loss_class(config.loss)
    try:
        return kind(**config.options)
    except TypeError as error:
        raise ConfigError(f"loss {config.loss!r}: {error}") from None


class OnlineBranches(nn.Module):
    """Several networks trained on the same batches, each boosted by those before it.

    All scores of a batch are computed before any branch is updated, and no gradient passes between
    branches, so that one optimizer over all of them is equivalent to one for each.
    """

    def __init__(
        self, anchors: Sequence[JointTask], target: JointTask, mutual: bool = False
    ) -> None:
        """Order the branches.

        Args:
            anchors: Anchors; the first has no anchor itself, the second has the first, and so on.
            target: Network that the stage trains, boosted by all anchors.
            mutual: All other branches are the anchors of each branch.
        """
        super().__init__()
        self._mutual = mutual
        self._branches = nn.ModuleList([*anchors, target])

    @property
    def branches(self) -> tuple[JointTask, ...]:
        """Trained networks, each with its tasks; the last one is the target."""
        return tuple(cast(JointTask, branch) for branch in self._branches)

    def start_epoch(self, epoch: int) -> None:
        """Prepare all branches for an epoch."""
        for branch in self.branches:
            branch.start_epoch(epoch)

    def forward(self, batch: Batch, encode: Encode = encode_directly) -> LossReport:
        """Compute the losses of all branches; the reported terms are the target's."""
        scores = [branch.scores(batch, encode) for branch in self.branches]
        for number, own in enumerate(scores):
            after = scores[number + 1 :] if self._mutual else []
            own.anchors = (*scores[:number], *after)
        reports = [branch.report(own) for branch, own in zip(self.branches, scores, strict=True)]
        total = sum((report.total for report in reports[:-1]), reports[-1].total)
        return reports[-1]._replace(total=total)

    def after_step(self, step: int, steps: int) -> None:
        """Do nothing: online anchors are trained."""

    def anchor_state(self) -> list[dict[str, Any]]:
        """Return an empty list: all branches are trained weights."""
        return []

    def load_anchor_state(self, state: list[dict[str, Any]]) -> None:
        """Do nothing."""
