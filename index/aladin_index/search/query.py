"""A query in the searcher's form, and a validated search."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_network.scoring.scores import Encoding
from aladin_network.types import Modality


class EncodedQuery(NamedTuple):
    """A query that was encoded by the network or looked up, and the time this took.

    Attributes:
        encoding: Encoding of the one item.
        modality: Modality of the query, or None for a bare embedding, which is compared with the
            items' embeddings alone.
        text: Text of a text query; required to explain its hits.
        size_px: Width and height of a photo query, required for boxes in it; or None if unknown.
        boxes: (regions, 4) boxes that came with a photo query's regions, in fractions of the
            photo; or None if there are none.
        own_id: Id of the query if it is an item of the index and must not be among its own hits.
        decode_ms: Time to decode a photo, and to find its regions if the network reads regions.
        encode_ms: Time in the network, for the whole batch, or to look an item up.
        cached: Whether the encoding comes from the cache.
        batch: Number of queries that were encoded together, including this one.
    """

    encoding: Encoding
    modality: Modality | None
    text: str | None = None
    size_px: tuple[int, int] | None = None
    boxes: NDArray[np.float32] | None = None
    own_id: str | None = None
    decode_ms: float = 0.0
    encode_ms: float = 0.0
    cached: bool = False
    batch: int = 1
