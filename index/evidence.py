"""The exact evidence for a score: for every word its best region, and the cosine there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial

import numpy as np
from jaxtyping import Float
from torch import Tensor

from aladin.errors import InputError
from aladin.model import AladinModel
from index.items.tables import StoredItem
from index.live_side import LiveSide
from index.modality import Modality
from index.results import Box, WordEvidence


def evidence_of_items(
    model: AladinModel,
    query: Float[Tensor, "query_tokens dim"],
    modality: Modality,
    side: LiveSide,
    items: Sequence[StoredItem],
    query_text: str | None,
    query_size_px: tuple[int, int] | None,
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

    Returns:
        For each item see `word_evidence`; the scores add up to what `LiveSide.align` says of it.

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
        else:
            text, size_px, cosines = item.text or "", query_size_px, similarity.T
        boxes = None if size_px is None else boxes_of(cosines.shape[1], size_px)
        found.append(word_evidence(cosines, text, spans_of(text), boxes))
    return found


def word_evidence(
    cosines: Float[np.ndarray, "words regions"],
    text: str,
    spans: Sequence[tuple[int, int]],
    boxes: Sequence[Box] | None,
) -> list[WordEvidence]:
    """Find each word's best region; the scores add up to the pair's alignment score.

    Args:
        cosines: of every word with every region.
        text: what the words were made of.
        spans: characters [start, end) of its words.
        boxes: of the regions; None: not known.

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
            box=None if boxes is None else boxes[region],
            score=score,
            share=share,
        )
        for (start, end), region, score, share in zip(
            spans[:words], best, scores.tolist(), shares.tolist(), strict=True
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
