"""How unlike the known queries a query is: the density of their embeddings.

Scores alone say little about a query of a foreign subject, whose best items are as near to it as
those of a vague one. Its embedding lies where no query of the fit has been: outside of the few
directions in which these differ from each other.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

# Number of directions with a variance of their own. 64 detect foreign subjects slightly better, and
# take twice the space; with 16, kinds of foreign subjects that a fit has not seen are detected less
# (training/LOG.md).
_AXES = 32
_FOLDS = 5


@dataclass(frozen=True, kw_only=True)
class QueryDensity:
    """Normal distribution of embeddings whose variance is equal outside of some axes.

    Attributes:
        variances: Variance along each axis, falling.
        rest: Variance in any direction at right angles to the axes.
        dim: Number of dimensions of an embedding.
        vectors: Base64 of (1 + axes, dim) float16, little-endian: the mean, and the axes as unit
            vectors.
    """

    variances: list[float]
    rest: float
    dim: int
    vectors: str

    def __post_init__(self) -> None:
        """Check the size of the vectors.

        Raises:
            ValueError: If they are not as many as there are variances.
        """
        expected = 2 * (1 + len(self.variances)) * self.dim
        try:
            found = len(base64.b64decode(self.vectors, validate=True))
        except ValueError as error:
            raise ValueError(f"vectors: expected Base64 ({error})") from error
        if found != expected:
            raise ValueError(f"vectors: expected {expected} bytes, found {found}")

    def novelty(self, embeddings: Float[np.ndarray, "queries dim"]) -> NDArray[np.float64]:
        """Return how far queries are from the known ones.

        Args:
            embeddings: float32, L2-normalised.

        Returns:
            (queries,) logarithms of the mean squared deviation from the mean, each direction
            measured by its standard deviation; about 0 for a query like the known ones.
        """
        mean, axes, weights = self._factors
        apart = embeddings - mean
        squares = np.square(apart @ axes) @ weights + np.square(apart).sum(axis=1) / self.rest
        return np.log(np.maximum(squares / self.dim, 1e-6))

    @cached_property
    def _factors(self) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float64]]:
        """Mean (dim,), axes (dim, axes), and what the axes' variances change (axes,)."""
        stored = np.frombuffer(base64.b64decode(self.vectors), dtype="<f2").astype(np.float32)
        vectors = stored.reshape(-1, self.dim)
        return vectors[0], vectors[1:].T.copy(), 1 / np.array(self.variances) - 1 / self.rest


class FittedDensity(NamedTuple):
    """A density, and the novelty of the queries that it was fitted to.

    Attributes:
        density: Density of all known queries.
        novelty: (queries,) float64; of each query by the density of other photos' queries.
    """

    density: QueryDensity
    novelty: NDArray[np.float64]


def fit_density(
    embeddings: Float[np.ndarray, "queries dim"],
    photos: NDArray[np.int64],
    known: NDArray[np.bool_],
) -> FittedDensity:
    """Fit the density of queries.

    Args:
        embeddings: Embeddings of queries, of which at least two are known.
        photos: (queries,) photos that the queries are about.
        known: (queries,) whether the density is that of these queries; the novelty of the others
            is measured as well.
    """
    novelty = np.empty(len(embeddings))
    folds = np.unique(photos, return_inverse=True)[1] % _FOLDS
    for fold in range(_FOLDS):
        judged = folds == fold
        others = known & ~judged
        if judged.any():
            density = _fit(embeddings[others if others.sum() > 1 else known])
            novelty[judged] = density.novelty(embeddings[judged])
    return FittedDensity(_fit(embeddings[known]), novelty)


def _fit(embeddings: Float[np.ndarray, "queries dim"]) -> QueryDensity:
    count, dim = embeddings.shape
    mean = embeddings.mean(axis=0, dtype=np.float64)
    apart = embeddings - mean
    variances, axes = np.linalg.eigh(apart.T @ apart / count)  # ascending
    kept = min(_AXES, dim // 2, count // 8)
    # A direction in which the queries do not differ at all has no deviation to measure by.
    least = 1e-3 * max(float(variances.mean()), 1e-9)
    first = dim - kept
    vectors = np.concatenate([mean[np.newaxis], axes[:, first:].T[::-1]])
    return QueryDensity(
        variances=np.maximum(variances[first:][::-1], least).tolist(),
        rest=max(float(variances[:first].mean()), least),
        dim=dim,
        vectors=base64.b64encode(vectors.astype("<f2").tobytes()).decode("ascii"),
    )
