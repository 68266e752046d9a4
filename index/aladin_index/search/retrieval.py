"""The first stage's order for a query that is itself an item of what is searched.

Why nothing passes a filter: it names fields in which no item has a value.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from aladin_index.items.filters import Exists, Filter, leaves
from aladin_index.search.backend import Collection, Ordered, SearchBackend, SecondStageQuery
from aladin_network.errors import AladinError
from aladin_network.types import Target


def order_without(
    item_id: str | None,
    side: Collection,
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


# Each costs a search, so of a long filter only the first fields are looked up.
_MAX_FIELDS = 5


def find_unknown_fields(index: SearchBackend, target: Target, filter: Filter | None) -> list[str]:
    """Return the fields of a filter in which no item has a value to compare, in its order.

    Args:
        index: Index whose items were searched.
        target: Side that was searched.
        filter: Filter that nothing passed; None has no fields.
    """
    fields = [] if filter is None else [test.field for test in leaves(filter)]
    unknown: list[str] = []
    with suppress(AladinError):  # the search is answered, whatever an engine makes of this
        for field in list(dict.fromkeys(fields))[:_MAX_FIELDS]:
            side = index.side(target, Exists(field))
            any_query = np.zeros(side.entry.embedding_dim, dtype=np.float32)
            any_query[0] = 1.0
            if len(side.order(any_query, 1, 1).rows) == 0:
                unknown.append(field)
    return unknown
