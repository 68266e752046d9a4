"""From a stream of encoded items to the arrays and the database of one side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from aladin.progress import Progress
from index.items.tables import StoredItem, write_items
from index.npy import NpyWriter, write_npy
from index.side import EMBEDDINGS, ITEMS
from index.tokens.codec import PackedTokens, TokenCodec
from index.tokens.store import CENTROIDS, FILE_OF, OFFSETS


class EncodedPart(NamedTuple):
    """Some items with what the network made of them; what generations are made from.

    Attributes:
        items: rows are numbered as they are written, whatever they say.
        embeddings: (items, d_match) float32, L2-normalised.
        tokens: of all items, one item's after the other's, packed by the side's codec.
        lengths: (items,) int64, number of tokens of each item.
    """

    items: Sequence[StoredItem]
    embeddings: NDArray[np.float32]
    tokens: PackedTokens
    lengths: NDArray[np.int64]


class SideCounts(NamedTuple):
    """How much was written.

    Attributes:
        items: number of items.
        tokens: number of tokens of all items.
    """

    items: int
    tokens: int


def write_side(
    folder: Path,
    parts: Iterable[EncodedPart],
    embedding_dim: int,
    codec: TokenCodec,
    filter_fields: Sequence[str] | None,
    progress: Progress,
) -> SideCounts:
    """Write the embeddings, tokens and items of one side; one part is in memory at a time.

    Args:
        folder: of the side; there, and empty.
        parts: in the order of the rows.
        embedding_dim: size of an embedding.
        codec: that packed the parts' tokens.
        filter_fields: metadata fields that get an index; None: all.
        progress: advanced with the items that are written.

    Raises:
        OSError: the disk is full, or cannot be written.
        sqlite3.Error: the same, met by the database.
        ValueError: the arrays of a part do not fit together.
    """
    with ExitStack() as files:
        arrays = _ArrayWriters(folder, embedding_dim, codec, files)
        write_items(folder / ITEMS, _written(parts, arrays, progress), filter_fields)
    if codec.centroids is not None:
        write_npy(folder / CENTROIDS, np.float32, codec.centroids.shape, [codec.centroids])
    return arrays.counts


class _ArrayWriters:
    """The files that the arrays of a side go to, open while `files` are."""

    def __init__(
        self, folder: Path, embedding_dim: int, codec: TokenCodec, files: ExitStack
    ) -> None:
        def writer(name: str, dtype: DTypeLike, row_shape: tuple[int, ...]) -> NpyWriter:
            return files.enter_context(NpyWriter(folder / name, dtype, row_shape))

        self._embeddings = writer(EMBEDDINGS, np.float32, (embedding_dim,))
        self._tokens = [
            writer(FILE_OF[array.field], array.dtype, array.row_shape) for array in codec.arrays
        ]
        self._offsets = writer(OFFSETS, np.int64, ())
        self._offsets.append(np.zeros(1, dtype=np.int64))
        self.counts = SideCounts(0, 0)

    def append(self, part: EncodedPart) -> None:
        """Write the arrays of a part."""
        items, tokens = len(part.items), int(part.lengths.sum())
        stored = [array for array in part.tokens if array is not None]
        found = {len(part.embeddings), len(part.lengths)}
        found_tokens = {len(array) for array in stored}
        if found != {items} or found_tokens != {tokens}:
            raise ValueError(
                f"a part of {items} items and {tokens} tokens: got arrays of {sorted(found)} "
                f"items and {sorted(found_tokens)} tokens"
            )
        self._embeddings.append(part.embeddings)
        for file, array in zip(self._tokens, stored, strict=True):
            file.append(array)
        self._offsets.append(self.counts.tokens + np.cumsum(part.lengths))
        self.counts = SideCounts(self.counts.items + items, self.counts.tokens + tokens)


def _written(
    parts: Iterable[EncodedPart], arrays: _ArrayWriters, progress: Progress
) -> Iterator[StoredItem]:
    """Yield the items for the database while their arrays are written beside it."""
    for part in parts:
        first = arrays.counts.items
        arrays.append(part)
        for row, item in enumerate(part.items, start=first):
            yield item._replace(row=row)
        progress.advance(len(part.items))
