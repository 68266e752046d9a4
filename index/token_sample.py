"""Codecs for tokens that are on disk, made from a sample of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from index.settings import TokenDtype
from index.token_codec import TokenCodec

# Enough for a codebook of full size, and 32 MiB of 128 float32 values.
_SAMPLE = 2**16


def codec_for(dtype: TokenDtype, arrays: Sequence[NDArray[Any]]) -> TokenCodec:
    """Make the codec of a side from a sample of its tokens, always the same for the same tokens.

    Args:
        dtype: the stored form.
        arrays: (tokens, dim) each, at least one, together all tokens of the side; may be memory
            maps. How the tokens are spread over the arrays does not matter.

    Raises:
        ConfigError: a codebook is to be made of no tokens.
    """
    total = sum(len(array) for array in arrays)
    places = np.random.default_rng(0).choice(total, min(_SAMPLE, total), replace=False)
    places.sort()
    sample: list[NDArray[np.float32]] = []
    first = 0
    for array in arrays:
        start, end = np.searchsorted(places, [first, first + len(array)])
        sample.append(np.asarray(array[places[start:end] - first], dtype=np.float32))
        first += len(array)
    return TokenCodec.train(dtype, np.concatenate(sample))
