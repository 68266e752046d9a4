"""How many items one side of an open index has, and how it came to have them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from index.live_side import LiveSide


class ItemCounts(NamedTuple):
    """Items of one side at one moment: ``built + added - deleted == live``.

    An engine counts those that are there, and tells neither `added` nor `deleted`: both are None.

    Attributes:
        built: items that the generation's files hold.
        added: items that were added since and are still there.
        deleted: items of the generation's files that were deleted or replaced since.
        live: items that a search may find.
    """

    built: int
    added: int | None
    deleted: int | None
    live: int


def count_items(side: LiveSide) -> ItemCounts:
    """Count the items of one side; reads none of them."""
    built, changes = side.base.entry.count, side.changes
    if changes is None:
        return ItemCounts(built, 0, 0, built)
    deleted = int(np.count_nonzero(changes.removed < built))
    added = len(changes.embeddings) - (len(changes.removed) - deleted)
    return ItemCounts(built, added, deleted, side.count)
