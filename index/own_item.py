"""The first stage's order for a query that is itself an item of what is searched."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from index.backend import Ordered, SearchSide, SecondStageQuery


def order_without(
    item_id: str | None,
    side: SearchSide,
    query: NDArray[np.float32],
    count: int,
    num_candidates: int,
    *,
    second_stage: SecondStageQuery | None = None,
) -> Ordered:
    """Order the first `count` items of a side other than one.

    Args:
        item_id: Id of the item that is left out; None, or an id that the side does not have,
            leaves out nothing.
        side: Items to order.
        query: (d_match,), L2-normalised.
        count: Items wanted beside the one that is left out.
        num_candidates: Candidates of the first stage.
        second_stage: See `SearchSide.order`.

    Raises:
        InputError: More items are wanted than an engine can find.
        EngineUnavailableError: The engine does not answer.
    """
    item = None if item_id is None else side.items.by_ids([item_id])[0]
    if item is None:
        return side.order(query, count, num_candidates, second_stage)
    # One more, for the item itself; a longer order begins with the shorter one, so pages agree.
    ordered = side.order(query, count + 1, num_candidates, second_stage)
    others = ordered.rows != item.row
    return ordered._replace(rows=ordered.rows[others][:count], match=ordered.match[others][:count])
