"""The exact evidence for a score: for every word its best region, and the cosine there."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from torch import Tensor

from aladin.errors import InputError
from aladin.model import AladinModel
from index.items.tables import StoredItem
from index.live_side import LiveSide
from index.rerank import Modality
from index.results import Box, WordEvidence


def item_evidence(
    model: AladinModel,
    query: Float[Tensor, "query_tokens dim"],
    modality: Modality,
    side: LiveSide,
    item: StoredItem,
    query_text: str | None,
    query_size_px: tuple[int, int] | None,
) -> list[WordEvidence]:
    """Explain the alignment score of a query and an item of the other modality.

    Args:
        model: that encoded both.
        query: its tokens.
        modality: of the query.
        side: that holds the item.
        item: of that side.
        query_text: of a text query.
        query_size_px: of a photo query; None: not known.

    Returns:
        See `word_evidence`; the scores add up to what `LiveSide.align` says of the item.

    Raises:
        InputError: the query's tokens are not those of its text.
    """
    # The numbers of the second stage itself: another product would round in another way.
    similarity = side.similarity(query, modality, item.row)  # (query_tokens, item_tokens)
    if modality == "text":
        return word_evidence(model, similarity, query_text or "", item.size_px)
    return word_evidence(model, similarity.T, item.text or "", query_size_px)


def word_evidence(
    model: AladinModel,
    similarity: Float[np.ndarray, "words regions"],
    text: str,
    size_px: tuple[int, int] | None,
) -> list[WordEvidence]:
    """Find each word's best region; the scores add up to the pair's alignment score.

    Args:
        model: that encoded both; it knows where words and regions are.
        similarity: cosine of every word with every region.
        text: what the words were made of.
        size_px: width and height of the photo; None: not known, and the boxes neither.

    Returns:
        One entry a word, in order; empty if the photo has no region.

    Raises:
        InputError: the words are not those of this text.
    """
    words, regions = similarity.shape
    if words == 0 or regions == 0:
        return []
    spans = model.text.encoder.spans(text)
    # The alignment head may be told to trim a text's last word piece.
    if len(spans) - words not in (0, 1):
        raise InputError(f"the query has {words} words, its text {len(spans)}: {text!r}")
    boxes = None if size_px is None else region_boxes(model, regions, size_px)
    best = similarity.argmax(axis=1).tolist()
    scores = similarity.max(axis=1).astype(np.float64)
    shares = scores / (np.abs(scores).sum() or 1.0)  # the shares of nothing are 0
    return [
        WordEvidence(
            token=text[start:end],
            start=start,
            end=end,
            region=region,
            box=None if boxes is None else boxes[region],
            score=float(score),
            share=float(share),
        )
        for (start, end), region, score, share in zip(
            spans[:words], best, scores, shares, strict=True
        )
    ]


def region_boxes(model: AladinModel, regions: int, size_px: tuple[int, int]) -> list[Box]:
    """Return where the regions of a photo are.

    Args:
        model: that encoded it.
        regions: how many the photo has.
        size_px: width and height of the upright photo.
    """
    cells = model.image.encoder.region_boxes(*size_px)
    # The tower may have taken the first cells for the aggregate.
    kept = cells[cells.shape[0] - regions :].tolist()
    return [(x0, y0, x1, y1) for x0, y0, x1, y1 in kept]
