"""The best rows of a score matrix that is seen one block at a time."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

NO_ROW = -1

_ROW_BITS = 32
_LAST_ROW = 2**_ROW_BITS - 1
_NO_KEY = torch.iinfo(torch.int64).min


class BestRows:
    """For each query the k rows that score highest so far; of equal scores, the lower row.

    A score and its row are packed into one integer that orders as the pair does. No two keys are
    equal, so the result depends neither on the order of the blocks nor on their shape.
    """

    def __init__(self, num_queries: int, k: int, device: torch.device | str = "cpu") -> None:
        """Start with no row for any query.

        Args:
            num_queries: all that will be asked for.
            k: rows to keep for each, at least 1.
            device: of the scores.
        """
        self._keys = torch.full((num_queries, k), _NO_KEY, dtype=torch.int64, device=device)

    def add(
        self,
        queries: slice,
        first_row: int,
        scores: Float[Tensor, "queries rows"],
        excluded: Bool[Tensor, "queries rows"],
    ) -> None:
        """See one block of the matrix; each of its cells is to be seen once.

        Args:
            queries: that the block's first axis stands for.
            first_row: that the block's second axis begins with, below 2 ** 32.
            scores: float32, none NaN.
            excluded: True where a row must not be taken for a query.
        """
        rows = torch.arange(first_row, first_row + scores.shape[1], device=scores.device)
        # In place: a fresh copy of a large block costs more than the arithmetic on it.
        keys = _ordered(scores).mul_(2**_ROW_BITS).add_(_LAST_ROW - rows)  # (queries, rows)
        keys.masked_fill_(excluded, _NO_KEY)
        best = self._keys[queries]
        joined = torch.cat([best, keys], dim=1)
        self._keys[queries] = joined.topk(best.shape[1], dim=1).values

    def rows(self) -> Int[Tensor, "queries k"]:
        """Return the rows, best first, int32; `NO_ROW` at the end where there were fewer than k."""
        rows = _LAST_ROW - self._keys % 2**_ROW_BITS
        return rows.masked_fill(self._keys == _NO_KEY, NO_ROW).to(torch.int32)


def _ordered(scores: Float[Tensor, "queries rows"]) -> Int[Tensor, "queries rows"]:
    """Map float32 to integers in the same order, one to one but for the two zeros.

    The bits of a float are a sign and a magnitude: as integers, negative ones order backwards.
    """
    bits = (scores + 0.0).view(torch.int32)  # -0.0 + 0.0 is 0.0
    return torch.where(bits < 0, bits ^ torch.iinfo(torch.int32).max, bits).to(torch.int64)
