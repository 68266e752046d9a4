"""A frozen network whose scores others learn from."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from aladin.checkpoint import Checkpoint
from aladin.scoring import matching_scores
from training.tasks.base import Batch


class Teacher:
    """Scores batches with a trained network, in evaluation mode and without gradient.

    No module of the student's task: its weights are neither trained nor saved with them.
    """

    def __init__(
        self, checkpoint: Checkpoint, score: Literal["alignment", "matching", "fused"]
    ) -> None:
        """Take a trained network.

        Args:
            checkpoint: of the network; its fusion makes the fused score.
            score: which score is taught.
        """
        self._checkpoint = checkpoint
        self._score = score
        checkpoint.model.eval().requires_grad_(False)

    @torch.no_grad()
    def scores(self, batch: Batch) -> Tensor:
        """Return the (images, texts) scores of a batch."""
        model = self._checkpoint.model
        images, texts = model.encode_images(batch.images), model.encode_texts(batch.texts)
        if self._score == "matching":
            return matching_scores(images, texts)
        align = model.alignment_scores(images, texts)
        if self._score == "alignment":
            return align
        # One matrix serves both directions; the constants of the two differ little.
        fusion = self._checkpoint.fusion.text_to_image
        return fusion.combine(align, matching_scores(images, texts))
