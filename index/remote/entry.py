"""An item as an engine keeps it, and as a search gets it back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from index.items.tables import StoredItem
from index.tokens.codec import PackedTokens


class Entry(NamedTuple):
    """All that is kept of an item; its id is the engine's key.

    Attributes:
        item: its row orders items whose scores are equal: those of the generation have the rows
            that they had in the index of files, later ones have larger ones.
        embedding: (d_match,) float32, L2-normalised; None where it was not asked for.
        tokens: in the stored form of the side; None where they were not asked for.
    """

    item: StoredItem
    embedding: NDArray[np.float32] | None
    tokens: PackedTokens | None


class FoundEntry(NamedTuple):
    """An item that a search found.

    Attributes:
        entry: what is kept of it.
        match: cosine with the query.
        align: alignment score, where the engine was given words and scores them itself.
    """

    entry: Entry
    match: float
    align: float | None = None
