"""Writing of a collection: from a stream of encoded items to its arrays and its database.

Also the stream of all live items of a collection, for export, merge and compaction, and the overlap
of the indexed photos with those that a calibration was fitted on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from aladin_index.ann.hub_correction import corrected_vectors
from aladin_index.encode.encoded import PackedBatch
from aladin_index.format.layout import ANN, EMBEDDINGS, ITEMS, SKIPPED
from aladin_index.format.manifest import BIASES, CollectionEntry, Tuning
from aladin_index.format.npy import NpyWriter, write_npy
from aladin_index.format.skipped import SkippedItem
from aladin_index.items.tables import StoredItem, write_items
from aladin_index.search.file_collection import FileCollection
from aladin_index.tokens.bound_files import BOUND_FILES
from aladin_index.tokens.codec import TokenCodec
from aladin_index.tokens.store import CENTROIDS, FILE_OF, OFFSETS, token_files
from aladin_network.calibration.calibration import Calibration, hash_photo
from aladin_network.scoring.encoding import TokenRows
from aladin_network.scoring.hub_correction import HubCorrection
from aladin_network.types import Progress, Target

# Items in memory at a time: 49 tokens of 128 float16 values each are 50 MiB.
ITEMS_AT_A_TIME = 4096

# A calibration judges an index if at least this share of the photos are of the data set that it was
# fitted on.
_MOST = 0.5


@dataclass(frozen=True, kw_only=True)
class CollectionSource:
    """Source of one collection of a new generation.

    Attributes:
        embedding_dim: Size of an embedding.
        codec: Codec that packed the tokens of the parts.
        parts: Items in the order of their rows; read once. The creator of the parts must ensure
            that IDs are unique.
        skipped: Items that could not be used; read after all parts.
        count: Number of items, if known; used only for the progress.
        tuning: Tuning of the second stage, kept from an earlier generation, or None if not tuned.
    """

    embedding_dim: int
    codec: TokenCodec
    parts: Iterable[PackedBatch]
    skipped: Sequence[SkippedItem] = ()
    count: int | None = None
    tuning: Tuning | None = None


class CollectionCounts(NamedTuple):
    """Numbers of items and tokens written.

    Attributes:
        items: Number of items.
        tokens: Number of tokens of all items.
    """

    items: int
    tokens: int


def collection_files(target: Target, entry: CollectionEntry) -> list[str]:
    """List the files of one collection by their paths below the generation's folder."""
    names = [ANN, EMBEDDINGS, *token_files(entry.token_dtype), OFFSETS, ITEMS, SKIPPED]
    if entry.bounds is not None:
        names += BOUND_FILES
    return [f"{target}/{name}" for name in names]


def write_collection(
    folder: Path,
    target: Target,
    collection: CollectionSource,
    filter_fields: Sequence[str] | None,
    correction: HubCorrection | None,
    progress: Progress,
) -> CollectionCounts:
    """Write embeddings, tokens and items into an empty folder; one part is in memory at a time.

    With a correction, parts with bare embeddings get their biases. Raises `ValueError` if the
    arrays of a part do not match.
    """
    with ExitStack() as files:
        arrays = _ArrayWriters(folder, target, collection, correction, files)
        write_items(folder / ITEMS, _written(collection.parts, arrays, progress), filter_fields)
    codec = collection.codec
    if codec.centroids is not None:
        write_npy(folder / CENTROIDS, np.float32, codec.centroids.shape, [codec.centroids])
    return arrays.counts


class _ArrayWriters:
    """Files of the arrays of a collection, open as long as `files` is."""

    def __init__(
        self,
        folder: Path,
        target: Target,
        collection: CollectionSource,
        correction: HubCorrection | None,
        files: ExitStack,
    ) -> None:
        self._target: Target = target
        self._dim = collection.embedding_dim
        self._correction, self._codec = correction, collection.codec

        def writer(name: str, dtype: DTypeLike, row_shape: tuple[int, ...]) -> NpyWriter:
            return files.enter_context(NpyWriter(folder / name, dtype, row_shape))

        self._embeddings = writer(
            EMBEDDINGS, np.float32, (self._dim + (BIASES if correction else 0),)
        )
        self._tokens = [
            writer(FILE_OF[array.field], array.dtype, array.row_shape)
            for array in collection.codec.arrays
        ]
        self._offsets = writer(OFFSETS, np.int64, ())
        self._offsets.append(np.zeros(1, dtype=np.int64))
        self.counts = CollectionCounts(0, 0)

    def append(self, part: PackedBatch) -> None:
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
        self._embeddings.append(self._vectors(part))
        for file, array in zip(self._tokens, stored, strict=True):
            file.append(array)
        self._offsets.append(self.counts.tokens + np.cumsum(part.lengths))
        self.counts = CollectionCounts(self.counts.items + items, self.counts.tokens + tokens)

    def _vectors(self, part: PackedBatch) -> NDArray[np.float32]:
        """Return the vectors of a part, whose biases are computed unless it has them."""
        if self._correction is None or part.embeddings.shape[1] != self._dim:
            return part.embeddings
        tokens = TokenRows(self._codec.unpack(part.tokens), part.lengths)
        return corrected_vectors(self._correction, self._target, part.embeddings, tokens)


def _written(
    parts: Iterable[PackedBatch], arrays: _ArrayWriters, progress: Progress
) -> Iterator[StoredItem]:
    """Yield the items for the database, and write their arrays at the same time."""
    for part in parts:
        first = arrays.counts.items
        arrays.append(part)
        for row, item in enumerate(part.items, start=first):
            yield item._replace(row=row)
        progress.advance(len(part.items))


class FittedPhotos:
    """Compares a generation's photos with those that its calibration was fitted on."""

    def __init__(self, calibration: Calibration | None) -> None:
        fitted_on = None if calibration is None else calibration.fitted_on
        # A calibration that was fitted to an index is of that index's photos, whatever the data.
        data = fitted_on.data_sample if fitted_on and fitted_on.searched == "split" else None
        self._data = frozenset(() if data is None else data.hashes)
        self._limit = "" if data is None else data.limit
        self._compared = self._of_data = 0
        self._watched: Target | None = None

    def watch(
        self, collections: Mapping[Target, CollectionSource]
    ) -> Mapping[Target, CollectionSource]:
        """Return the same collections; photos are counted as they are read.

        An index without images is known by the photos that its texts are captions of.
        """
        if not self._data:
            return collections
        self._watched = "images" if "images" in collections else "texts"
        collection = collections[self._watched]
        return {
            **collections,
            self._watched: replace(collection, parts=self._counted(collection.parts)),
        }

    def mark(self, calibration: Calibration | None) -> Calibration | None:
        """Mark a calibration of other photos, so that it judges nothing here.

        Most photos are of other data, or none of them can tell.
        """
        if calibration is None or self._watched is None:
            return calibration
        are_others = self._of_data < max(1, _MOST * self._compared)
        return replace(calibration, other_photos=are_others)

    def _counted(self, parts: Iterable[PackedBatch]) -> Iterator[PackedBatch]:
        for part in parts:
            for item in part.items:
                photo = item.id if self._watched == "images" else item.id.rpartition("#")[0]
                hashed = hash_photo(photo)
                self._compared += hashed <= self._limit
                self._of_data += hashed in self._data
            yield part


def live_parts(
    collection: FileCollection, items_at_a_time: int = ITEMS_AT_A_TIME
) -> Iterator[PackedBatch]:
    """Yield the live items of a collection in row order, with tokens in their stored form."""
    selection, base, changes = collection.selection, collection.base, collection.changes
    rows = base.entry.count if changes is None else changes.rows
    live = np.arange(rows) if selection is None else selection.rows
    built, added = live[live < base.entry.count], live[live >= base.entry.count]
    states = {} if changes is None else changes.added.file_states()
    for start in range(0, len(built), items_at_a_time):
        chosen = built[start : start + items_at_a_time]
        yield PackedBatch(
            items=[_as_recorded(item, states) for item in base.items.by_rows(chosen.tolist())],
            embeddings=base.embeddings[chosen],
            tokens=base.tokens.packed(chosen),
            lengths=base.tokens.lengths(chosen),
        )
    for start in range(0, len(added), items_at_a_time):
        assert changes is not None  # only there do such rows come from
        chosen = added[start : start + items_at_a_time]
        yield PackedBatch(
            items=[
                _as_recorded(item, states) for item in collection.items.by_rows(chosen.tolist())
            ],
            embeddings=changes.embeddings_of(chosen),
            tokens=changes.tokens(chosen).stored,
            lengths=changes.lengths(chosen),
        )


def items_of(collection: FileCollection, rows: NDArray[np.int64]) -> list[StoredItem]:
    """Read some items, each with the state of its file that was recorded last."""
    states = {} if collection.changes is None else collection.changes.added.file_states()
    return [_as_recorded(item, states) for item in collection.items.by_rows(rows.tolist())]


def _as_recorded(item: StoredItem, states: Mapping[int, str]) -> StoredItem:
    return item._replace(file_state=states.get(item.row, item.file_state)) if states else item
