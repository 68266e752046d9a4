"""DarkRank: transfer of a ranking (DR), one of DBL's rivals."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from aladin_network.errors import ConfigError
from aladin_training.losses.teachers import ScoreTransferLoss

Distance = Literal["cosine", "score"]


class DarkRankLoss(ScoreTransferLoss):
    """The student should find the teacher's order of a query's next best candidates likely.

    With x the negated distance ``-alpha d^beta`` of the student, and c_1 ... c_n the candidates at
    the places 2 ... n + 1 of the teacher's order of a query::

        L = mean over queries of -sum_k ( x[c_k] - log sum_{m >= k} exp x[c_m] )

    the two directions added: the likelihood of one permutation, the "hard" form of Chen et al.,
    *DarkRank: Accelerating Deep Metric Learning via Cross Sample Similarities Transfer*, AAAI 2018.
    DBL's official code passes scores for the distance, which makes the *least* similar
    candidates the first ones (D-8).
    """

    def __init__(
        self,
        alpha: float = 3.0,
        beta: float = 3.0,
        length: int = 4,
        distance: Distance = "cosine",
    ) -> None:
        """Choose the distance, and how much of the order is transferred.

        Args:
            alpha: Factor of the distance, positive.
            beta: Exponent of the distance, positive.
            length: Number n of candidates, at least 2.
            distance: "cosine" for ``1 - S``; "score" for S itself, as in DBL's official code.

        Raises:
            ConfigError: If the distance is unknown or a value is out of its range.
        """
        super().__init__()
        if distance not in get_args(Distance):
            raise ConfigError(
                f"dark_rank: unknown distance {distance!r}, known are {get_args(Distance)}"
            )
        if alpha <= 0 or beta <= 0 or length < 2:
            raise ConfigError(
                "dark_rank: expected positive alpha and beta and a length of at least 2, "
                f"got {alpha}, {beta} and {length}"
            )
        self.alpha = alpha
        self.beta = beta
        self.length = length
        self.distance: Distance = distance

    def transfer(
        self, student: Float[Tensor, "images texts"], teacher: Float[Tensor, "images texts"]
    ) -> Float[Tensor, ""]:
        """Add the negative log-likelihoods of both directions."""
        student, teacher = self._negated(student), self._negated(teacher)
        return self._cost(student, teacher) + self._cost(student.T, teacher.T)

    def _negated(self, scores: Tensor) -> Tensor:
        distance = 1 - scores if self.distance == "cosine" else scores
        return -self.alpha * distance**self.beta

    def _cost(
        self,
        student: Float[Tensor, "queries candidates"],
        teacher: Float[Tensor, "queries candidates"],
    ) -> Float[Tensor, ""]:
        order = teacher.argsort(dim=1, descending=True)[:, 1 : self.length + 1]
        chosen = student.gather(1, order)  # (queries, n)
        # Of the candidates from each place on: a sum from the end.
        remaining = chosen.flip(1).logcumsumexp(dim=1).flip(1)
        return torch.sum(remaining - chosen, dim=1).mean()
