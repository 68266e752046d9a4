"""Which rows of a side a search may find."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray


class Selection:
    """A set of rows in the forms that the first stage asks for; never changes."""

    def __init__(self, mask: NDArray[np.bool_]) -> None:
        """Select rows.

        Args:
            mask: (items,), True at the rows that may be found; not copied.
        """
        self.mask = mask

    @cached_property
    def count(self) -> int:
        """Number of rows that may be found."""
        return int(np.count_nonzero(self.mask))

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """The rows themselves, ascending."""
        return np.flatnonzero(self.mask)

    @cached_property
    def bits(self) -> NDArray[np.uint8]:
        """One bit a row, the first in the lowest place: what FAISS takes."""
        return np.packbits(self.mask, bitorder="little")

    @property
    def max_bytes(self) -> int:
        """Memory that all of its forms take, those not yet asked for as well."""
        return self.mask.nbytes + 8 * self.count + -(-self.mask.size // 8)

    def __and__(self, other: Selection) -> Selection:
        """Select the rows that both select."""
        return Selection(self.mask & other.mask)
