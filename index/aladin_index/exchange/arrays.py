"""Arrays of ready-made encodings: memory-mapped in their stored form, and validated."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aladin_index.exchange.layout import CollectionLayout
from aladin_index.tokens.codec import CODED, PackedTokens, TokenCodec
from aladin_index.tokens.quantisation import code_bytes
from aladin_network.errors import DataError, IndexMismatchError

# float16 rounds a component by up to 1 in 2,048; vectors that were never normalised are far off.
_NORM_TOLERANCE = 1e-2


def map_array(path: Path, dimensions: int) -> NDArray[Any]:
    """Map an array on disk without reading it."""
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(path, None, f"cannot be read as an array ({error})") from error
    if array.ndim != dimensions:
        raise DataError(path, None, f"expected {dimensions} dimensions, got {array.ndim}")
    return array


def check_kind(path: Path, array: NDArray[Any], *kinds: str) -> None:
    if array.dtype.name not in kinds:
        raise DataError(path, None, f"expected {' or '.join(kinds)}, got {array.dtype.name}")


def check_rows(path: Path, found: int, expected: int, beside: Path) -> None:
    """Check that a file has as many rows as another file of its part."""
    if found != expected:
        raise DataError(path, None, f"expected {expected} rows, as {beside.name} has, got {found}")


def unit_vectors(path: Path, first: int, vectors: NDArray[Any]) -> NDArray[np.float32]:
    """Return vectors in float32; reject those that are not L2-normalised."""
    exact = np.ascontiguousarray(vectors, dtype=np.float32)
    norms = np.linalg.norm(exact, axis=1)
    wrong = np.flatnonzero(~(np.abs(norms - 1) <= _NORM_TOLERANCE))  # NaN is wrong, too
    if len(wrong):
        row = int(wrong[0])
        reason = f"row {first + row}: expected a vector of norm 1, got one of {norms[row]:.4g}"
        raise DataError(path, None, reason)
    return exact if vectors.dtype == np.float32 else exact / norms[:, None]


def check_tokens(path: Path, first: int, tokens: PackedTokens, codec: TokenCodec) -> None:
    """Reject tokens whose norms are impossible for a network's output."""
    if tokens.centroid_ids is not None and codec.centroids is not None:
        beyond = np.flatnonzero(tokens.centroid_ids >= len(codec.centroids))
        if len(beyond):
            found = int(tokens.centroid_ids[beyond[0]])
            reason = f"expected fewer than {len(codec.centroids)} centroids, got number {found}"
            raise DataError(path, None, f"token {first + int(beyond[0])}: {reason}")
    norms = np.linalg.norm(codec.unpack(tokens), axis=1)
    # Codes of 4 bits do not preserve the norm well; the first two forms do.
    tolerance = _NORM_TOLERANCE if tokens.centroid_ids is None else 0.5
    # The alignment head may return a region of zeros for each image.
    sound = (np.abs(norms - 1) <= tolerance) | (norms <= tolerance)
    wrong = np.flatnonzero(~sound)  # NaN is wrong, too
    if len(wrong):
        token = int(wrong[0])
        reason = f"token {first + token}: expected a norm of 1, got {norms[token]:.4g}"
        raise DataError(path, None, reason)


class StoredTokens:
    """Tokens of all parts, by the name of the part.

    Attributes:
        codec: Codec that decodes them.
        lengths: (rows,) number of tokens of each item.
        packed: Packed tokens of all items of the part, concatenated.
    """

    def __init__(
        self, layout: CollectionLayout, names: Sequence[str], rows: Sequence[int], dim: int
    ) -> None:
        self.codec = _codec(layout, names[0], dim)
        self.packed = {name: _packed(layout, name, self.codec) for name in names}
        self.lengths: dict[str, NDArray[Any]] = {}
        for name, count in zip(names, rows, strict=True):
            path = layout.lengths(name)
            lengths = map_array(path, 1)
            check_kind(path, lengths, "int64", "int32")
            check_rows(path, len(lengths), count, layout.embeddings(name))
            total, least = int(lengths.sum()), int(lengths.min(initial=0))
            if least < 0 or total != self.packed[name].count:
                tokens = layout.token_array("values", name)
                found = f"{total}, the least {least}"
                reason = f"expected {self.packed[name].count} tokens, as {tokens.name} has"
                raise DataError(path, None, f"{reason}, got {found}")
            self.lengths[name] = lengths

    @property
    def count(self) -> int:
        return sum(packed.count for packed in self.packed.values())

    def sample(self, count: int) -> NDArray[np.float32]:
        """Return a fixed, evenly spaced sample of the tokens, (tokens, dim)."""
        places = np.linspace(0, self.count - 1, min(count, self.count)).astype(np.int64)
        sample: list[NDArray[np.float32]] = []
        first = 0
        for packed in self.packed.values():
            inside = places[(places >= first) & (places < first + packed.count)] - first
            sample.append(self.codec.unpack(packed.take(inside)))
            first += packed.count
        return np.concatenate(sample)


def _codec(layout: CollectionLayout, part: str, dim: int) -> TokenCodec:
    """Determine the form of the tokens from the arrays of one part."""
    path = layout.token_array("values", part)
    values = map_array(path, 2)
    check_kind(path, values, "float16", "float32", "int8", "uint8")
    width = values.shape[1]
    if values.dtype != np.uint8:
        if width != dim:
            raise IndexMismatchError(f"{path}: size of a token", dim, width)
        return TokenCodec("int8" if values.dtype == np.int8 else "float16", dim)
    if width != code_bytes(dim):
        raise IndexMismatchError(f"{path}: bytes of a token", code_bytes(dim), width)
    centroids = map_array(layout.centroids, 2)
    check_kind(layout.centroids, centroids, "float32")
    if centroids.shape[1] != dim:
        raise IndexMismatchError(f"{layout.centroids}: size of a token", dim, centroids.shape[1])
    return TokenCodec(CODED, dim, np.array(centroids))


def _packed(layout: CollectionLayout, part: str, codec: TokenCodec) -> PackedTokens:
    values = layout.token_array("values", part)
    arrays: dict[str, NDArray[Any]] = {}
    for array in codec.arrays:
        path = layout.token_array(array.field, part)
        mapped = map_array(path, 1 + len(array.row_shape))
        also = ("float32",) if array.dtype == np.float16 else ()
        check_kind(path, mapped, array.dtype.name, *also)
        if mapped.shape[1:] != array.row_shape:
            raise IndexMismatchError(f"{path}: size of a token", array.row_shape, mapped.shape[1:])
        if arrays:
            check_rows(path, len(mapped), len(arrays["values"]), values)
        arrays[array.field] = mapped
    return PackedTokens(**arrays)
