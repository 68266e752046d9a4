"""A margin between pairs that belong together and pairs that nearly do."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from aladin_network.errors import ShapeError


class PairMarginLoss(nn.Module):
    """A photo should be nearer to its caption than to the same caption with one word exchanged.

    Over the pairs p, with ``[x]+ = max(x, 0)``::

        sum [margin + exchanged[p] - pair[p]]+

    A sum, as `TripletMarginLoss` is one. It belongs to none of the papers; VSE-C (Shi et al. 2018)
    and NegCLIP (Yuksekgonul et al. 2023) train with such captions.
    """

    def __init__(self, margin: float = 0.2) -> None:
        """Choose the margin, in units of the scores."""
        super().__init__()
        self.margin = margin

    def forward(
        self, pair_scores: Float[Tensor, " pairs"], exchanged_scores: Float[Tensor, " pairs"]
    ) -> Float[Tensor, ""]:
        """Sum the hinges of a batch.

        Args:
            pair_scores: Score of each photo with its caption.
            exchanged_scores: Score of the same photo with the exchanged caption.

        Raises:
            ShapeError: If the two differ in shape.
        """
        if pair_scores.shape != exchanged_scores.shape:  # they would broadcast
            raise ShapeError(
                f"exchanged_scores {tuple(pair_scores.shape)}", tuple(exchanged_scores.shape)
            )
        return (self.margin + exchanged_scores - pair_scores).relu().sum()
