"""Branches that are trained together, each boosted by those before it (DBL, OSS)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from torch import nn

from training.tasks.batch import Batch
from training.tasks.joint import JointTask, LossReport
from training.tasks.scores import Encode, encode_directly


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
