"""The files of a collection's short tokens, for bounds that are read instead of computed.

bounds.npy           uint8 (tokens, width), the short tokens
bound_scales.npy     float32 (items, 2), scale and reach of each item
bound_transform.npy  float64 (1 + 2 dim, dim), what is taken off a token, and the matrices by which
                     tokens and queries are multiplied, one above the other

See `aladin_index.tokens.bounds`. The offsets are those of the tokens.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aladin_index.format.manifest import BoundsEntry
from aladin_index.format.npy import NpyWriter, map_npy, write_npy
from aladin_index.tokens.bounds import ShortTokens, TokenBounds, fit_transform, shorten
from aladin_index.tokens.short_form import BoundTransform
from aladin_index.tokens.store import TokenStore
from aladin_network.types import Progress

BOUNDS, BOUND_SCALES, BOUND_TRANSFORM = "bounds.npy", "bound_scales.npy", "bound_transform.npy"
BOUND_FILES = (BOUNDS, BOUND_SCALES, BOUND_TRANSFORM)


def write_bounds(
    folder: Path,
    tokens: TokenStore,
    queries: NDArray[np.float32] | None,
    progress: Progress,
    *,
    are_texts: bool,
) -> BoundsEntry:
    """Compute the short tokens of a collection and write them, some items at a time."""
    transform = fit_transform(tokens, queries, are_texts=are_texts)
    longest = 0.0
    progress.start(tokens.count, "items with bounds")
    with (
        NpyWriter(folder / BOUNDS, np.uint8, (transform.width,)) as values,
        NpyWriter(folder / BOUND_SCALES, np.float32, (2,)) as scales,
    ):
        for part in shorten(tokens, transform):
            values.append(part.short[0])
            scales.append(np.stack(part.short[1:], axis=1))
            longest = max(longest, part.longest)
            progress.advance(part.items.stop - part.items.start)
    rows = [transform.mean[None], transform.of_items, transform.of_queries]
    shape = _transform_shape(tokens.codec.dim)
    write_npy(folder / BOUND_TRANSFORM, np.float64, shape, rows)
    return BoundsEntry(kept=transform.kept, longest=longest)


def open_bounds(folder: Path, entry: BoundsEntry, tokens: TokenStore) -> TokenBounds:
    """Map the short tokens of a collection."""
    dim = tokens.codec.dim
    rows = np.array(map_npy(folder / BOUND_TRANSFORM, np.float64, _transform_shape(dim)))
    transform = BoundTransform(rows[0], rows[1 : 1 + dim], rows[1 + dim :], entry.kept)
    values = map_npy(folder / BOUNDS, np.uint8, (tokens.stored.count, transform.width))
    scales, reach = np.array(map_npy(folder / BOUND_SCALES, np.float32, (tokens.count, 2))).T.copy()
    offsets = np.ascontiguousarray(tokens.offsets)
    return TokenBounds(
        tokens, transform, ShortTokens(values, scales, reach, offsets), entry.longest
    )


def _transform_shape(dim: int) -> tuple[int, int]:
    return 1 + 2 * dim, dim
