"""The storage formats of tokens, and the conversion in both directions.

float16   as they are
int8      values of one byte and one scale a token, its largest value being 127
4bit      the nearest centroid of a codebook, and what is left of the token in codes of 4 bits a
          dimension with one scale a token, see `aladin_index.tokens.quantisation`

All but float16 are rounded with what the queries are like, where that is known, see
`aladin_index.tokens.quantisation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.ann import faiss
from aladin_index.tokens.quantisation import (
    ErrorFeedback,
    code_bytes,
    dequantise,
    quantise,
    round_to_levels,
)
from aladin_network.errors import ConfigError, ShapeError
from aladin_network.types import TokenDtype

# The format with a centroid and a residual.
CODED: TokenDtype = "4bit"
_INT8_LEVELS = np.arange(-127, 128, dtype=np.int8)
# Centroid ids are uint16.
MAX_CENTROIDS = 2**16
# A query is multiplied with all centroids before it is scored with a candidate; for this many, that
# costs as much as scoring 8 photos of 49 regions. On Flickr8k 16 centroids keep the top 10 nearly
# as well as 256.
_TRAINED_CENTROIDS = 256
# With fewer vectors per centroid, k-means fits noise; FAISS itself requires 39.
_SAMPLE_A_CENTROID = 39
_KMEANS_ROUNDS = 12
# Rows that are compared with all centroids at a time: 64 MiB of products.
_ROWS_AT_A_TIME = 2**14


class PackedTokens(NamedTuple):
    """Tokens in their storage format.

    Attributes:
        values: (tokens, dim) float16 or int8, or (tokens, bytes of the codes) uint8.
        scales: (tokens,) float32; None for float16.
        centroid_ids: (tokens,) uint16; None for float16 and int8.
    """

    values: NDArray[Any]
    scales: NDArray[np.float32] | None = None
    centroid_ids: NDArray[np.uint16] | None = None

    @property
    def count(self) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Number of tokens."""
        return self.values.shape[0]

    def take(self, places: NDArray[np.int64] | slice) -> PackedTokens:
        """Return the tokens at some positions; a slice gives views."""
        return PackedTokens(*(None if array is None else array[places] for array in self))  # pyright: ignore[reportArgumentType]

    @staticmethod
    def concatenate(parts: Sequence[PackedTokens]) -> PackedTokens:
        """Concatenate tokens of one codec; at least one part."""
        arrays = zip(*parts, strict=True)
        return PackedTokens(*(None if each[0] is None else np.concatenate(each) for each in arrays))  # pyright: ignore[reportArgumentType]


class TokenArray(NamedTuple):
    """One array of a storage format.

    Attributes:
        field: Field name in `PackedTokens`.
        dtype: Data type of the numbers.
        row_shape: Shape of one token: () or (values,).
    """

    field: str
    dtype: np.dtype[Any]
    row_shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class TokenCodec:
    """Converts tokens of one collection to their storage format and back.

    Attributes:
        dtype: Token format.
        dim: Size of a token.
        centroids: (centroids, dim) float32, the codebook of 4bit; None for the others.
        feedback: Statistics of the queries, with which `pack` preserves scores better, or None if
            unknown. Not part of the storage format: a codec read from an index has none.
    """

    dtype: TokenDtype
    dim: int
    centroids: NDArray[np.float32] | None = None
    feedback: ErrorFeedback | None = None

    def __post_init__(self) -> None:
        """Reject a codebook that does not match the format."""
        if (self.centroids is None) != (self.dtype != CODED):
            found = "none" if self.centroids is None else "one"
            raise ConfigError(f"{self.dtype} tokens: expected {self._expected()}, got {found}")
        if self.centroids is not None:
            shape = self.centroids.shape
            if len(shape) != 2 or shape[1] != self.dim or not 0 < shape[0] <= MAX_CENTROIDS:
                raise ShapeError(f"centroids (1 to {MAX_CENTROIDS}, {self.dim})", shape)

    def _expected(self) -> str:
        return "a codebook" if self.dtype == CODED else "no codebook"

    @property
    def bits(self) -> int:
        """Bits per dimension."""
        return {"float16": 16, "int8": 8, "4bit": 4}[self.dtype]

    @property
    def arrays(self) -> list[TokenArray]:
        """The arrays of the storage format, in the order of `PackedTokens`."""
        if self.dtype == CODED:
            values = TokenArray("values", np.dtype(np.uint8), (code_bytes(self.dim),))
        else:
            values = TokenArray("values", np.dtype(self.dtype), (self.dim,))
        scales = TokenArray("scales", np.dtype(np.float32), ())
        ids = TokenArray("centroid_ids", np.dtype(np.uint16), ())
        return [values, scales, ids][: {"float16": 1, "int8": 2}.get(self.dtype, 3)]

    @property
    def token_bytes(self) -> int:
        """Bytes of one stored token."""
        return sum(array.dtype.itemsize * int(np.prod(array.row_shape)) for array in self.arrays)

    @classmethod
    def train(
        cls,
        dtype: TokenDtype,
        sample: NDArray[np.float32],
        queries: NDArray[np.float32] | None = None,
    ) -> TokenCodec:
        """Make a codec for tokens like a sample, (tokens, dim).

        Queries, (tokens, dim) of the other modality, preserve scores much better in all formats but
        float16. The same samples give the same codec.
        """
        dim = sample.shape[1]
        feedback = None
        if queries is not None and len(queries) > 0 and dtype != "float16":
            feedback = ErrorFeedback.of(queries)
        if dtype != CODED:
            return cls(dtype, dim, None, feedback)
        if len(sample) == 0:
            raise ConfigError(f"{dtype} tokens: a codebook needs tokens to be made of, got none")
        return cls(dtype, dim, _centroids_of(sample), feedback)

    @staticmethod
    def concatenated(codecs: Sequence[TokenCodec]) -> tuple[TokenCodec, list[int]]:
        """Make one codec that reads the tokens of several codecs of the same format.

        With it comes what has to be added to the centroid ids of each; equal codebooks are stored
        once.
        """
        first = codecs[0]
        for codec in codecs:
            if (codec.dtype, codec.dim) != (first.dtype, first.dim):
                found = f"{first.dtype} of {first.dim} and {codec.dtype} of {codec.dim}"
                raise ConfigError(f"tokens of one form and size expected, got {found}")
        offsets: list[int] = []
        books: list[NDArray[np.float32]] = []
        places: dict[bytes, int] = {}
        total = 0
        for codec in codecs:
            if codec.centroids is None:
                offsets.append(0)
                continue
            place = places.setdefault(codec.centroids.tobytes(), total)
            offsets.append(place)
            if place == total:
                books.append(codec.centroids)
                total += len(codec.centroids)
        if total > MAX_CENTROIDS:
            raise ConfigError(
                f"{len(books)} codebooks: expected at most {MAX_CENTROIDS} centroids, got {total}"
            )
        return TokenCodec(first.dtype, first.dim, np.concatenate(books) if books else None), offsets

    def pack(self, tokens: NDArray[np.float32] | PackedTokens) -> PackedTokens:
        """Convert tokens (tokens, dim) to the storage format; packed ones stay as they are."""
        if isinstance(tokens, PackedTokens):
            return tokens
        if self.dtype == "float16":
            return PackedTokens(tokens.astype(np.float16))
        if self.dtype == "int8":
            largest = np.abs(tokens).max(axis=1, initial=0)  # (tokens,)
            scales = np.where(largest > 0, largest / 127, 1).astype(np.float32)
            places = round_to_levels(tokens, scales, _INT8_LEVELS, self.feedback)
            return PackedTokens((places - np.uint8(127)).view(np.int8), scales)
        assert self.centroids is not None
        parts: list[PackedTokens] = []
        for start in range(0, max(1, len(tokens)), _ROWS_AT_A_TIME):
            part = tokens[start : start + _ROWS_AT_A_TIME]
            ids = _nearest(part, self.centroids)
            codes, scales = quantise(part - self.centroids[ids], self.feedback)
            parts.append(PackedTokens(codes, scales, ids.astype(np.uint16)))
        return PackedTokens.concatenate(parts)

    def unpack(self, packed: PackedTokens) -> NDArray[np.float32]:
        """Return the stored tokens, (tokens, dim) float32."""
        if packed.scales is None:
            return packed.values.astype(np.float32)
        if packed.centroid_ids is None:
            return packed.values.astype(np.float32) * packed.scales[:, None]
        assert self.centroids is not None
        residuals = dequantise(packed.values, packed.scales, self.dim)
        return self.centroids[packed.centroid_ids] + residuals


def _centroids_of(sample: NDArray[np.float32]) -> NDArray[np.float32]:
    """Cluster a sample; the number of clusters is a power of 2 that the sample size allows."""
    count = 1
    while count < _TRAINED_CENTROIDS and 2 * count * _SAMPLE_A_CENTROID <= len(sample):
        count *= 2
    kmeans = faiss.Kmeans(sample.shape[1], count, niter=_KMEANS_ROUNDS, seed=0)
    kmeans.train(np.ascontiguousarray(sample, dtype=np.float32))
    centroids: NDArray[np.float32] = kmeans.centroids
    return centroids


def _nearest(tokens: NDArray[np.float32], centroids: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return each token's nearest centroid, by Euclidean distance."""
    # Squared distance without the term |t|^2, which is equal for all centroids.
    distances = np.square(centroids).sum(axis=1) - 2 * (tokens @ centroids.T)
    nearest: NDArray[np.int64] = distances.argmin(axis=1)
    return nearest
