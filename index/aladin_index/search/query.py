"""Encoded queries: the terms that a search compares the items of an index with."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.search.results import Box, Role
from aladin_network.scoring.encoding import Encoding
from aladin_network.types import Modality


class Term(NamedTuple):
    """A text, photo or item of a query, encoded by the network or looked up.

    Attributes:
        encoding: Encoding of the one item.
        modality: Modality of the term.
        text: The text itself; required to explain the hits of a text.
        size_px: Width and height of a photo, required for boxes in it; or None if unknown.
        boxes: (regions, 4) boxes that came with a photo's regions, in fractions of it, or None.
        box: Part of a photo that is searched for, in fractions of the photo; None for all.
        regions: Numbers of the photo's regions that its tokens are; None for all of them.
        own_id: Id of the term if it is an item of the index and must not be among its own hits.
        is_stored: Whether it was looked up.
        decode_ms: Time to decode a photo, and to find its regions if the network reads regions.
        encode_ms: Time in the network, for the whole batch, or to look an item up.
        cached: Whether the encoding comes from the cache.
        batch: Number of terms that were encoded together, including this one.
        role: What the term says of the hits; None for a query that is this term alone.
        weight: Weight among the terms of its role, more than 0.
    """

    encoding: Encoding
    modality: Modality
    text: str | None = None
    size_px: tuple[int, int] | None = None
    boxes: NDArray[np.float32] | None = None
    box: Box | None = None
    regions: NDArray[np.int64] | None = None
    own_id: str | None = None
    is_stored: bool = False
    decode_ms: float = 0.0
    encode_ms: float = 0.0
    cached: bool = False
    batch: int = 1
    role: Role | None = None
    weight: float = 1.0


# One term without a role, or terms with roles, of which hits have or are like at least one.
Query = tuple[Term, ...]


def terms_of(query: Query | Term) -> Query:
    """Return the terms of a query, which may be one alone."""
    return (query,) if isinstance(query, Term) else query
