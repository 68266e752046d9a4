"""Embeddings of parts of photos, estimated from the tokens of their regions.

An index has one embedding of each photo, that of the whole. The embedding of a part is not stored,
and the file of the photo may be gone. A linear map from the mean of a photo's tokens to its
embedding, fitted to the photos of the index, predicts the embedding of a whole photo to a cosine of
.99 (Flickr8k); it is applied to the regions of a part.

Tokens contain the rest of their photo, too: half of the photo's mean is subtracted from that of the
part, so that what the part has in particular counts. Of ways to find photos with the thing that a
box holds, this was the best that needs no network; the crop, encoded as a photo of its own, was the
worst (benchmarks/RESULTS.md).
"""

from __future__ import annotations

import threading

import numpy as np
from jaxtyping import Float

from aladin_index.ann.corrected import query_vectors
from aladin_index.search.collection import Collection, SearchBackend

# The map is fitted to the photos next to some random directions: any index finds them, and more
# make no difference.
_DIRECTIONS, _NEAREST = 8, 256
# Share of the whole photo's mean token that is taken off that of the part.
_CONTRAST = 0.5
# Strength of the regularisation, by the mean variance of the tokens' means.
_RIDGE = 0.05


class RegionEmbedder:
    """Predicts the embedding of some regions of a photo."""

    def __init__(
        self,
        means: Float[np.ndarray, "photos d_align"],
        embeddings: Float[np.ndarray, "photos d_match"],
    ) -> None:
        """Fit the map by ridge regression.

        Args:
            means: Mean tokens of photos, at least one.
            embeddings: Their embeddings.
        """
        self._mean, self._embedding = means.mean(axis=0), embeddings.mean(axis=0)
        centred = (means - self._mean).astype(np.float64)
        spread = centred.T @ centred
        strength = _RIDGE * np.trace(spread) / len(spread)
        # Without any variance, as of a single photo, every part has that photo's embedding.
        np.fill_diagonal(spread, spread.diagonal() + (strength or 1.0))
        shifts = centred.T @ (embeddings - self._embedding)
        self._map = np.linalg.solve(spread, shifts).astype(np.float32)

    def embed(
        self, inside: Float[np.ndarray, "regions d_align"], photo: Float[np.ndarray, "all d_align"]
    ) -> Float[np.ndarray, " d_match"]:
        """Return the embedding of a part of a photo, L2-normalised.

        Args:
            inside: Tokens of the regions of the part, at least one.
            photo: Tokens of all regions of the photo.
        """
        mean = (inside.mean(axis=0) - _CONTRAST * photo.mean(axis=0)) / (1 - _CONTRAST)
        embedding = self._embedding + (mean - self._mean) @ self._map
        return (embedding / np.linalg.norm(embedding)).astype(np.float32)


class LazyEmbedder:
    """The `RegionEmbedder` of an index, fitted when a box is searched first; thread-safe."""

    def __init__(self, index: SearchBackend) -> None:
        """Fit nothing yet.

        Args:
            index: An index, which stays open.
        """
        self._index = index
        self._fitted: RegionEmbedder | None = None
        self._lock = threading.Lock()

    def get(self) -> RegionEmbedder | None:
        """Return the embedder, or None as long as the index has no photo with regions.

        Raises:
            EngineUnavailableError: If the vector database does not respond.
        """
        with self._lock:
            if self._fitted is None:
                self._fitted = fit_embedder(self._index.collection("images"))
            return self._fitted


def fit_embedder(photos: Collection) -> RegionEmbedder | None:
    """Fit a map to some photos of a collection; None if none has regions."""
    entry, generator = photos.entry, np.random.default_rng(0)
    directions = generator.normal(size=(_DIRECTIONS, entry.embedding_dim)).astype(np.float32)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    asked = directions
    if entry.corrected:
        asked = query_vectors(directions, entry.vector_dim, crossing=False)
    found = [photos.order(each, _NEAREST, _NEAREST).rows for each in asked]
    rows = np.unique(np.concatenate(found))
    rows = rows[photos.lengths(rows) > 0] if len(rows) else rows
    if len(rows) == 0:
        return None
    means = [photos.tokens(row).mean(axis=0) for row in rows.tolist()]
    return RegionEmbedder(np.stack(means), photos.embeddings(rows.tolist()))
