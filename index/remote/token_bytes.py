"""Tokens in their stored form as one piece of bytes, as engines keep them."""

from __future__ import annotations

import numpy as np

from aladin.errors import ShapeError
from index.tokens.codec import PackedTokens, TokenCodec


def token_bytes(tokens: PackedTokens) -> bytes:
    """Put the arrays of a stored form one after the other, little-endian."""
    return b"".join(
        np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes()
        for array in tokens
        if array is not None
    )


def tokens_of(stored: bytes, codec: TokenCodec) -> PackedTokens:
    """Read what `token_bytes` wrote; the arrays are views and cannot be written to.

    Args:
        stored: of one item.
        codec: that packed the tokens.

    Raises:
        ShapeError: so many bytes are no whole number of such tokens.
    """
    count, rest = divmod(len(stored), codec.token_bytes)
    if rest:
        raise ShapeError(f"a multiple of {codec.token_bytes} bytes of tokens", (len(stored),))
    arrays: dict[str, np.ndarray] = {}
    start = 0
    for array in codec.arrays:
        shape = (count, *array.row_shape)
        size = int(np.prod(shape))
        little = array.dtype.newbyteorder("<")
        arrays[array.field] = np.frombuffer(stored, little, size, start).reshape(shape)
        start += size * array.dtype.itemsize
    return PackedTokens(**arrays)
