"""A constraint on how embeddings of one modality lie to each other (IMC)."""

from __future__ import annotations

import torch
from torch import Tensor

from training.tasks.base import PairTask
from training.tasks.scores import BatchScores


class IntraModalTask(PairTask):
    """The intra-modal constraint on the photos' embeddings plus that on the captions'.

    It goes beside a ranking task on the matching (IMC eq 3).
    """

    def forward(self, scores: BatchScores) -> Tensor:
        """Return the scalar loss of a batch."""
        images, texts = scores.embeddings()
        # In float32: bfloat16's steps near 1 are too wide for bounds such as 0.95.
        with torch.autocast(images.device.type, enabled=False):
            return self.loss(images) + self.loss(texts)
