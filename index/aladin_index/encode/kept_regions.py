"""The regions that are stored of each photo: those that texts about it need.

A word scores with its best region only, and most regions are the best of few words: of 49 cells,
the eight that win most often win half of all words. For each photo, regions are chosen one after
the other by the texts of the index whose embeddings are nearest to the photo's, each the one that
leaves the smallest sum of squared losses of their words' best cosines. Texts far from a photo
do not matter, as it is not among their hits whatever they score.

What is stored is unchanged: every kept region has its own token and its own box. Regions that were
merged by Ward's criterion, with the union of their boxes, lose far more (`benchmarks/RESULTS.md`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.changes.writer import ItemWriter
from aladin_index.search.evidence import region_boxes
from aladin_index.search.results import Box
from aladin_index.tokens.sample_texts import SampleTexts
from aladin_network.inference import Network
from aladin_network.types import Target

# Returns the boxes of a photo's regions, or an empty list if they are unknown: their number, the
# size of the photo in pixels, and the boxes that came with it.
BoxesOf = Callable[[int, tuple[int, int] | None, NDArray[np.float32] | None], Sequence[Box]]


class PhotoRegions(NamedTuple):
    """The regions of some photos.

    Attributes:
        tokens: (regions of all photos, dim) float32.
        lengths: (photos,) int64, number of regions of each photo.
        boxes: For each photo (regions, 4) float32, or None if unknown. A region beyond them, the
            alignment head's region of zeros, has no box.
    """

    tokens: NDArray[np.float32]
    lengths: NDArray[np.int64]
    boxes: Sequence[NDArray[np.float32] | None]


@dataclass(frozen=True, eq=False)
class KeptRegions:
    """Chooses the regions of photos that are stored.

    Attributes:
        count: Number of regions to keep of each photo.
        texts: Texts that the photos are compared with.
        boxes_of: Returns the boxes of a photo's regions.
        zeros: Number of the alignment head's regions of zeros, the last of each photo. They are
            kept beside the others.
    """

    count: int
    texts: SampleTexts
    boxes_of: BoxesOf
    zeros: int = 0

    @classmethod
    def of(cls, count: int, texts: SampleTexts, network: Network) -> KeptRegions:
        """Choose among the regions of photos that a network encodes."""
        return cls(count, texts, partial(region_boxes, network), network.zero_tokens)

    def select(
        self,
        embeddings: NDArray[np.float32],
        photos: PhotoRegions,
        sizes_px: Sequence[tuple[int, int] | None],
    ) -> PhotoRegions:
        """Return the kept regions of some photos, in their order.

        Args:
            embeddings: (photos, d_match).
            photos: All of their regions.
            sizes_px: Width and height of each photo.
        """
        tokens: list[NDArray[np.float32]] = []
        boxes: list[NDArray[np.float32] | None] = []
        parts = np.split(photos.tokens, np.cumsum(photos.lengths)[:-1])
        for embedding, part, own, size_px in zip(
            embeddings, parts, photos.boxes, sizes_px, strict=True
        ):
            seen = len(part) - self.zeros
            kept = most_needed(self.texts.words_near(embedding) @ part[:seen].T, self.count)
            tokens += [part[kept], part[seen:]]
            found = self.boxes_of(len(part), size_px, own)
            boxes.append(np.array(found, dtype=np.float32)[kept] if found else None)
        lengths = np.minimum(photos.lengths, self.count + self.zeros)
        return PhotoRegions(np.concatenate(tokens), lengths, boxes)


def kept_by(writer: ItemWriter, network: Network, target: Target) -> KeptRegions | None:
    """Return what chooses the regions to store of added photos, as the index's build chose them.

    Args:
        writer: Writer of the index.
        network: Network that encodes the photos.
        target: Collection to be extended.

    Returns:
        None for texts, and where all regions are stored.
    """
    chosen_by = writer.region_texts() if target == "images" else None
    return None if chosen_by is None else KeptRegions.of(*chosen_by, network)


def most_needed(cosines: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """Choose regions one after the other, each with the smallest loss over all words.

    Args:
        cosines: (words, regions).
        count: Number of regions to choose.

    Returns:
        (min(count, regions),) the chosen ones in ascending order.
    """
    regions = cosines.shape[1]
    if regions <= count:
        return np.arange(regions)
    missing = cosines.max(axis=1, keepdims=True, initial=-1) - cosines  # (words, regions)
    # What each word lacks with the regions chosen so far; more than any without one.
    lost = np.full(len(cosines), 4.0, dtype=np.float32)
    chosen: list[int] = []
    for _ in range(count):
        left = np.minimum(lost[:, None], missing)
        losses = np.einsum("wr,wr->r", left, left)
        losses[chosen] = np.inf
        chosen.append(int(losses.argmin()))
        lost = left[:, chosen[-1]]
    return np.sort(np.array(chosen, dtype=np.int64))
