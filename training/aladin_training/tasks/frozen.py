"""Frozen networks beside the trained one: teachers, and moving averages as anchors (DBL, MSS)."""

from __future__ import annotations

import copy
import math
from typing import Any, Literal

import torch
from torch import Tensor

from aladin_network.checkpoint_files import Checkpoint
from aladin_network.model import AladinModel
from aladin_network.types import ScoreName
from aladin_training.batches.batch import Batch
from aladin_training.optimization import follow
from aladin_training.tasks.scores import (
    BatchScores,
    Encode,
    FrozenNetwork,
    encode_directly,
)


class Teacher:
    """Scores batches with a trained network, in evaluation mode and without gradient.

    It is no submodule of the student's task: its weights are neither trained nor saved with them.
    """

    def __init__(
        self,
        checkpoint: Checkpoint[AladinModel],
        score: ScoreName | Literal["fused"],
        reads: str = "",
    ) -> None:
        """Freeze a trained network.

        Args:
            checkpoint: Checkpoint of the network; its fusion defines the fused score.
            score: Score that is taught.
            reads: Name of the network in `Batch.others`, if it has inputs of its own.
        """
        # One matrix serves both directions; their constants differ little.
        self._fusion = checkpoint.fusion.text_to_image
        self._network = FrozenNetwork(checkpoint.model, reads)
        self._score: ScoreName | Literal["fused"] = score

    @torch.no_grad()
    def scores(self, batch: Batch, encode: Encode = encode_directly) -> Tensor:
        """Return the (images, texts) scores of a batch."""
        scores = self._network(batch, encode)
        if self._score == "fused":
            # In standard deviations even with a weight of 1, for which searches use the plain
            # alignment score: a teacher's scale must not depend on the fitted weight.
            return self._fusion.standardized(scores.of("alignment"), scores.of("matching"))
        return scores.of(self._score)


class MomentumAnchor:
    """Moving average of the target's parameters that follows ever more slowly (D-6).

    Buffers keep their initial values.

    After step k of K::

        anchor <- beta_k anchor + (1 - beta_k) target
        beta_k  = 1 + (beta_0 - 1) (1 + cos(pi k / K)) / 2
    """

    def __init__(self, target: AladinModel, decay: float) -> None:
        """Start as a copy of the target.

        Args:
            target: Trained network.
            decay: Initial value beta_0.
        """
        self._decay = decay
        self.network = FrozenNetwork(copy.deepcopy(target))
        self._pairs = [
            (own, followed)
            for own, followed in zip(
                self.network.model.parameters(), target.parameters(), strict=True
            )
            if followed.requires_grad
        ]

    def __call__(self, batch: Batch, encode: Encode = encode_directly) -> BatchScores:
        """Encode the batch, in evaluation mode and without gradient."""
        return self.network(batch, encode)

    @torch.no_grad()
    def update(self, step: int, steps: int) -> None:
        """Update the average after an optimizer step.

        Args:
            step: Step k, counted from 0.
            steps: Number of steps K of the whole stage.
        """
        own, followed = zip(*self._pairs, strict=True)
        follow(list(own), list(followed), momentum(self._decay, step, steps))

    def state_dict(self) -> dict[str, Any]:
        """Return the state for `load_state_dict`."""
        return {"values": [own.detach().clone() for own, _ in self._pairs]}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state of the same network."""
        for (own, _), value in zip(self._pairs, state["values"], strict=True):
            own.copy_(value)


def momentum(decay: float, step: int, steps: int) -> float:
    """Return beta_k, which rises from `decay` to almost 1 over a stage."""
    return 1 + (decay - 1) * (1 + math.cos(math.pi * step / steps)) / 2
