"""What ready-made encodings have to be before they are taken for a network's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aladin.errors import DataError
from index.tokens.codec import PackedTokens, TokenCodec

# float16 rounds a component by up to 1 in 2,048; what was never normalised is far off.
_NORM_TOLERANCE = 1e-2


def map_array(path: Path, dimensions: int) -> NDArray[Any]:
    """Map an array on disk without reading it.

    Args:
        path: of the npy file.
        dimensions: that it has to have.

    Raises:
        DataError: missing, not such an array, or cut short.
    """
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(path, None, f"cannot be read as an array ({error})") from error
    if array.ndim != dimensions:
        raise DataError(path, None, f"expected {dimensions} dimensions, got {array.ndim}")
    return array


def check_kind(path: Path, array: NDArray[Any], *kinds: str) -> None:
    """Refuse an array of other numbers.

    Raises:
        DataError: the dtype is none of `kinds`.
    """
    if array.dtype.name not in kinds:
        raise DataError(path, None, f"expected {' or '.join(kinds)}, got {array.dtype.name}")


def check_rows(path: Path, found: int, expected: int, beside: Path) -> None:
    """Refuse a file that is out of step with another one of its part.

    Raises:
        DataError: it has not as many rows.
    """
    if found != expected:
        raise DataError(path, None, f"expected {expected} rows, as {beside.name} has, got {found}")


def unit_vectors(path: Path, first: int, vectors: NDArray[Any]) -> NDArray[np.float32]:
    """Return vectors in float32, refusing those that are not L2-normalised.

    Args:
        path: named in errors.
        first: number of the first row in the file.
        vectors: (rows, dim). What is not float32 has been rounded, and is normalised again.

    Raises:
        DataError: a vector is not finite, or its norm is not 1.
    """
    exact = np.ascontiguousarray(vectors, dtype=np.float32)
    norms = np.linalg.norm(exact, axis=1)
    wrong = np.flatnonzero(~(np.abs(norms - 1) <= _NORM_TOLERANCE))  # NaN is wrong, too
    if len(wrong):
        row = int(wrong[0])
        reason = f"row {first + row}: expected a vector of norm 1, got one of {norms[row]:.4g}"
        raise DataError(path, None, reason)
    return exact if vectors.dtype == np.float32 else exact / norms[:, None]


def check_tokens(path: Path, first: int, tokens: PackedTokens, codec: TokenCodec) -> None:
    """Refuse tokens that no network made.

    Args:
        path: named in errors.
        first: number of the first token in the file.
        tokens: in their stored form.
        codec: that reads them.

    Raises:
        DataError: a centroid does not exist, or a token is not finite or not about of norm 1 or 0.
    """
    if tokens.centroid_ids is not None and codec.centroids is not None:
        beyond = np.flatnonzero(tokens.centroid_ids >= len(codec.centroids))
        if len(beyond):
            found = int(tokens.centroid_ids[beyond[0]])
            reason = f"expected fewer than {len(codec.centroids)} centroids, got number {found}"
            raise DataError(path, None, f"token {first + int(beyond[0])}: {reason}")
    norms = np.linalg.norm(codec.unpack(tokens), axis=1)
    # A few bits a dimension do not keep a norm well; the first two forms do.
    tolerance = _NORM_TOLERANCE if tokens.centroid_ids is None else 0.5
    # The alignment head may give each image a region of zeros.
    sound = (np.abs(norms - 1) <= tolerance) | (norms <= tolerance)
    wrong = np.flatnonzero(~sound)  # NaN is wrong, too
    if len(wrong):
        token = int(wrong[0])
        reason = f"token {first + token}: expected a norm of 1, got {norms[token]:.4g}"
        raise DataError(path, None, reason)
