"""All that is live of a side, as a stream: what is exported, merged and compacted."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from index.building.side_writer import EncodedPart
from index.live_side import LiveSide

# Items that are in memory at a time: 49 tokens of 128 float16 values each are 50 MiB.
ITEMS_AT_A_TIME = 4096


def live_parts(side: LiveSide, items_at_a_time: int = ITEMS_AT_A_TIME) -> Iterator[EncodedPart]:
    """Yield the live items of a side in the order of their rows, tokens in their stored form.

    Args:
        side: at one moment; changes that come later are not seen.
        items_at_a_time: of a part, at most.
    """
    selection, base, changes = side.selection, side.base, side.changes
    rows = base.entry.count if changes is None else changes.rows
    live = np.arange(rows) if selection is None else selection.rows
    built, added = live[live < base.entry.count], live[live >= base.entry.count]
    for start in range(0, len(built), items_at_a_time):
        chosen = built[start : start + items_at_a_time]
        yield EncodedPart(
            items=base.items.by_rows(chosen.tolist()),
            embeddings=base.embeddings[chosen],
            tokens=base.tokens.packed(chosen),
            lengths=base.tokens.lengths(chosen),
        )
    for start in range(0, len(added), items_at_a_time):
        assert changes is not None  # only there do such rows come from
        chosen = added[start : start + items_at_a_time]
        yield EncodedPart(
            items=side.items.by_rows(chosen.tolist()),
            embeddings=changes.embeddings_of(chosen),
            tokens=changes.tokens(chosen).stored,
            lengths=changes.lengths(chosen),
        )
