"""Token stores of the second stage, and the codecs fitted to a sample of tokens.

A store is ragged, compact and memory-mapped; only the tokens of candidates are read.

tokens.npy        all items' tokens one after the other, in one of the forms of
`aladin_index.tokens.codec`
scales.npy        all forms but float16: float32, one a token
centroid_ids.npy  4bit: uint16, one a token
centroids.npy     4bit: float32, the codebook
offsets.npy       int64; item i has the tokens offsets[i] to offsets[i + 1]
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from aladin_index.format.manifest import CollectionEntry
from aladin_index.format.npy import map_npy, read_ahead
from aladin_index.kernel import KernelError, NativeTokens
from aladin_index.tokens.codec import CODED, PackedTokens, TokenCodec
from aladin_index.tokens.quantisation import ErrorFeedback
from aladin_network.errors import IndexCorruptError, ShapeError
from aladin_network.types import TokenDtype

TOKENS, SCALES, OFFSETS = "tokens.npy", "scales.npy", "offsets.npy"
CENTROID_IDS, CENTROIDS = "centroid_ids.npy", "centroids.npy"
# The file of each array of `PackedTokens`.
FILE_OF = {"values": TOKENS, "scales": SCALES, "centroid_ids": CENTROID_IDS}

# Number of tokens that suffices for a codebook of full size; 32 MiB for 128 float32 values each.
TOKEN_SAMPLE = 2**16
# Number of tokens of queries; some hundred suffice to estimate their statistics.
QUERY_SAMPLE = 2**13


def token_files(dtype: TokenDtype) -> list[str]:
    """List the files of a storage format: one for each array, and the codebook if it has one."""
    if dtype == CODED:
        return [TOKENS, SCALES, CENTROID_IDS, CENTROIDS]
    return [TOKENS] if dtype == "float16" else [TOKENS, SCALES]


class TokenBlock(NamedTuple):
    """The concatenated tokens of some items.

    Attributes:
        values: (tokens, dim) float32.
        lengths: (items,) int64; number of tokens of each item, which may be 0.
    """

    values: Float[np.ndarray, "tokens dim"]
    lengths: NDArray[np.int64]


class TokenStore:
    """Reads the tokens of items by their rows; thread-safe.

    Attributes:
        codec: Codec of the storage format.
        folder: Folder of the mapped files, or None in memory.
        stored: Tokens of all items.
        offsets: (items + 1,) int64; item i has the tokens offsets[i] to offsets[i + 1].
        is_cold: Whether the latest candidates were read from a disk, not from the page cache; at
            first they are assumed to be.
    """

    def __init__(
        self,
        codec: TokenCodec,
        stored: PackedTokens,
        offsets: NDArray[np.int64],
        folder: Path | None = None,
    ) -> None:
        """Read from arrays, mapped or in memory; see `open` and `from_arrays`."""
        for array in codec.arrays:
            found: NDArray[Any] | None = getattr(stored, array.field)
            shape = (stored.count, *array.row_shape)
            if found is None or (found.dtype, found.shape) != (array.dtype, shape):
                actual = "nothing" if found is None else f"{found.dtype} {found.shape}"
                raise ShapeError(f"{array.field} {array.dtype} {shape}", actual)
        self.codec = codec
        self.folder = folder
        # The kernel needs contiguous arrays; this never copies a mapped one.
        self.stored = PackedTokens(
            *(None if array is None else np.ascontiguousarray(array) for array in stored)  # pyright: ignore[reportArgumentType]
        )
        self.offsets = offsets
        self.is_cold = True

    @classmethod
    def open(
        cls, folder: Path, count: int, token_count: int, dim: int, dtype: TokenDtype
    ) -> TokenStore:
        """Map the files of one collection."""
        codec = TokenCodec(dtype, dim, read_centroids(folder, dim, dtype))
        arrays = [
            map_npy(
                folder / FILE_OF[array.field],
                array.dtype,
                (token_count, *array.row_shape),
                random=True,
            )
            for array in codec.arrays
        ]
        offsets: NDArray[np.int64] = map_npy(folder / OFFSETS, np.int64, (count + 1,))
        if offsets[0] != 0 or offsets[-1] != token_count:
            ends = f"{offsets[0]} to {offsets[-1]}"
            raise IndexCorruptError(folder / OFFSETS, f"expected 0 to {token_count}, got {ends}")
        # Ensures that no item's tokens lie outside of the file; 2 ms for a million items.
        if (offsets[1:] < offsets[:-1]).any():
            item = int(np.argmax(offsets[1:] < offsets[:-1]))
            raise IndexCorruptError(folder / OFFSETS, f"item {item} ends before it begins")
        return cls(codec, PackedTokens(*arrays), offsets, folder)

    @classmethod
    def of(cls, folder: Path, entry: CollectionEntry) -> TokenStore:
        """Map the files of a collection by its entry in the manifest; see `open`."""
        return cls.open(folder, entry.count, entry.token_count, entry.token_dim, entry.token_dtype)

    @classmethod
    def from_arrays(
        cls, codec: TokenCodec, packed: PackedTokens, lengths: Sequence[int] | NDArray[np.int64]
    ) -> TokenStore:
        """Use tokens in memory, item after item; raises `ShapeError` if lengths do not add up."""
        offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        if offsets[-1] != packed.count:
            raise ShapeError(f"{packed.count} tokens in all", f"{offsets[-1]} by the lengths")
        return cls(codec, packed, offsets)

    @property
    def count(self) -> int:
        """Number of items."""
        return len(self.offsets) - 1

    @cached_property
    def native(self) -> NativeTokens:
        """The store in the form that the kernel expects."""
        values, scales, ids = self.stored
        codec = self.codec
        return NativeTokens.of(
            values, scales, ids, codec.centroids, self.offsets, codec.dim, codec.bits
        )

    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of tokens of some items."""
        return self.offsets[rows + 1] - self.offsets[rows]

    def packed(self, rows: NDArray[np.int64]) -> PackedTokens:
        """Read the stored tokens of some items, in the requested order."""
        starts, lengths = self.offsets[rows], self.lengths(rows)
        # For each token: its position in the file is its item's start plus its position in the
        # item.
        ends = np.cumsum(lengths)
        total = int(ends[-1]) if len(ends) else 0
        return self.stored.take(np.repeat(starts - (ends - lengths), lengths) + np.arange(total))

    def read(self, rows: NDArray[np.int64]) -> TokenBlock:
        """Read the tokens of some items in float32, in the requested order."""
        return TokenBlock(self.codec.unpack(self.packed(rows)), self.lengths(rows))

    def warm(self, first: int = 0, end: int | None = None) -> None:
        """Ask the system to read the tokens of some items into its page cache in the background."""
        last = self.count if end is None else end
        start, stop = int(self.offsets[first]), int(self.offsets[last])
        for array in self.stored:
            if array is not None:
                read_ahead(array, [start], [stop])

    def problem(self, error: KernelError) -> Exception:
        """Return what an error of the kernel says about the store or about the rows asked for."""
        if error.is_row:
            return IndexError(f"expected rows from 0 to {self.count - 1}: {error}")
        return IndexCorruptError(self.folder or "tokens", str(error))

    def warm_rows(self, rows: NDArray[np.int64]) -> None:
        """Ask the system to read the tokens of some items, see `read_ahead`.

        In memory, the calls take several times as long as the scoring.
        """
        known = rows[(rows >= 0) & (rows < self.count)]
        starts, stops = self.offsets[known].tolist(), self.offsets[known + 1].tolist()
        for array in self.stored:
            if array is not None:
                read_ahead(array, starts, stops)


def read_centroids(folder: Path, dim: int, dtype: TokenDtype) -> NDArray[np.float32] | None:
    """Read the codebook of one collection, or None if the format has none."""
    if dtype != CODED:
        return None
    path = folder / CENTROIDS
    try:
        centroids: NDArray[Any] = np.load(path, allow_pickle=False)
        # The codec validates the codebook.
        return TokenCodec(dtype, dim, centroids.astype(np.float32)).centroids
    except (OSError, ValueError, EOFError) as error:
        raise IndexCorruptError(path, f"not a readable array ({error})") from error
    except ShapeError as error:
        raise IndexCorruptError(path, str(error)) from error


# Number of items whose tokens are read as those of queries.
_QUERY_ITEMS = 512


def codec_for(
    dtype: TokenDtype, arrays: Sequence[NDArray[Any]], query_arrays: Sequence[NDArray[Any]] = ()
) -> TokenCodec:
    """Make the codec of a collection from a sample of its tokens; deterministic.

    `query_arrays` are of the other collection, whose tokens resemble those of future queries.
    """
    queries = _sample(query_arrays, QUERY_SAMPLE) if query_arrays else None
    return TokenCodec.train(dtype, _sample(arrays, TOKEN_SAMPLE), queries=queries)


def feedback_from(store: TokenStore) -> ErrorFeedback | None:
    """Return the statistics of tokens as queries of the other collection; None without tokens."""
    rows = np.linspace(0, max(0, store.count - 1), min(_QUERY_ITEMS, store.count)).astype(np.int64)
    queries = store.read(rows).values
    return ErrorFeedback.of(queries) if len(queries) else None


def _sample(arrays: Sequence[NDArray[Any]], size: int) -> NDArray[np.float32]:
    """Draw a sample of tokens; deterministic."""
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
