"""A linear bridge: queries of the new model in the terms of the old model's encodings.

Fitted on items that both models have encoded, a matrix W takes the old embedding of an item to its
new one. The cosine of a new query q with W e is that of the query q W with e: the query is
transformed, and the old embeddings, their first stage and the old tokens are asked as they are.
Tokens have a matrix of their own, fitted on the tokens of the same region or word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from aladin_index.search.results import Box
from aladin_network.scoring.encoding import Encoding

# Tokens of the pairs that a matrix is fitted to, at most: 128 values each are 64 MiB.
_MOST_TOKENS = 2**17
# A text whose words differ has no pairs; with fewer pairs than this share, tokens have no bridge.
_LEAST_PAIRED = 0.5
_SHORTEST = 1e-6


@dataclass(frozen=True, eq=False)
class Bridge:
    """Matrices that take a query of the new model to one of the old encodings.

    Attributes:
        embedding: (d_match of the new model, d_match of the old one) float32.
        tokens: (d_align of the new model, d_align of the old one) float32, or None if the tokens of
            the two models cannot be paired.
    """

    embedding: Float[np.ndarray, "new old"]
    tokens: Float[np.ndarray, "new old"] | None

    def query(self, encoding: Encoding, token_dim: int) -> Encoding:
        """Return a query of the new model in the terms of the old one.

        Args:
            encoding: Encoding of one query by the new model.
            token_dim: Size of a token of the old model.

        Returns:
            The encoding, without tokens if they have no bridge.
        """
        embedding = unit_rows(encoding.embedding @ self.embedding)
        if self.tokens is None:
            return Encoding.of_item(embedding[0], np.zeros((0, token_dim), dtype=np.float32))
        tokens = unit_rows(encoding.item_tokens(0) @ self.tokens)
        return Encoding.of_item(embedding[0], tokens)


def unit_rows(vectors: Float[np.ndarray, "rows dim"]) -> Float[np.ndarray, "rows dim"]:
    """Return vectors L2-normalised; one of no length stays as it is."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.maximum(lengths, _SHORTEST)).astype(np.float32)


def fit_matrix(
    old: Float[np.ndarray, "pairs old"],
    new: Float[np.ndarray, "pairs new"],
    damping: float,
    *,
    centred: bool,
) -> Float[np.ndarray, "new old"]:
    """Fit the matrix that takes old vectors to new ones, by damped least squares.

    Args:
        old: Vectors of the old model.
        new: Vectors of the new model for the same items, regions or words.
        damping: Weight of the squared matrix, relative to the mean variance of an old coordinate.
        centred: Whether a constant is fitted beside the matrix and left out: it changes all scores
            of a query alike.
    """
    x, y = old.astype(np.float64), new.astype(np.float64)
    if centred:
        x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    gram = x.T @ x
    gram[np.diag_indices_from(gram)] += damping * np.trace(gram) / len(gram) + 1e-9
    return np.linalg.solve(gram, x.T @ y).T.astype(np.float32)


class TokenPairs(NamedTuple):
    """Tokens of the same regions or words by both models.

    Attributes:
        old: (pairs, d_align of the old model) float32.
        new: (pairs, d_align of the new model) float32.
    """

    old: NDArray[np.float32]
    new: NDArray[np.float32]


def pair_tokens(
    old: Sequence[NDArray[np.float32]],
    new: Sequence[NDArray[np.float32]],
    boxes: Sequence[tuple[Sequence[Box], Sequence[Box]]],
) -> TokenPairs | None:
    """Pair the tokens of items.

    A region of the old model is paired with the region of the new one that it overlaps most; words
    and regions without boxes are paired in their order, if there are as many.

    Args:
        old: Tokens of each item by the old model.
        new: Tokens of the same items by the new model.
        boxes: Boxes of each item's regions by both models, empty where they are unknown.

    Returns:
        The pairs, or None if too few items have any.
    """
    found_old: list[NDArray[np.float32]] = []
    found_new: list[NDArray[np.float32]] = []
    tokens = 0
    for before, after, (of_old, of_new) in zip(old, new, boxes, strict=True):
        if of_old and of_new:
            nearest = overlaps(np.array(of_old), np.array(of_new)).argmax(axis=1)
            # The alignment head's region of zeros, the last one if there is one, has no box.
            before, after = before[: len(nearest)], after[nearest[: len(before)]]
        elif len(before) != len(after):
            continue
        found_old.append(before)
        found_new.append(after)
        tokens += len(before)
        if tokens > _MOST_TOKENS:
            break
    else:
        if len(found_old) < _LEAST_PAIRED * len(old) or tokens == 0:
            return None
    return TokenPairs(np.concatenate(found_old), np.concatenate(found_new))


def overlaps(
    first: Float[np.ndarray, "first 4"], second: Float[np.ndarray, "second 4"]
) -> Float[np.ndarray, "first second"]:
    """Return the intersection over union of boxes, x0, y0, x1, y1."""
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    shared = np.clip(high - low, 0, None).prod(axis=2)
    areas = [np.clip(each[:, 2:] - each[:, :2], 0, None).prod(axis=1) for each in (first, second)]
    union = areas[0][:, None] + areas[1][None] - shared
    return shared / np.maximum(union, _SHORTEST)
