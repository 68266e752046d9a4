"""What a stage trains on, by the name that recipes use."""

from __future__ import annotations

from training.tasks.alignment import AlignmentTask
from training.tasks.base import PairTask
from training.tasks.captions import CaptionTask
from training.tasks.distillation import AlignmentDistillationTask, DistillationTask
from training.tasks.matching import MatchingTask

TASKS: dict[str, type[PairTask]] = {
    "alignment": AlignmentTask,
    "matching": MatchingTask,
    "distillation": DistillationTask,
    "alignment_distillation": AlignmentDistillationTask,
    "captions": CaptionTask,
}
