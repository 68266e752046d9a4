"""The tasks that a stage can train on, by their names in recipes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from torch import nn

from aladin_training.config.stage import TaskName
from aladin_training.tasks.pair_tasks import (
    BoostingTask,
    CaptionTask,
    DistillationTask,
    ImitationTask,
    IntraModalTask,
    PairTask,
    QuintupletTask,
    RankingTask,
)

_RANKING = ("scores", "negatives")
_BOOSTING = ("scores", "anchor_scores", "negatives")
_QUINTUPLET = ("scores", "offline", "negatives")
_DISTILLATION = ("student_scores", "teacher_scores")


class TaskKind(NamedTuple):
    """A kind of task.

    Attributes:
        build: Builds the task around its loss.
        takes: Required arguments of the losses that fit the task.
    """

    build: Callable[[nn.Module], PairTask]
    takes: tuple[str, ...]


TASKS: dict[TaskName, TaskKind] = {
    "matching": TaskKind(partial(RankingTask, score="matching"), _RANKING),
    "alignment": TaskKind(partial(RankingTask, score="alignment"), _RANKING),
    "attention": TaskKind(partial(RankingTask, score="attention"), _RANKING),
    "matching_boosting": TaskKind(partial(BoostingTask, score="matching"), _BOOSTING),
    "alignment_boosting": TaskKind(partial(BoostingTask, score="alignment"), _BOOSTING),
    "attention_boosting": TaskKind(partial(BoostingTask, score="attention"), _BOOSTING),
    "matching_imitation": TaskKind(partial(ImitationTask, score="matching"), _DISTILLATION),
    "alignment_imitation": TaskKind(partial(ImitationTask, score="alignment"), _DISTILLATION),
    "attention_imitation": TaskKind(partial(ImitationTask, score="attention"), _DISTILLATION),
    "matching_quintuplet": TaskKind(partial(QuintupletTask, score="matching"), _QUINTUPLET),
    "alignment_quintuplet": TaskKind(partial(QuintupletTask, score="alignment"), _QUINTUPLET),
    "attention_quintuplet": TaskKind(partial(QuintupletTask, score="attention"), _QUINTUPLET),
    "distillation": TaskKind(partial(DistillationTask, score="matching"), _DISTILLATION),
    "alignment_distillation": TaskKind(partial(DistillationTask, score="alignment"), _DISTILLATION),
    "intra_modal": TaskKind(IntraModalTask, ("embeddings",)),
    "captions": TaskKind(CaptionTask, _RANKING),
}
