"""A sample of an index's texts, by which the regions to be stored of a photo are chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aladin_index.tokens.store import TokenStore

# Texts that photos are compared with, and those of them by which a photo's regions are chosen.
# 20 to 300 nearest texts give the same fidelity on Flickr8k.
_TEXTS, _NEAREST = 2000, 50


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
    def of(cls, parts: Sequence[tuple[NDArray[np.float32], TokenStore]]) -> SampleTexts:
        """Take texts from all over a collection.

        Args:
            parts: Embeddings, (texts, d_match), and tokens of the texts, part by part, with at
                least one text in all.
        """
        total = sum(store.count for _, store in parts)
        wanted = np.linspace(0, total - 1, min(total, _TEXTS)).astype(np.int64)
        embeddings: list[NDArray[np.float32]] = []
        words: list[NDArray[np.float32]] = []
        lengths: list[NDArray[np.int64]] = [np.zeros(1, dtype=np.int64)]
        first = 0
        for of_part, store in parts:
            rows = wanted[(wanted >= first) & (wanted < first + store.count)] - first
            block = store.read(rows)
            embeddings.append(of_part[rows])
            words.append(np.asarray(block.values))
            lengths.append(block.lengths)
            first += store.count
        offsets = np.cumsum(np.concatenate(lengths))
        return cls(np.concatenate(embeddings), np.concatenate(words), offsets)

    def words_near(self, embedding: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the words of the texts whose embeddings are nearest to a photo's."""
        order = np.argsort(-(self.embeddings @ embedding), kind="stable")[:_NEAREST].tolist()
        return np.concatenate([self.words[self.offsets[i] : self.offsets[i + 1]] for i in order])
