"""Where the part of a photo that a query's box holds was found in another photo.

A hypothesis moves and scales the query's photo: along each axis by one of a few scales, and by a
number of steps of half a region, so that the box stays inside of the other photo. It places the
regions of the query there. How much they overlap the regions of the other photo, the common area
divided by the geometric mean of both areas, is a template of which regions have to be alike. Its
score is the sum of the template's values times the likenesses (exponentials of the cosines, less
their mean for each region of the query), divided by a power of the template's Euclidean norm. With
the power 1, that would be a matched filter, for which a box in the middle of the right place fits
as well as all of it; with less, small templates lose. All hypotheses are scored, and the box of the
best one is what was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from math import ceil, floor
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from aladin_index.items.tables import StoredItem
from aladin_index.search.collection import Collection
from aladin_index.search.evidence import region_boxes
from aladin_index.search.query import Term
from aladin_index.search.results import Box, RegionEvidence
from aladin_network.inference import Network

# Factors of the size of the photo along an axis; those of the two axes differ by a step at most.
_SCALES = 2.0 ** (np.arange(-2, 3) / 2)
_STEPS = (1 / 16, 1 / 4)  # least and most, in fractions of the photo
# Of a cosine: the larger, the less do regions count that are alike by their surroundings only.
_SHARPNESS = 15.0
_NORM_POWER = 0.8
# Regions of the query that are compared, evenly chosen: the time grows with their number.
_MOST_REGIONS = 16


class _Axis(NamedTuple):
    """The hypotheses for one axis.

    Attributes:
        scales: (hypotheses,) factor of a coordinate in the query's photo.
        shifts: (hypotheses,) what is added to it.
        overlaps: (hypotheses, regions, photo regions) overlap of each placed region with each
            region of the photo along the axis.
    """

    scales: NDArray[np.float64]
    shifts: NDArray[np.float64]
    overlaps: NDArray[np.float32]


class BoxFinder:
    """Finds the box of a query in photos; for one search in one thread."""

    def __init__(self, box: Box, boxes: Float[np.ndarray, "regions 4"]) -> None:
        """Keep the query's box."""
        self._box = np.array(box, dtype=np.float64)
        count = len(boxes)
        self._chosen = np.arange(min(count, _MOST_REGIONS)) * count // min(count, _MOST_REGIONS)
        self._boxes = np.asarray(boxes, dtype=np.float64)[self._chosen]

    def find(
        self,
        cosines: Float[np.ndarray, "photos regions photo_regions"],
        boxes: Float[np.ndarray, "photo_regions 4"],
    ) -> list[Box]:
        """Return the parts of photos that the box was found in."""
        across, down = (self._place(np.asarray(boxes, dtype=np.float64), axis) for axis in (0, 1))
        factors = np.abs(np.log2(across.scales[:, None] / down.scales))
        fits = factors < 0.75  # half a power of two, but for roundings
        wide, high = (each.overlaps.reshape(len(each.scales), -1) for each in (across, down))
        norms = np.maximum((wide**2) @ (high**2).T, 1e-12) ** (_NORM_POWER / 2)
        likenesses = np.exp(_SHARPNESS * (cosines[:, self._chosen] - 1))
        likenesses -= likenesses.mean(axis=2, keepdims=True)
        found: list[Box] = []
        for of_photo in likenesses.reshape(len(cosines), -1):
            scores = np.where(fits, (wide * of_photo) @ high.T / norms, -np.inf)
            x, y = np.unravel_index(scores.argmax(), scores.shape)
            x0, x1 = (self._box[0::2] * across.scales[x] + across.shifts[x]).clip(0, 1).tolist()
            y0, y1 = (self._box[1::2] * down.scales[y] + down.shifts[y]).clip(0, 1).tolist()
            found.append((x0, y0, x1, y1))
        return found

    def _place(self, boxes: NDArray[np.float64], axis: int) -> _Axis:
        """Place the query's regions in a photo by every hypothesis for one axis."""
        edges = slice(axis, None, 2)
        own, others = self._boxes[:, edges], boxes[:, edges]
        low, high = self._box[edges].tolist()
        step = float(np.clip(np.median(others[:, 1] - others[:, 0]) / 2, *_STEPS))
        moves = [(1.0, 0.0)]  # first, so that nothing moves without a better place
        for scale in _SCALES.tolist():
            first, last = ceil(-low * scale / step), floor((1 - high * scale) / step)
            moves += [(scale, number * step) for number in range(first, last + 1)]
        scales, shifts = np.array(moves).T
        placed = own * scales[:, None, None] + shifts[:, None, None]  # (hypotheses, regions, 2)
        starts, ends = placed[..., 0, None], placed[..., 1, None]
        shared = np.minimum(ends, others[:, 1]) - np.maximum(starts, others[:, 0])
        lengths = np.sqrt((ends - starts) * (others[:, 1] - others[:, 0]))
        overlaps = shared.clip(0) / np.maximum(lengths, 1e-6)  # a detector's box may have no area
        return _Axis(scales, shifts, overlaps.astype(np.float32))


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

    def evidence(self, query: Term) -> list[RegionEvidence]:
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
    model: Network, query: Term, collection: Collection, items: Sequence[StoredItem]
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
