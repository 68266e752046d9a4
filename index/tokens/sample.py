"""Codecs for tokens that are on disk, made from a sample of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from index.settings import TokenDtype
from index.tokens.codec import TokenCodec
from index.tokens.rounding import ErrorFeedback
from index.tokens.store import TokenStore

# Enough for a codebook of full size, and 32 MiB of 128 float32 values.
_SAMPLE = 2**16
# What queries are like is known after some hundred of their tokens.
_QUERY_SAMPLE, _QUERY_ITEMS = 2**13, 512


def codec_for(
    dtype: TokenDtype, arrays: Sequence[NDArray[Any]], query_arrays: Sequence[NDArray[Any]] = ()
) -> TokenCodec:
    """Make the codec of a side from a sample of its tokens, always the same for the same tokens.

    Args:
        dtype: the stored form.
        arrays: (tokens, dim) each, at least one, together all tokens of the side; may be memory
            maps. How the tokens are spread over the arrays does not matter.
        query_arrays: the same of the other side, whose tokens are like those that will ask.

    Raises:
        ConfigError: a codebook is to be made of no tokens.
    """
    queries = _sample(query_arrays, _QUERY_SAMPLE) if query_arrays else None
    return TokenCodec.train(dtype, _sample(arrays, _SAMPLE), queries=queries)


def feedback_from(store: TokenStore) -> ErrorFeedback | None:
    """Return what the tokens of a side are like, as those that will ask the other side.

    Args:
        store: of an open side, of which few items are read.

    Returns:
        None where the side has no tokens.
    """
    rows = np.linspace(0, max(0, store.count - 1), min(_QUERY_ITEMS, store.count)).astype(np.int64)
    queries: NDArray[np.float32] = store.read(rows).values.numpy()
    return ErrorFeedback.of(queries) if len(queries) else None


def _sample(arrays: Sequence[NDArray[Any]], size: int) -> NDArray[np.float32]:
    """Draw tokens, always the same of the same."""
    total = sum(len(array) for array in arrays)
    places = np.random.default_rng(0).choice(total, min(size, total), replace=False)
    places.sort()
    sample: list[NDArray[np.float32]] = []
    first = 0
    for array in arrays:
        start, end = np.searchsorted(places, [first, first + len(array)])
        sample.append(np.asarray(array[places[start:end] - first], dtype=np.float32))
        first += len(array)
    return np.concatenate(sample)
