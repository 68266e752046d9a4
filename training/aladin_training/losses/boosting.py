"""Distance boosting: trains a target to separate pairs better than its anchor (DBL)."""

from __future__ import annotations

from typing import ClassVar, Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from aladin_network.errors import ConfigError, ShapeError
from aladin_training.losses.negatives import by_pairs, check_pairs, hardest_negatives

Form = Literal["relative", "absolute"]
Selection = Literal["gap", "cost"]

# The anchor's scores come from a tanh: a distance is at most 2, a score at most 1 in absolute
# value.
MAX_DISTANCE = 2.0
MAX_SCORE = 1.0


class BoostingLoss(nn.Module):
    """The target should hold positives and negatives further apart than a frozen anchor does.

    With S the target's scores, A the anchor's, c the text of image i and c' its negatives,
    gamma the margin, gamma_1 = alpha gamma and gamma_2 = gamma - gamma_1::

        relative   [gamma + (A[i,c] - A[i,c']) - (S[i,c] - S[i,c'])]+
        absolute   [gamma_1 + A[i,c] - S[i,c]]+  +  [gamma_2 + S[i,c'] - A[i,c']]+

    summed over pairs and over both directions; within each over all negatives (DBL, Diao et al.
    2024, eqs 7 and 9: RS, AS), or for the hardest alone (eqs 8 and 10: RM, AM), which is where
    the target exceeds the anchor most: argmax of ``S - A``.

    Soft margins (eqs 14-20) shrink where the anchor leaves little to gain; no gradient passes
    through them::

        gamma   -> gamma   tanh((2 - (A[i,c] - A[i,c'])) / gamma)
        gamma_1 -> gamma_1 tanh((1 - A[i,c])  / gamma_1)
        gamma_2 -> gamma_2 tanh((1 + A[i,c']) / gamma_2)

    Attributes:
        rectangular: True, as the loss accepts positive pairs off the diagonal.
    """

    rectangular: ClassVar[bool] = True

    def __init__(
        self,
        form: Form = "relative",
        hardest_negative: bool = True,
        soft: bool = False,
        margin: float = 0.2,
        alpha: float = 0.5,
        selection: Selection = "gap",
    ) -> None:
        """Choose the form.

        Args:
            form: "relative" compares differences of scores, "absolute" the scores themselves.
            hardest_negative: True for RM or AM, False for RS or AS, with all negatives of each
                query.
            soft: Use margins that depend on the anchor's scores, which must then lie in [-1, 1].
            margin: The margin gamma, in units of the scores.
            alpha: The positive's share of the margin in the absolute form, within [0, 1].
            selection: Which negative is the hardest if margins are soft (D-4): "gap", the
                largest S - A, as the paper defines it, or "cost", the largest bracket. With
                fixed margins the two are the same.

        Raises:
            ConfigError: If form or selection is unknown, the margin is negative, or `alpha` is
                outside [0, 1].
        """
        super().__init__()
        if form not in get_args(Form):
            raise ConfigError(f"boosting: unknown form {form!r}, known are {get_args(Form)}")
        if selection not in get_args(Selection):
            known = get_args(Selection)
            raise ConfigError(f"boosting: unknown selection {selection!r}, known are {known}")
        if margin < 0 or not 0 <= alpha <= 1:
            raise ConfigError(
                "boosting: margin must be at least 0 and alpha within [0, 1], "
                f"got {margin} and {alpha}"
            )
        self.form: Form = form
        self.hardest_negative = hardest_negative
        self.soft = soft
        self.margin = margin
        self.alpha = alpha
        self.selection: Selection = selection

    def forward(
        self,
        scores: Float[Tensor, "images texts"],
        anchor_scores: Float[Tensor, "images texts"],
        negatives: Bool[Tensor, "images texts"],
        positives: Int[Tensor, "pairs 2"] | None = None,
    ) -> Float[Tensor, ""]:
        """Sum the hinges of a batch.

        Args:
            scores: Scores of the target; row = image, column = text.
            anchor_scores: Scores of the anchor for the same pairs; they get no gradient.
            negatives: True where a pair may serve as a negative. A query without one
                contributes neither value nor gradient.
            positives: (row, column) of each positive pair, or None for the diagonal. With it the
                matrix may be rectangular, and an image may have several positive texts: each
                pair is then a query of its own in both directions, and a text's negatives are
                the images, each of them once.

        Raises:
            ShapeError: If the three shapes differ, or the scores are not square although no
                `positives` are given.
        """
        check_pairs(scores, negatives, positives)
        if anchor_scores.shape != scores.shape:
            raise ShapeError(f"anchor_scores {tuple(scores.shape)}", tuple(anchor_scores.shape))
        gap = by_pairs(scores - anchor_scores.detach(), positives)
        anchor = by_pairs(anchor_scores.detach(), positives)
        others = by_pairs(negatives, positives)
        of_images = self._costs(gap.of_image, anchor.of_image, gap.own, anchor.own, others.of_image)
        of_texts = self._costs(gap.of_text, anchor.of_text, gap.own, anchor.own, others.of_text)
        return of_images + of_texts

    def _costs(
        self,
        gap: Float[Tensor, "queries candidates"],
        anchor: Float[Tensor, "queries candidates"],
        gap_of_pair: Float[Tensor, " queries"],
        anchor_of_pair: Float[Tensor, " queries"],
        negatives: Bool[Tensor, "queries candidates"],
    ) -> Float[Tensor, ""]:
        """Sum over the queries of one direction."""
        if self.form == "relative":
            room = MAX_DISTANCE - (anchor_of_pair.unsqueeze(1) - anchor)
            of_negatives = self._margin(self.margin, room) + gap - gap_of_pair.unsqueeze(1)
            of_pair = torch.zeros_like(gap_of_pair)
        else:
            positive_margin = self.alpha * self.margin
            negative_margin = self.margin - positive_margin
            of_negatives = self._margin(negative_margin, MAX_SCORE + anchor) + gap
            of_pair = self._margin(positive_margin, MAX_SCORE - anchor_of_pair) - gap_of_pair
        if not self.hardest_negative:
            costs = of_negatives.relu() + of_pair.relu().unsqueeze(1)
            return costs.masked_fill(~negatives, 0).sum()
        hardness = gap if self.selection == "gap" else of_negatives
        hardest = hardest_negatives(hardness, negatives).unsqueeze(1)
        costs = of_negatives.gather(1, hardest).squeeze(1).relu() + of_pair.relu()
        return costs.masked_fill(~negatives.any(dim=1), 0).sum()

    def _margin(self, margin: float, room: Tensor) -> Tensor:
        """Give the margin of each cell; `room` is how far the anchor is from its extreme."""
        if self.soft and margin > 0:
            return margin * torch.tanh(room / margin)
        return torch.full_like(room, margin)
