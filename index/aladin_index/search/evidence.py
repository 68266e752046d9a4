"""The exact evidence for a score: each word's best region, and the cosine of the two.

A search explains its hits by it, and a drawing one pair of a text and a photo.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from aladin_index.items.tables import StoredItem
from aladin_index.search.collection import Collection
from aladin_index.search.query import Term
from aladin_index.search.results import Box, Evidence, MappedWord
from aladin_index.search.whole_words import whole_words
from aladin_network.errors import InputError, brief
from aladin_network.inference import Network


class ComparedPair(NamedTuple):
    """The words of a text, compared with the regions of a photo.

    Attributes:
        cosines: (words, regions) Cosine of each word and each region.
        text: Text that the words come from.
        spans: Characters [start, end) of its words.
        boxes: Boxes of the regions in their order, or an empty list if unknown. A region beyond
            them has no box.
        numbers: Numbers of the regions in the photo, or None if they are all of it.
    """

    cosines: Float[np.ndarray, "words regions"]
    text: str
    spans: Sequence[tuple[int, int]]
    boxes: Sequence[Box]
    numbers: Sequence[int] | None = None


def compare_with_items(
    model: Network,
    query: Term,
    collection: Collection,
    items: Sequence[StoredItem],
) -> list[ComparedPair]:
    """Compare a term, a text with its text, with items of the other modality."""
    # A text query is split into words once, and photos of the same size have the same boxes.
    spans_of = cache(model.text.encoder.spans)
    boxes_of = cache(partial(region_boxes, model))
    rows = np.array([item.row for item in items], dtype=np.int64)
    # Values of the second stage itself: another matrix product would be rounded differently.
    tokens = query.encoding.item_tokens(0)
    similarities = collection.similarities(tokens, query.modality, rows)
    numbers = None if query.regions is None else query.regions.tolist()
    found: list[ComparedPair] = []
    for item, similarity in zip(items, similarities, strict=True):
        if query.modality == "text":
            text, size_px, cosines = query.text or "", item.size_px, similarity
            own = item.region_boxes
        else:
            text, size_px, cosines = item.text or "", query.size_px, similarity.T
            own = query.boxes
        regions = cosines.shape[1]
        if own is None:
            boxes = boxes_of(regions, size_px)
        else:
            boxes = region_boxes(model, regions, size_px, own)
        found.append(ComparedPair(cosines, text, spans_of(text), boxes, numbers))
    return found


def word_evidence(pair: ComparedPair) -> list[Evidence]:
    """Find each word's best region; the scores add up to the pair's alignment score.

    Args:
        pair: Text and photo.

    Returns:
        One entry a word, in order; empty if the photo has no region.

    Raises:
        InputError: If the words do not belong to the text.
    """
    cosines, text, spans, boxes, numbers = pair
    words, regions = cosines.shape
    if words == 0 or regions == 0:
        return []
    _check_words(words, text, spans)
    best = cosines.argmax(axis=1).tolist()
    scores = cosines.max(axis=1).astype(np.float64)
    shares = scores / (np.abs(scores).sum() or 1.0)  # the shares of nothing are 0
    each = zip(spans[:words], best, scores.tolist(), shares.tolist(), strict=True)
    return [
        Evidence(
            token=text[start:end],
            start=start,
            end=end,
            region=region if numbers is None else numbers[region],
            box=boxes[region] if region < len(boxes) else None,
            score=score,
            share=share,
        )
        for (start, end), region, score, share in each
    ]


def word_maps(pair: ComparedPair) -> list[MappedWord]:
    """Join the tokens of each word; the scores add up to the pair's alignment score.

    Args:
        pair: Text and photo.

    Returns:
        The words in the order of the text; empty if the photo has no region.

    Raises:
        InputError: If the words do not belong to the text.
    """
    words, regions = pair.cosines.shape
    if words == 0 or regions == 0:
        return []
    _check_words(words, pair.text, pair.spans)
    scores = pair.cosines.max(axis=1).astype(np.float64)
    total = float(np.abs(scores).sum()) or 1.0
    maps: list[MappedWord] = []
    for tokens in whole_words(pair.text, pair.spans[:words]):
        cosines = pair.cosines[tokens.start : tokens.stop].sum(axis=0)
        score = float(scores[tokens.start : tokens.stop].sum())
        start, end = pair.spans[tokens.start][0], pair.spans[tokens.stop - 1][1]
        maps.append(
            MappedWord(
                text=pair.text[start:end],
                start=start,
                end=end,
                score=score,
                share=score / total,
                region=int(cosines.argmax()),
                cosines=rounded(cosines),
            )
        )
    return maps


def rounded(cosines: NDArray[np.float32]) -> list[float]:
    """Return cosines as they are written."""
    return [round(cosine, 4) for cosine in cosines.tolist()]


def _check_words(words: int, text: str, spans: Sequence[tuple[int, int]]) -> None:
    # The alignment head may be configured to drop a text's last word piece.
    if len(spans) - words not in (0, 1):
        raise InputError(f"the query has {words} words, its text {len(spans)}: {brief(text)}")


def region_boxes(
    model: Network,
    regions: int,
    size_px: tuple[int, int] | None,
    own: NDArray[np.float32] | None = None,
) -> list[Box]:
    """Return the boxes of a photo's regions.

    Args:
        model: Model that encoded the photo.
        regions: Number of regions.
        size_px: Width and height of the upright photo, or None if unknown.
        own: (regions, 4) boxes that came with the regions, or None if there are none or the
            network reads photos.

    Returns:
        The boxes, or an empty list if they are unknown. The alignment head's region of zeros,
        which is the last one if there is one, has no box.
    """
    encoder = model.image.encoder
    if own is not None:
        boxes = own.tolist()
    elif size_px is None or encoder.reads == "regions":
        return []
    else:
        boxes = encoder.region_boxes(*size_px).tolist()
    # The tower may use the first regions for the aggregate.
    kept = boxes[len(boxes) - (regions - model.zero_tokens) :]
    return [(x0, y0, x1, y1) for x0, y0, x1, y1 in kept]


class PairScores(NamedTuple):
    """Both stages' scores of a pair; a pair has no ranks.

    Attributes:
        match: Cosine of the embeddings.
        align: Sum over words of the best region's cosine.
        pair: Cosine of each word and each region.
    """

    match: float
    align: float
    pair: ComparedPair


def score_pair(
    model: Network,
    query: Term,
    collection: Collection,
    item: StoredItem,
) -> PairScores:
    """Score a query and an item of the other modality in the same way as a search.

    Args:
        model: Model that encoded both.
        query: The query; a text query with its text.
        collection: Collection that holds the item.
        item: Item of that collection.

    Raises:
        InputError: If the collection has no tokens, or the query's tokens do not belong to its
            text.
    """
    if not collection.has_tokens:
        raise InputError("there is no evidence: the index was imported without tokens")
    [pair] = compare_with_items(model, query, collection, [item])
    return PairScores(
        match=float(query.encoding.embedding[0] @ collection.embedding(item.row)),
        # Not `collection.align`, from which a hubness correction is subtracted.
        align=float(pair.cosines.max(axis=1).sum()) if pair.cosines.size else 0.0,
        pair=pair,
    )
