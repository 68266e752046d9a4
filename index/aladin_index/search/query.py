"""A query in the searcher's form, and a validated search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from aladin_index.items.filters import Filter
from aladin_index.search.backend import Collection, SecondStageQuery
from aladin_index.search.options import SearchOptions
from aladin_network.calibration.calibration import Calibration
from aladin_network.scoring.fusion import DirectionFusion
from aladin_network.scoring.scores import Encoding
from aladin_network.types import Direction, Modality, Target


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

    @property
    def tokens(self) -> Float[Tensor, "query_tokens dim"]:
        """The query's tokens without padding, float32, in CPU memory."""
        return self.encoding.item_tokens(0).detach().float().cpu()


@dataclass(frozen=True, kw_only=True)
class ValidSearch:
    """A query with valid options, and the parts of the index that the stages need.

    Attributes:
        query: The query.
        modality: Modality of the query; for a bare embedding that of the items.
        target: The searched collection.
        options: How to search.
        candidates: Candidates that the first stage passes to the second at a time.
        filter: Filter that hits have to pass.
        collection: The searched collection, restricted to items that pass the filter.
        embedding: (d_match,) float32, the query's embedding, L2-normalised.
        tokens: (query_tokens, d_align) float32, the query's real tokens.
        second_stage: What the second stage needs, or None if the embeddings decide alone.
        is_crossing: Whether the query and the items are of different modalities.
        reranks: Whether the second stage decides the order.
        direction: Direction of the search.
        fusion: Constants of the fusion in this direction.
        weight: Weight of the alignment score.
        calibration: Source of probabilities, or None if hits have none.
        deadline_s: Time by which the second stage has to end, by `time.monotonic`, or None.
    """

    query: EncodedQuery
    modality: Modality
    target: Target
    options: SearchOptions
    candidates: int
    filter: Filter | None
    collection: Collection
    embedding: NDArray[np.float32]
    tokens: Float[Tensor, "query_tokens dim"]
    second_stage: SecondStageQuery | None
    is_crossing: bool
    reranks: bool
    direction: Direction
    fusion: DirectionFusion
    weight: float
    calibration: Calibration | None
    deadline_s: float | None

    def align(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the alignment scores of some rows."""
        return self.collection.align(self.tokens, self.modality, rows)

    def word_counts(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return for each row the number of tokens of the text: that of the query or of the row."""
        if self.modality != "text":
            return self.collection.lengths(rows)
        return np.full(len(rows), len(self.tokens), dtype=np.int64)
