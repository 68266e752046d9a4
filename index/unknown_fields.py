"""Why nothing passes a filter: it names fields in which no item has a value."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from aladin.errors import AladinError
from index.backend import SearchBackend
from index.items.filter_tree import Exists, Filter, leaves
from index.settings import Target

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
