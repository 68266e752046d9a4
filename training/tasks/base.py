"""The contract between a network's scores of a batch and a loss."""

from __future__ import annotations

from torch import Tensor, nn

from training.tasks.scores import BatchScores


class PairTask(nn.Module):
    """One term of a stage's loss; owns its loss, and so the loss's trained parameters."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, scores: BatchScores) -> Tensor:
        """Return the scalar loss of a batch."""
        raise NotImplementedError
