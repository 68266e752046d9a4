"""Codes of 4 or 2 bits a dimension: the nearest of a few fixed levels, and one scale a vector.

The levels are those of Lloyd and Max for normally distributed values ("Quantizing for minimum
distortion", 1960, table I), which is how the coordinates of a residual are distributed. They are
rounded to int8, the largest being 127, so that scores of codes are sums of integers.

Codes lie in the order of the dimensions, the first in the lowest bits of a byte.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from index.tokens.rounding import ErrorFeedback, round_to_levels

Bits = Literal[2, 4]

# The positive half; for 4 bits 2.733 standard deviations are 127, for 2 bits 1.510 are.
_POSITIVE: dict[Bits, list[int]] = {2: [38, 127], 4: [6, 18, 31, 44, 58, 75, 96, 127]}
LEVELS: dict[Bits, NDArray[np.int8]] = {
    bits: np.array([-level for level in reversed(half)] + half, dtype=np.int8)
    for bits, half in _POSITIVE.items()
}
# Standard deviations that the largest level stands for.
_LARGEST: dict[Bits, float] = {2: 1.5104, 4: 2.7326}
# Rounds of choosing codes for a scale and the best scale for the codes; it has settled by then.
_ROUNDS = 2


def code_bytes(dim: int, bits: Bits) -> int:
    """Return the bytes that the codes of one vector take."""
    return -(-dim * bits // 8)


def quantise(
    vectors: NDArray[np.float32], bits: Bits, feedback: ErrorFeedback | None = None
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Bring vectors to codes.

    Args:
        vectors: (n, dim).
        bits: of a code.
        feedback: of the queries; None: every value goes to its nearest level.

    Returns:
        (n, `code_bytes`) codes and (n,) scales: a vector is about its levels times its scale.
    """
    levels = LEVELS[bits].astype(np.float32)
    scales = _positive(np.sqrt(np.square(vectors).mean(axis=1)) * (_LARGEST[bits] / 127))
    codes = np.zeros(vectors.shape, dtype=np.uint8)
    for _ in range(_ROUNDS):
        codes = round_to_levels(vectors, scales, LEVELS[bits], feedback)
        chosen = levels[codes]
        # Least squares, in the metric of the queries where they are known.
        wanted, found = vectors, chosen
        if feedback is not None:
            wanted, found = vectors @ feedback.metric, chosen @ feedback.metric
        best = np.einsum("nd,nd->n", wanted, found) / np.square(found).sum(axis=1)
        scales = _positive(best)
    return _to_bytes(codes, bits), scales


def dequantise(
    codes: NDArray[np.uint8], scales: NDArray[np.float32], dim: int, bits: Bits
) -> NDArray[np.float32]:
    """Return the vectors that codes stand for, (n, dim)."""
    levels = LEVELS[bits].astype(np.float32)[_from_bytes(codes, dim, bits)]
    return levels * scales[:, None]


def _positive(scales: NDArray[np.float32]) -> NDArray[np.float32]:
    """Give a vector of zeros a scale that changes nothing: the smallest normal number."""
    return np.maximum(scales, np.finfo(np.float32).tiny).astype(np.float32)


def _to_bytes(codes: NDArray[np.uint8], bits: Bits) -> NDArray[np.uint8]:
    a_byte = 8 // bits
    count, dim = codes.shape
    padded = np.zeros((count, code_bytes(dim, bits) * a_byte), dtype=np.uint8)
    padded[:, :dim] = codes
    packed = np.zeros((count, code_bytes(dim, bits)), dtype=np.uint8)
    for place in range(a_byte):
        packed |= padded[:, place::a_byte] << (bits * place)
    return packed


def _from_bytes(packed: NDArray[np.uint8], dim: int, bits: Bits) -> NDArray[np.uint8]:
    a_byte, mask = 8 // bits, 2**bits - 1
    codes = np.empty((packed.shape[0], packed.shape[1] * a_byte), dtype=np.uint8)
    for place in range(a_byte):
        codes[:, place::a_byte] = (packed >> (bits * place)) & mask
    return codes[:, :dim]
