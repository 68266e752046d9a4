"""A frozen network whose scores others learn from."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from aladin.checkpoint import Checkpoint
from aladin.scoring import ScoreName
from training.tasks.batch import Batch
from training.tasks.scores import Encode, FrozenNetwork, encode_directly


class Teacher:
    """Scores batches with a trained network, in evaluation mode and without gradient.

    No module of the student's task: its weights are neither trained nor saved with them.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        score: ScoreName | Literal["fused"],
        reads: str = "",
    ) -> None:
        """Take a trained network.

        Args:
            checkpoint: of the network; its fusion makes the fused score.
            score: which score is taught.
            reads: the network's name in `Batch.others`, if it stands there.
        """
        # One matrix serves both directions; the constants of the two differ little.
        self._fusion = checkpoint.fusion.text_to_image
        self._network = FrozenNetwork(checkpoint.model, reads)
        self._score: ScoreName | Literal["fused"] = score

    @torch.no_grad()
    def scores(self, batch: Batch, encode: Encode = encode_directly) -> Tensor:
        """Return the (images, texts) scores of a batch."""
        scores = self._network(batch, encode)
        if self._score == "fused":
            return self._fusion.combine(scores.of("alignment"), scores.of("matching"))
        return scores.of(self._score)
