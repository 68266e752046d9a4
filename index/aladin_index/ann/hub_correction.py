"""Vectors of a hubness correction: embeddings with the biases of both stages as coordinates.

The vector of an item is its embedding, the negative bias of its cosine and the negative bias of its
alignment score. The inner product with a query's embedding, a one and a zero is the corrected
cosine, in every first stage and at no further cost; with two zeros it is the cosine itself. The
second stage reads its bias from the last coordinate.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from aladin_network.errors import CheckpointError, IndexCorruptError
from aladin_network.scoring.encoding import TokenRows
from aladin_network.scoring.hub_correction import (
    CORRECTION,
    EncodedItems,
    HubCorrection,
    load_correction,
)
from aladin_network.types import Target


def open_correction(folder: Path) -> HubCorrection:
    """Read the correction of a generation."""
    try:
        return load_correction(folder / CORRECTION)
    except CheckpointError as error:
        raise IndexCorruptError(folder / CORRECTION, str(error)) from error


def corrected_vectors(
    correction: HubCorrection,
    target: Target,
    embeddings: Float[np.ndarray, "items d_match"],
    tokens: TokenRows,
) -> Float[np.ndarray, "items width"]:
    """Return the vectors of items, whose tokens are those that are stored."""
    biases = correction.biases(target, EncodedItems(embeddings, tokens))
    return np.concatenate([embeddings, -biases], axis=1, dtype=np.float32)


def query_vectors(
    embeddings: Float[np.ndarray, "*queries d_match"], width: int, hubs: float = 1.0
) -> Float[np.ndarray, "*queries width"]:
    """Return the vectors of queries, whether or not the searched collection is corrected."""
    dim = embeddings.shape[-1]
    vectors = np.zeros((*embeddings.shape[:-1], width), dtype=np.float32)
    vectors[..., :dim] = embeddings
    vectors[..., dim : dim + 1] = hubs
    return vectors


def without_biases(vectors: NDArray[np.float32], dim: int) -> NDArray[np.float32]:
    """Return the embeddings of stored vectors, whether or not they have biases."""
    return np.ascontiguousarray(vectors[..., :dim])


def stored_biases(
    vectors: Float[np.ndarray, "items width"],
    added: Float[np.ndarray, "added width"] | None,
    dim: int,
    rows: NDArray[np.int64],
) -> Float[np.ndarray, "rows 2"]:
    """Return the biases of some rows, those of added items after those of a generation."""
    if added is None:
        return -vectors[rows, dim:]
    built = rows < len(vectors)
    biases = np.empty((len(rows), vectors.shape[1] - dim), dtype=np.float32)
    biases[built] = -vectors[rows[built], dim:]
    biases[~built] = -added[rows[~built] - len(vectors), dim:]
    return biases
