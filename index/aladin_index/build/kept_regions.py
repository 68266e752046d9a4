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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.build.shards import EMBEDDINGS, LENGTHS, ROWS, Shard
from aladin_index.search.results import Box
from aladin_index.tokens.store import TokenStore

# Texts that photos are compared with, and those of them by which a photo's regions are chosen.
# 20 to 300 nearest texts give the same fidelity on Flickr8k.
_TEXTS, _NEAREST = 2000, 50

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
class SampleTexts:
    """Texts that photos are compared with.

    Attributes:
        embeddings: (texts, d_match) float32, L2-normalised.
        words: (words, dim) float32 of all texts, one after the other.
        offsets: (texts + 1,) int64; text i has the words offsets[i] to offsets[i + 1].
    """

    embeddings: NDArray[np.float32]
    words: NDArray[np.float32]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, shards: Sequence[Shard]) -> SampleTexts:
        """Take texts from all over a collection.

        Args:
            shards: Shards of the texts, with at least one text in all.
        """
        counts = [len(shard.array(ROWS)) for shard in shards]
        total = sum(counts)
        wanted = np.linspace(0, total - 1, min(total, _TEXTS)).astype(np.int64)
        embeddings: list[NDArray[np.float32]] = []
        words: list[NDArray[np.float32]] = []
        lengths: list[NDArray[np.int64]] = [np.zeros(1, dtype=np.int64)]
        first = 0
        for shard, count in zip(shards, counts, strict=True):
            rows = wanted[(wanted >= first) & (wanted < first + count)] - first
            codec, of_all = shard.format.codec, shard.array(LENGTHS)
            block = TokenStore.from_arrays(codec, shard.tokens(), of_all).read(rows)
            embeddings.append(shard.array(EMBEDDINGS)[rows])
            words.append(np.asarray(block.values))
            lengths.append(block.lengths)
            first += count
        offsets = np.cumsum(np.concatenate(lengths))
        return cls(np.concatenate(embeddings), np.concatenate(words), offsets)

    def words_near(self, embedding: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the words of the texts whose embeddings are nearest to a photo's."""
        order = np.argsort(-(self.embeddings @ embedding), kind="stable")[:_NEAREST].tolist()
        return np.concatenate([self.words[self.offsets[i] : self.offsets[i + 1]] for i in order])


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
