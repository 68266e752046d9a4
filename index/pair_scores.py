"""One text and one photo: both stages' scores of the two, and the evidence for the second's."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin.encoding import Encoding
from aladin.errors import InputError
from aladin.model import AladinModel
from index.backend import SearchSide
from index.evidence import evidence_of_items
from index.items.tables import StoredItem
from index.modality import Modality
from index.results import WordEvidence


class PairScores(NamedTuple):
    """What a search says of a pair, without the ranks, which a pair alone has not.

    Attributes:
        match: cosine of the embeddings.
        align: sum over words of the best region.
        evidence: each word's best region, in the text's order; its scores add up to `align`.
    """

    match: float
    align: float
    evidence: list[WordEvidence]


def score_pair(
    model: AladinModel,
    query: Encoding,
    modality: Modality,
    side: SearchSide,
    item: StoredItem,
    query_text: str | None,
    query_size_px: tuple[int, int] | None,
    query_boxes: NDArray[np.float32] | None = None,
) -> PairScores:
    """Score a query and an item of the other modality as a search does.

    Args:
        model: that encoded both.
        query: one encoded item.
        modality: of the query.
        side: that holds the item.
        item: of that side.
        query_text: of a text query.
        query_size_px: of a photo query; None: not known.
        query_boxes: (regions, 4) of a photo query that brought its own regions.

    Raises:
        InputError: the side has no tokens, or the query's are not those of its text.
    """
    if not side.has_tokens:
        raise InputError("there is no evidence: the index was imported without tokens")
    tokens = query.item_tokens(0).detach().float().cpu()
    embedding = query.embedding[0].detach().float().cpu()
    row = np.array([item.row], dtype=np.int64)
    [evidence] = evidence_of_items(
        model, tokens, modality, side, [item], query_text, query_size_px, query_boxes
    )
    return PairScores(
        match=float(embedding @ side.embedding(item.row).float()),
        align=float(side.align(tokens, modality, row)[0]),
        evidence=evidence,
    )
