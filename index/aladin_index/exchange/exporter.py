"""Exports an index as embeddings, tokens and metadata that other programs read."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from aladin_index.ann.hub_correction import without_biases
from aladin_index.encode.encoded import PackedBatch
from aladin_index.exchange.items import RowWriter
from aladin_index.exchange.layout import (
    SCHEMA_VERSION,
    TEXTS_FOLDER,
    CollectionLayout,
    ExchangeManifest,
    describe_paths,
    part_names,
    write_exchange_manifest,
)
from aladin_index.facts import EncodedEntry
from aladin_index.format.npy import NpyWriter
from aladin_index.generations.collection_writer import ITEMS_AT_A_TIME, live_parts
from aladin_index.generations.reader import open_index
from aladin_index.items.tables import StoredItem
from aladin_index.search.file_collection import FileCollection
from aladin_index.tokens.codec import TokenCodec
from aladin_network.errors import ConfigError, IndexWriteError, InputError, need_packages
from aladin_network.files import atomic_folder
from aladin_network.types import NullProgress, Progress, Target

# Tokens of 49 regions and 128 dimensions in int8 give files of 600 MiB.
ROWS_A_PART = 100_000
_UNITS: dict[Target, str] = {"images": "photos", "texts": "texts"}


def export_index(
    index: Path, out: Path, progress: Progress | None = None, rows_a_part: int = ROWS_A_PART
) -> dict[Target, int]:
    """Write all live items of an index into a folder; see `aladin_index.exchange.layout`.

    Embeddings are written in float32 and tokens in their stored form, so nothing is lost. The
    folder appears when it is whole; a few thousand items are in memory at a time.

    Args:
        index: Folder of the index.
        out: Folder to create for the export.
        progress: Receives the progress in items.
        rows_a_part: Approximate number of items of a file.

    Returns:
        The number of items of each collection.

    Raises:
        ConfigError: If something exists at `out`, or a package is missing.
        InputError: If all items of the index are removed.
        SearchIndexError: If the index cannot be read or the disk cannot be written.
    """
    progress = progress or NullProgress()
    need_packages("an export", "pyarrow")
    if out.exists():
        raise ConfigError(f"{out}: already exists; an export needs a new folder")
    with (
        open_index(index, encodes=False) as opened,
        _write_errors(out),
        atomic_folder(out) as folder,
    ):
        exports: dict[Target, _CollectionExport] = {}
        for target in opened.manifest.targets:
            collection = opened.collection(target)
            if collection.count > 0:
                exports[target] = _CollectionExport(index, folder, collection, rows_a_part)
                exports[target].write(progress)
        if not exports:
            raise InputError(f"{index}: there is nothing to export, all items are removed")
        collections: dict[Target, EncodedEntry] = {
            target: export.described for target, export in exports.items()
        }
        paths = {path for export in exports.values() for path in export.paths}
        manifest = ExchangeManifest(
            schema_version=SCHEMA_VERSION,
            model_id=opened.manifest.model.id,
            metric=opened.manifest.metric,
            images=collections.get("images"),
            texts=collections.get("texts"),
            # Exported items have no biases, and other probabilities.
            calibration=None if opened.manifest.correction else opened.manifest.calibration,
            files=describe_paths(folder, paths),
        )
        write_exchange_manifest(folder, manifest)
    return {target: collection.count for target, collection in collections.items()}


class _CollectionExport:
    """Export of one collection, and the paths of the files that were written."""

    def __init__(
        self, root: Path, folder: Path, collection: FileCollection, rows_a_part: int
    ) -> None:
        self._root, self._folder = root, folder
        place = folder if collection.target == "images" else folder / TEXTS_FOLDER
        self._layout = CollectionLayout(place, collection.target)
        self._collection = collection
        self._codec = collection.base.tokens.codec
        self._rows_a_part = rows_a_part
        self._count = 0
        self.paths: set[Path] = set()

    @property
    def described(self) -> EncodedEntry:
        """Description of what was written."""
        return EncodedEntry(
            count=self._count,
            embedding_dim=self._collection.entry.embedding_dim,
            token_dim=self._codec.dim,
            token_dtype=self._codec.dtype,
        )

    def write(self, progress: Progress) -> None:
        for folder in self._layout.folders:
            folder.mkdir(parents=True, exist_ok=True)
        progress.start(self._collection.count, _UNITS[self._collection.target])
        chunks = live_parts(self._collection, min(self._rows_a_part, ITEMS_AT_A_TIME))
        # Each part takes chunks until it is full: there are at most so many parts.
        for name in part_names(-(-self._collection.count // self._rows_a_part)):
            rows = self._write_part(name, chunks, progress)
            if rows == 0:
                break
            self._count += rows
        if self._codec.centroids is not None:
            np.save(self._layout.centroids, self._codec.centroids)

    def _write_part(self, name: str, chunks: Iterator[PackedBatch], progress: Progress) -> int:
        chunk = next(chunks, None)
        if chunk is None:
            return 0
        self.paths.update(self._layout.files(name, self._codec))
        rows = 0
        with ExitStack() as files:
            dim = self._collection.entry.embedding_dim
            writer = _PartWriter(self._layout, name, self._codec, dim, files)
            while chunk is not None:
                writer.append(chunk)
                self._copy_uploaded(chunk.items)
                rows += len(chunk.items)
                progress.advance(len(chunk.items))
                chunk = next(chunks, None) if rows < self._rows_a_part else None
        return rows

    def _copy_uploaded(self, items: Sequence[StoredItem]) -> None:
        for item in items:
            if item.path is not None and not Path(item.path).is_absolute():
                copy = self._folder / item.path
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self._root / item.path, copy)


class _PartWriter:
    """The open files of one part."""

    def __init__(
        self,
        layout: CollectionLayout,
        name: str,
        codec: TokenCodec,
        embedding_dim: int,
        files: ExitStack,
    ) -> None:
        self._dim = embedding_dim
        self._embeddings = files.enter_context(
            NpyWriter(layout.embeddings(name), np.float32, (embedding_dim,))
        )
        self._lengths = files.enter_context(NpyWriter(layout.lengths(name), np.int64))
        self._tokens = [
            files.enter_context(
                NpyWriter(layout.token_array(array.field, name), array.dtype, array.row_shape)
            )
            for array in codec.arrays
        ]
        self._rows = files.enter_context(RowWriter(layout.metadata(name), layout.target))

    def append(self, chunk: PackedBatch) -> None:
        """Write some items."""
        self._embeddings.append(without_biases(chunk.embeddings, self._dim))
        self._lengths.append(chunk.lengths)
        stored = [array for array in chunk.tokens if array is not None]
        for file, array in zip(self._tokens, stored, strict=True):
            file.append(array)
        self._rows.append(chunk.items)


@contextmanager
def _write_errors(out: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise IndexWriteError(out, f"{reason}; nothing was exported") from error
