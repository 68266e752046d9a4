"""Intra-modal constraint on the embeddings of one modality (IMC)."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from aladin_network.errors import ConfigError, ShapeError
from aladin_training.losses.negatives import check_mask

Distance = Literal["l1", "l2", "msd", "cos"]
Mode = Literal["official", "paper"]


class IntraModalConstraintLoss(nn.Module):
    """Moves the embeddings of one modality that are neither near-duplicates nor far apart.

    d is the distance of two embeddings: "l1" the sum of |v - w|, "l2" the root of the sum of
    squares, "msd" that sum itself, "cos" 1 - <v, w> / (||v|| ||w||) (eqs 5 to 8). Over ordered
    pairs of different rows::

        paper          weight     sum d[n,m] 1[lower < d[n,m] < upper]                     (eq 4)
        official cos   weight / B sum s[n,m] 1[upper < s[n,m] < 1 - lower],  s[n,m] = <v_n, v_m>
        official else  weight / B sum D[n,m] 1[lo < D[n,m] < hi],  D[n,:] = d[n,:] / ||d[n,:]||

    IMC (Chen et al. 2022), as printed and as the authors' code computes it. In the code `lower`
    and `upper` of l1, l2 and msd are no distances but quantiles: lo and hi are the entries of row
    0 of D of rank round(lower B) and round(upper B). The paper's best numbers, of l1 with 0.05
    and 0.5, can only come from that rule: l1 distances of long embeddings are far above 0.5.

    Mind the sign. The stated aim is to push a modality's embeddings apart. The official cos does
    that; every form that minimises a distance pulls the pairs of its band together.

    The official cos is the bare inner product, as in the authors' code: the cosine of rows of
    unit length, which is what the networks give.

    A pair that is no negative, such as two captions of one photo, counts as the same row twice: its
    distance is 0 and outside of every band.

    The band is a constant to the gradient, and so is a distance at 0. A row of zeros has no
    direction: its cosine with every row counts as 0, and it gets no gradient.
    """

    def __init__(
        self,
        distance: Distance = "l1",
        lower: float = 0.05,
        upper: float = 0.5,
        weight: float = 1.0,
        mode: Mode = "official",
    ) -> None:
        """Choose the distance and the band.

        Args:
            distance: The distance d above.
            lower: Lower end of the band: a quantile or a distance, see above.
            upper: Upper end of the band.
            weight: The factor lambda of the whole term.
            mode: "official" is the authors' code, "paper" is eq 4 as printed.

        Raises:
            ConfigError: If distance or mode is unknown, the band is empty, or quantiles are outside
                [0, 1].
        """
        super().__init__()
        if distance not in get_args(Distance):
            known = get_args(Distance)
            raise ConfigError(f"intra_modal: unknown distance {distance!r}, known are {known}")
        if mode not in get_args(Mode):
            raise ConfigError(f"intra_modal: unknown mode {mode!r}, known are {get_args(Mode)}")
        if lower >= upper:
            raise ConfigError(f"intra_modal: lower must be below upper, got {lower} and {upper}")
        if mode == "official" and distance != "cos" and (lower < 0 or upper > 1):
            raise ConfigError(
                f"intra_modal: official {distance} takes quantiles within [0, 1], "
                f"got {lower} and {upper}"
            )
        self.distance: Distance = distance
        self.lower = lower
        self.upper = upper
        self.weight = weight
        self.mode: Mode = mode

    def forward(
        self,
        embeddings: Float[Tensor, "batch dim"],
        negatives: Bool[Tensor, "batch batch"] | None = None,
    ) -> Float[Tensor, ""]:
        """Sum over the pairs of a batch.

        Args:
            embeddings: Embeddings of one modality. The official forms expect unit length. A
                batch of one row costs nothing.
            negatives: True where two rows are of different photos, or None if all are.

        Raises:
            ShapeError: If the embeddings are not a matrix, or the mask does not fit them.
        """
        if embeddings.ndim != 2:
            raise ShapeError("embeddings (batch, dim)", tuple(embeddings.shape))
        batch = embeddings.shape[0]
        alike = torch.eye(batch, dtype=torch.bool, device=embeddings.device)
        if negatives is not None:
            check_mask(alike, negatives)
            alike = alike | ~negatives
        if self.mode == "paper":
            distances = self._distances(embeddings)
            return self.weight * _sum_band(distances, alike, self.lower, self.upper)
        if self.distance == "cos":
            similarities = embeddings @ embeddings.T  # (batch, batch)
            band = _sum_band(similarities, alike, self.upper, 1 - self.lower)
            return self.weight / batch * band
        # Before the norm of a row, which would move the pairs that do not count, too.
        rows = F.normalize(self._distances(embeddings).masked_fill(alike, 0), dim=1)
        first, _ = rows[0].detach().sort()
        # Python's round, half to even, as in the authors' code: 0.5 of 17 is rank 8.
        lower, upper = (
            first[min(round(quantile * batch), batch - 1)] for quantile in (self.lower, self.upper)
        )
        return self.weight / batch * _sum_band(rows, alike, lower, upper)

    def _distances(self, embeddings: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch batch"]:
        if self.distance == "cos":
            norms = torch.linalg.vector_norm(embeddings, dim=1, keepdim=True)  # (batch, 1)
            zero = norms == 0
            # Where a row is all zeros the division is by 1 and its result masked, so that
            # neither value nor gradient becomes 0 / 0.
            directions = (embeddings / norms.masked_fill(zero, 1)).masked_fill(zero, 0)
            return 1 - directions @ directions.T
        # cdist needs no (batch, batch, dim) tensor, and its derivative at distance 0 is 0. The
        # shortcut by inner products is disabled: it makes the distance of equal rows noisy.
        distances = torch.cdist(
            embeddings,
            embeddings,
            p=1.0 if self.distance == "l1" else 2.0,
            compute_mode="donot_use_mm_for_euclid_dist",
        )
        return distances.square() if self.distance == "msd" else distances


def _sum_band(
    values: Float[Tensor, "batch batch"],
    alike: Bool[Tensor, "batch batch"],
    lower: Tensor | float,
    upper: Tensor | float,
) -> Float[Tensor, ""]:
    """Sum the values strictly between the bounds, without the pairs that are alike."""
    band = (values > lower) & (values < upper) & ~alike
    return values.masked_fill(~band, 0).sum()
