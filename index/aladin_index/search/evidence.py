"""The exact evidence for a score: for every word its best region, and the cosine there.

One text and one photo: both stages' scores of the two, and the evidence for the second's.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from aladin_index.items.tables import StoredItem
from aladin_index.search.backend import Collection
from aladin_index.search.results import Box, WordEvidence
from aladin_network.errors import InputError
from aladin_network.model import AladinModel
from aladin_network.scoring.scores import Encoding
from aladin_network.types import Modality


def evidence_of_items(
    model: AladinModel,
    query: Float[Tensor, "query_tokens dim"],
    modality: Modality,
    side: Collection,
    items: Sequence[StoredItem],
    query_text: str | None,
    query_size_px: tuple[int, int] | None,
    query_boxes: NDArray[np.float32] | None = None,
) -> list[list[WordEvidence]]:
    """Explain the alignment scores of a query and some items of the other modality.

    Args:
        model: that encoded them all.
        query: its tokens.
        modality: of the query.
        side: that holds the items.
        items: of that side.
        query_text: of a text query.
        query_size_px: of a photo query; None: not known.
        query_boxes: (regions, 4) of a photo query that brought its own regions.

    Returns:
        For each item see `word_evidence`; the scores add up to what `SearchSide.align` says of it.

    Raises:
        InputError: the query's tokens are not those of its text.
    """
    # A text query is cut into its words once, and photos of one size have the same boxes.
    spans_of = cache(model.text.encoder.spans)
    boxes_of = cache(partial(region_boxes, model))
    rows = np.array([item.row for item in items], dtype=np.int64)
    # The numbers of the second stage itself: another product would round in another way.
    similarities = side.similarities(query, modality, rows)
    found: list[list[WordEvidence]] = []
    for item, similarity in zip(items, similarities, strict=True):
        if modality == "text":
            text, size_px, cosines = query_text or "", item.size_px, similarity
            own = item.region_boxes
        else:
            text, size_px, cosines = item.text or "", query_size_px, similarity.T
            own = query_boxes
        regions = cosines.shape[1]
        if own is None:
            boxes = boxes_of(regions, size_px)
        else:
            boxes = region_boxes(model, regions, size_px, own)
        found.append(word_evidence(cosines, text, spans_of(text), boxes))
    return found


def word_evidence(
    cosines: Float[np.ndarray, "words regions"],
    text: str,
    spans: Sequence[tuple[int, int]],
    boxes: Sequence[Box],
) -> list[WordEvidence]:
    """Find each word's best region; the scores add up to the pair's alignment score.

    Args:
        cosines: of every word with every region.
        text: what the words were made of.
        spans: characters [start, end) of its words.
        boxes: of the regions, first to last; none: not known. A region beyond them has no place.

    Returns:
        One entry a word, in order; empty if the photo has no region.

    Raises:
        InputError: the words are not those of this text.
    """
    words, regions = cosines.shape
    if words == 0 or regions == 0:
        return []
    # The alignment head may be told to trim a text's last word piece.
    if len(spans) - words not in (0, 1):
        raise InputError(f"the query has {words} words, its text {len(spans)}: {text!r}")
    best = cosines.argmax(axis=1).tolist()
    scores = cosines.max(axis=1).astype(np.float64)
    shares = scores / (np.abs(scores).sum() or 1.0)  # the shares of nothing are 0
    return [
        WordEvidence(
            token=text[start:end],
            start=start,
            end=end,
            region=region,
            box=boxes[region] if region < len(boxes) else None,
            score=score,
            share=share,
        )
        for (start, end), region, score, share in zip(
            spans[:words], best, scores.tolist(), shares.tolist(), strict=True
        )
    ]


def region_boxes(
    model: AladinModel,
    regions: int,
    size_px: tuple[int, int] | None,
    own: NDArray[np.float32] | None = None,
) -> list[Box]:
    """Return where the regions of a photo are.

    Args:
        model: that encoded it.
        regions: how many the photo has.
        size_px: width and height of the upright photo; None: not known.
        own: (regions, 4), the boxes that came with its regions; None: not known, or the network
            reads photos.

    Returns:
        An empty list where they are not known. The alignment head's region of zeros, the last one
        where there is one, has no place.
    """
    encoder = model.image.encoder
    if own is not None:
        boxes = own.tolist()
    elif size_px is None or encoder.reads == "regions":
        return []
    else:
        boxes = encoder.region_boxes(*size_px).tolist()
    # The tower may have taken the first ones for the aggregate.
    kept = boxes[len(boxes) - (regions - model.alignment.zero_tokens) :]
    return [(x0, y0, x1, y1) for x0, y0, x1, y1 in kept]


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
    side: Collection,
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
