"""Shards: files of consecutive encoded items, from which an interrupted build is resumed.

shard-00000/
  rows.npy         (items,) int64, of the items in the build's input
  embeddings.npy   (items, d_match) float32
  tokens.npy       (tokens, d_align) float16
  lengths.npy      (items,) int64, number of tokens of each item
  prepared.json    size, boxes of regions, own metadata and fingerprint of each item
  skipped.json     items that were skipped

A build plans its shards, has those that are missing encoded, in this process or elsewhere, and goes
on from their files:

    encoding.encode(ShardWork(target="images", ...), progress, seconds)  # all shards are there now
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from aladin_index.encode.encoded import ItemBatch, PackedBatch
from aladin_index.encode.item_encoders import StreamedItems, item_encoder
from aladin_index.encode.read_ahead import StageSeconds, encoded_batches
from aladin_index.encode.region_sources import RegionSource
from aladin_index.encode.source_items import Prepared, SourceItem
from aladin_index.format.layout import SKIPPED
from aladin_index.format.npy import NpyWriter
from aladin_index.format.skipped import SkippedItem
from aladin_index.items.tables import StoredItem
from aladin_index.settings import BuildSettings
from aladin_index.tokens.codec import PackedTokens, TokenCodec
from aladin_index.tokens.store import FILE_OF, TokenStore, codec_for
from aladin_network.files import atomic_folder
from aladin_network.inference import Network
from aladin_network.scoring.encoding import Encoding
from aladin_network.types import Progress, Target, TokenDtype

ROWS, EMBEDDINGS, LENGTHS = "rows.npy", "embeddings.npy", "lengths.npy"
_PREPARED = "prepared.json"


@dataclass(frozen=True, kw_only=True)
class ShardFormat:
    """Format of a shard's arrays.

    Attributes:
        embedding_dim: Size of an embedding.
        codec: Codec of the tokens.
    """

    embedding_dim: int
    codec: TokenCodec

    @classmethod
    def of(cls, model: Network) -> ShardFormat:
        """Return the format of a network's encodings.

        Tokens are float16 until all shards are there: a codebook is made from all of them, and
        they are rounded with what the other collection's tokens are like.
        """
        codec = TokenCodec("float16", model.token_dim)
        return cls(embedding_dim=model.embedding_dim, codec=codec)


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A finished shard; its arrays are memory-mapped on demand."""

    folder: Path
    skipped: list[SkippedItem]
    format: ShardFormat

    def array(self, name: str) -> NDArray[Any]:
        mapped: NDArray[Any] = np.load(self.folder / name, mmap_mode="r", allow_pickle=False)
        return mapped

    def tokens(self) -> PackedTokens:
        arrays = {
            array.field: self.array(FILE_OF[array.field]) for array in self.format.codec.arrays
        }
        return PackedTokens(**arrays)

    def prepared(self) -> list[Prepared]:
        """Read what was found out about the items when they were encoded."""
        lines = json.loads((self.folder / _PREPARED).read_bytes())
        return [
            Prepared(
                None,
                size_px and (size_px[0], size_px[1]),
                boxes and np.array(boxes, dtype=np.float32),
                metadata,
                fingerprint,
            )
            for size_px, boxes, metadata, fingerprint in lines
        ]


class ShardItems:
    """The items of a finished shard as long as they are read; places count its items from 0.

    Attributes:
        rows: (items,) int64, rows of the items in the build's input, ascending.
    """

    def __init__(self, shard: Shard) -> None:
        self.rows: NDArray[np.int64] = shard.array(ROWS)
        self._codec = shard.format.codec
        self._embeddings = shard.array(EMBEDDINGS)
        self._store = TokenStore.from_arrays(self._codec, shard.tokens(), shard.array(LENGTHS))
        self._prepared = shard.prepared()

    def prepared(self, places: NDArray[np.int64]) -> list[Prepared]:
        """Return what was found out about some items when they were encoded."""
        return [self._prepared[place] for place in places.tolist()]

    def bare(
        self, places: NDArray[np.int64], items: Sequence[StoredItem]
    ) -> ItemBatch[NDArray[np.float32]]:
        """Return the encodings of some items, whose stored form is given, for who packs them."""
        tokens = self._codec.unpack(self._store.packed(places))
        return ItemBatch(items, self._embeddings[places], tokens, self._store.lengths(places))

    def packed(
        self, places: NDArray[np.int64], items: Sequence[StoredItem], codec: TokenCodec
    ) -> PackedBatch:
        """Return the same with their tokens packed together by a codec."""
        tokens = self._store.packed(places)
        # All codecs of float16 are one.
        if codec.dtype != self._codec.dtype:
            tokens = codec.pack(self._codec.unpack(tokens))
        return PackedBatch(items, self._embeddings[places], tokens, self._store.lengths(places))


def read_shard(folder: Path, format: ShardFormat) -> Shard | None:
    """Return a shard, or None if it was not finished."""
    if not folder.is_dir():
        return None
    lines = json.loads((folder / SKIPPED).read_text(encoding="utf-8"))
    return Shard(folder=folder, skipped=[SkippedItem(*line) for line in lines], format=format)


def write_shard(
    folder: Path,
    format: ShardFormat,
    rows: range,
    batches: Iterable[StreamedItems],
    seconds: StageSeconds,
) -> Shard:
    """Write the items of some rows as they are encoded; the folder appears once it is complete.

    The time of the stage "write" is added to `seconds`.
    """
    skipped: list[SkippedItem] = []
    prepared: list[object] = []
    start = rows.start
    with atomic_folder(folder) as partial:
        with _ShardFiles(partial, format) as files:
            for batch in batches:
                numbered = enumerate(batch.found, start=start)
                usable = {row: each for row, each in numbered if isinstance(each, Prepared)}
                start += len(batch.found)
                skipped += batch.skipped
                for each in usable.values():
                    boxes = [] if each.boxes is None else each.boxes.tolist()
                    told = (dict(each.metadata), each.fingerprint)
                    prepared.append((each.size_px, boxes or None, *told))
                if batch.encoding is not None:
                    with seconds.measure("write"):
                        files.append([*usable], batch.encoding)
        (partial / _PREPARED).write_text(json.dumps(prepared), encoding="utf-8")
        (partial / SKIPPED).write_text(json.dumps(skipped), encoding="utf-8")
    return Shard(folder=folder, skipped=skipped, format=format)


def codec_of(
    dtype: TokenDtype, shards: Sequence[Shard], query_shards: Sequence[Shard]
) -> TokenCodec:
    """Return a codec for the tokens of shards; those of the other collection are like queries'."""
    kept = shards[0].format.codec
    if kept.dtype == dtype:
        return kept
    values, asking = ([shard.tokens().values for shard in each] for each in (shards, query_shards))
    return codec_for(dtype, values, asking)


def shard_files(folder: Path) -> dict[str, NDArray[np.uint8]]:
    """Read a finished shard as the bytes of its files, for transfer."""
    return {path.name: np.fromfile(path, dtype=np.uint8) for path in sorted(folder.iterdir())}


def place_shard(folder: Path, files: Mapping[str, NDArray[np.uint8]]) -> None:
    """Write a shard that was finished elsewhere."""
    with atomic_folder(folder) as partial:
        for name, content in files.items():
            # Not `tofile`, whose error for a full disk states neither the file nor the cause.
            with (partial / name).open("wb") as file:
                file.write(content.data)


class _ShardFiles(ExitStack):
    """Arrays of a shard that is being written."""

    def __init__(self, folder: Path, format: ShardFormat) -> None:
        super().__init__()

        def open_npy(name: str, dtype: DTypeLike, row_shape: tuple[int, ...]) -> NpyWriter:
            return self.enter_context(NpyWriter(folder / name, dtype, row_shape))

        self._codec = format.codec
        self._rows = open_npy(ROWS, np.int64, ())
        self._embeddings = open_npy(EMBEDDINGS, np.float32, (format.embedding_dim,))
        self._lengths = open_npy(LENGTHS, np.int64, ())
        self._tokens = {
            array.field: open_npy(FILE_OF[array.field], array.dtype, array.row_shape)
            for array in format.codec.arrays
        }

    def append(self, rows: Sequence[int], encoding: Encoding) -> None:
        self._rows.append(np.array(rows))
        self._embeddings.append(encoding.embedding)
        self._lengths.append(encoding.mask.sum(axis=1))
        packed = self._codec.pack(encoding.tokens[encoding.mask])
        for field, file in self._tokens.items():
            file.append(getattr(packed, field))


@dataclass(frozen=True, kw_only=True)
class ShardWork:
    """The remaining encoding work of one collection.

    Attributes:
        shards: Rows of each shard by the folder that the shard is to be written to, in order.
        items: Function that returns the items of some consecutive rows; for the thread that began
            the build.
    """

    target: Target
    form: ShardFormat
    shards: Mapping[Path, range]
    items: Callable[[range], Sequence[SourceItem]]


class ShardEncoding(Protocol):
    """Encodes the shards of a build; the files do not depend on the implementation."""

    def encode(self, work: ShardWork, progress: Progress, seconds: StageSeconds) -> None:
        """Write all shards of `work`, each atomically.

        `seconds` receives the times of this call, which are together the time that it took.
        """
        ...


class LocalEncoding:
    """Encodes in this process: threads read, decode and encode ahead of the files."""

    def __init__(
        self, network: Network, settings: BuildSettings, regions: RegionSource | None = None
    ) -> None:
        self._network = network
        self._settings = settings
        self._regions = regions

    def encode(self, work: ShardWork, progress: Progress, seconds: StageSeconds) -> None:
        """Write all shards of `work`, one after the other."""
        settings, size = self._settings, self._settings.batch_size
        encoder = item_encoder(work.target, self._network, settings, self._regions)
        batches = (
            work.items(rows[start : start + size])
            for rows in work.shards.values()
            for start in range(0, len(rows), size)
        )
        # One stream for all shards: its threads encode the next one while this one is written.
        with closing(encoded_batches(encoder, batches, settings, seconds, progress)) as stream:
            for folder, rows in work.shards.items():
                of_this = islice(stream, ceil(len(rows) / size))
                write_shard(folder, work.form, rows, of_this, seconds)
