"""Where the part of a photo that a query's box holds was found in another photo.

Each pair of a region of the query and a region of the hit is a hypothesis: that the query's box is
in the hit where it has to be if the one region is moved, and scaled, to the other. So a hypothesis
places all regions of the query in the hit. Its score is the sum, over these and the regions of the
hit, of the product of the cosine and the overlap (intersection divided by union) of the two. The
box that the best hypothesis places is what was found; all of them are scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from aladin_index.items.tables import StoredItem
from aladin_index.search.backend import Collection, EncodedQuery, SearchBackend
from aladin_index.search.boxes import box_areas, overlap_areas
from aladin_index.search.candidates import ValidSearch
from aladin_index.search.evidence import region_boxes
from aladin_index.search.results import Box, HitPart, RegionEvidence, SearchHit
from aladin_network.errors import EngineUnavailableError
from aladin_network.inference import Network

# A region that is placed on one of a very different size says nothing of where its neighbours are.
_LARGEST_SCALE = 2.5
# Hypotheses and places that differ by less than a step are one: in grids, but for roundings.
_STEP = 1e-4
_NO_MOVE = np.array([[1.0, 1.0, 0.0, 0.0]])


class _Placements(NamedTuple):
    """The hypotheses for photos whose regions have the same boxes.

    Attributes:
        boxes: (hypotheses, 4) where the query's box is in the photo.
        places: (hypotheses, query regions) number of the place of each region.
        overlaps: (places, photo regions) intersection divided by union.
    """

    boxes: NDArray[np.float64]
    places: NDArray[np.int64]
    overlaps: NDArray[np.float32]


class BoxFinder:
    """Finds the box of a query in photos; for one search in one thread."""

    def __init__(self, box: Box, boxes: Float[np.ndarray, "regions 4"]) -> None:
        """Keep the query's box.

        Args:
            box: Box of the query.
            boxes: Boxes of its regions, in the same photo.
        """
        self._box = np.array(box, dtype=np.float64)
        self._boxes = np.asarray(boxes, dtype=np.float64)

    def find(
        self,
        cosines: Float[np.ndarray, "photos regions photo_regions"],
        boxes: Float[np.ndarray, "photo_regions 4"],
    ) -> list[Box]:
        """Return the parts of photos that the box was found in.

        Args:
            cosines: Cosines of the query's regions with those of photos.
            boxes: Boxes of the regions of each of these photos, at least one.
        """
        placed = self._place(np.asarray(boxes, dtype=np.float64))
        values = cosines @ placed.overlaps.T  # (photos, regions, places)
        scores = np.zeros((len(cosines), len(placed.boxes)), dtype=np.float32)
        for region, places in enumerate(placed.places.T):
            scores += values[:, region, places]
        best = placed.boxes[scores.argmax(axis=1)]
        return [(x0, y0, x1, y1) for x0, y0, x1, y1 in best.tolist()]

    def _place(self, boxes: NDArray[np.float64]) -> _Placements:
        """Place the query's box and its regions in a photo by every hypothesis."""
        own = self._boxes
        with np.errstate(divide="ignore", invalid="ignore"):  # a detector's box may have no area
            scales = (boxes[:, 2:] - boxes[:, :2]) / (own[:, 2:] - own[:, :2])[:, None]
            shifts = boxes[:, :2] - own[:, None, :2] * scales  # (regions, photo regions, 2)
        moves = np.concatenate([scales, shifts], axis=2).reshape(-1, 4)
        fits = (moves[:, :2] <= _LARGEST_SCALE) & (moves[:, :2] >= 1 / _LARGEST_SCALE)
        moves = np.concatenate([_NO_MOVE, moves[fits.all(axis=1)]])
        # Of hypotheses that score alike, the one that moves the box least comes first.
        moves = moves[np.abs(moves - _NO_MOVE).sum(axis=1).argsort(kind="stable")]
        moves = moves[np.sort(_different(moves)[0])]
        scales, shifts = (np.tile(each, 2)[:, None] for each in (moves[:, :2], moves[:, 2:]))
        placed = np.concatenate([self._box[None], own]) * scales + shifts
        # (hypotheses, 1 + regions, 4)
        regions = placed[:, 1:].reshape(-1, 4)
        first, places = _different(regions)
        regions = regions[first]
        shared = overlap_areas(regions, boxes)
        union = box_areas(regions)[:, None] + box_areas(boxes) - shared
        overlaps = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
        places = places.reshape(len(moves), len(own))
        return _Placements(placed[:, 0].clip(0, 1), places, overlaps.astype(np.float32))


def _different(rows: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first of each group of equal rows of four numbers, and the group of each row."""
    steps = np.rint(rows / _STEP).astype(np.int64)
    keys = steps[:, 0]
    for column in steps.T[1:]:  # all numbers are within a few units of 0
        keys = keys * 2**16 + column
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    return first, group


class FoundPart(NamedTuple):
    """Where the box of a query was found in a photo, and what it was compared by.

    Attributes:
        found: Where it was found, or None if the places of the photo's regions are unknown.
        cosines: (query regions, photo regions) Cosine of each pair of regions.
        boxes: Boxes of the photo's regions, or an empty list if unknown.
    """

    found: Box | None
    cosines: Float[np.ndarray, "regions photo_regions"]
    boxes: Sequence[Box]

    def evidence(self, query: EncodedQuery) -> list[RegionEvidence]:
        """Return the photo's best region for each region of the query; none without regions.

        The scores add up to the score of `Collection.align`.

        Args:
            query: The query; see `find_in_items`.
        """
        if self.cosines.shape[1] == 0 or query.boxes is None or query.regions is None:
            return []
        best = self.cosines.argmax(axis=1).tolist()
        scores = self.cosines.max(axis=1).astype(np.float64)
        shares = scores / (np.abs(scores).sum() or 1.0)
        asked = zip(query.regions.tolist(), query.boxes.tolist(), strict=True)
        return [
            RegionEvidence(
                query_region=number,
                query_box=(x0, y0, x1, y1),
                region=region,
                box=self.boxes[region] if region < len(self.boxes) else None,
                score=score,
                share=share,
            )
            for (number, (x0, y0, x1, y1)), region, score, share in zip(
                asked, best, scores.tolist(), shares.tolist(), strict=True
            )
        ]


def find_in_items(
    model: Network, query: EncodedQuery, collection: Collection, items: Sequence[StoredItem]
) -> list[FoundPart]:
    """Find the box of a query in photos.

    Args:
        model: Model that encoded the query and the photos.
        query: Query with a box, whose tokens are those of the regions inside.
        collection: Collection that holds the photos.
        items: Photos of that collection.

    Returns:
        What was found in each photo.

    Raises:
        EngineUnavailableError: If the engine that holds the tokens is unavailable.
    """
    assert query.box is not None
    assert query.boxes is not None
    # Photos of the same size have the same boxes, unless a detector found them.
    boxes_of = cache(partial(region_boxes, model))
    tokens, rows = query.encoding.item_tokens(0), np.array([item.row for item in items], np.int64)
    compared = collection.similarities(tokens, "image", rows)
    parts: list[FoundPart] = []
    alike: dict[tuple[Box, ...], list[int]] = {}
    for place, (item, cosines) in enumerate(zip(items, compared, strict=True)):
        count, own = cosines.shape[1], item.region_boxes
        if own is None:
            boxes = boxes_of(count, item.size_px)
        else:
            boxes = region_boxes(model, count, item.size_px, own)
        if boxes:
            alike.setdefault(tuple(boxes), []).append(place)
        parts.append(FoundPart(None, cosines, boxes))
    finder = BoxFinder(query.box, query.boxes)
    for boxes, places in alike.items():
        cosines = np.stack([compared[place][:, : len(boxes)] for place in places])
        for place, found in zip(places, finder.find(cosines, np.array(boxes)), strict=True):
            parts[place] = parts[place]._replace(found=found)
    return parts


def add_found(
    index: SearchBackend,
    search: ValidSearch,
    items: Sequence[StoredItem],
    hits: Sequence[SearchHit] | Sequence[HitPart],
) -> bool:
    """Give hits the place where the query's box was found, and its regions if they are asked for.

    Args:
        index: Searched index.
        search: Search of photos by a box.
        items: Items of the hits.
        hits: Hits, or one part of each, to complete.

    Returns:
        Whether the tokens were available.
    """
    query, collection = search.query, search.collection
    try:
        parts = find_in_items(index.checkpoint.model, query, collection, items)
    except EngineUnavailableError:
        return False
    for hit, part in zip(hits, parts, strict=True):
        hit.found = part.found
        hit.region_evidence = part.evidence(query) if search.options.explain else None
    return True
