"""Encoded queries: the terms that a search compares the items of an index with."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.search.results import Box, Role
from aladin_network.scoring.encoding import Encoding
from aladin_network.types import Modality


class Term(NamedTuple):
    """A query that was encoded by the network or looked up, and the time this took.

    Attributes:
        encoding: Encoding of the one item.
        modality: Modality of the query.
        text: Text of a text query; required to explain its hits.
        size_px: Width and height of a photo query, required for boxes in it; or None if unknown.
        boxes: (regions, 4) boxes that came with a photo's regions, in fractions of it, or None.
        is_stored: Whether it was looked up.
        box: Part of a photo query that is searched for, in fractions of the photo; None for all.
        regions: Numbers of the photo's regions that its tokens are; None for all of them.
        own_id: Id of the query if it is an item of the index and must not be among its own hits.
        decode_ms: Time to decode a photo, and to find its regions if the network reads regions.
        encode_ms: Time in the network, for the whole batch, or to look an item up.
        cached: Whether the encoding comes from the cache.
        batch: Number of queries that were encoded together, including this one.
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


class EncodedPart(NamedTuple):
    """One part of a query of several.

    Attributes:
        query: The part as a query of its own.
        role: What the part says of the hits.
        weight: Weight among the parts of its role, more than 0.
    """

    query: Term
    role: Role
    weight: float = 1.0


class EncodedParts(NamedTuple):
    """A query of several parts, at least one of which hits have to have or to be like."""

    parts: tuple[EncodedPart, ...]

    @property
    def decode_ms(self) -> float:
        """Time to decode the photos among the parts."""
        return sum(part.query.decode_ms for part in self.parts)

    @property
    def encode_ms(self) -> float:
        """Time in the network, which encodes parts of one modality together."""
        return max(part.query.encode_ms for part in self.parts)

    @property
    def cached(self) -> bool:
        """Whether the encodings of all parts come from the cache."""
        return all(part.query.cached for part in self.parts)

    @property
    def batch(self) -> int:
        """Number of queries and parts that were encoded together, including these."""
        return max(part.query.batch for part in self.parts)
