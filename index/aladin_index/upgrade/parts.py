"""The items that the new model has encoded so far: finished parts, read as they appear.

A part is a folder as of `aladin_index.build.shards`, whose rows are those of the live generation
and its changes. Ids, texts, metadata and deletions are read from these alone, so a part is never
changed, and an item that was deleted or replaced is one whose row is no longer live.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from aladin_index.ann.first_stage import largest
from aladin_index.build.shards import EMBEDDINGS, ROWS, SIZES_PX, Shard, ShardFormat, read_shard
from aladin_index.format.disk import FileIdentity, identity_at
from aladin_index.format.upgrade_plan import part_folders, parts_folder
from aladin_index.items.selection import Selection, bitmap_of
from aladin_index.tokens.codec import PackedTokens
from aladin_index.tokens.maxsim import alignment_with_candidates, token_similarities
from aladin_index.tokens.store import TokenStore
from aladin_network.errors import IndexCorruptError, ShapeError
from aladin_network.types import Modality, Target

# Changes of a folder that are as far apart have different times on every file system.
_TICK_NS = 50_000_000


@dataclass(frozen=True)
class Part:
    """A finished part.

    Attributes:
        shard: Its files.
        rows: (items,) int64, rows in the live generation and its changes.
        embeddings: (items, d_match) float32, memory-mapped.
        store: Tokens of the items.
    """

    shard: Shard
    rows: NDArray[np.int64]
    embeddings: NDArray[np.float32]
    store: TokenStore

    @cached_property
    def sizes_px(self) -> NDArray[np.int32]:
        """(items, 2) Width and height of each photo; 0 for a text."""
        return np.asarray(self.shard.array(SIZES_PX))

    @cached_property
    def boxes(self) -> Sequence[NDArray[np.float32] | None]:
        """Boxes of each item's regions, or None where they are unknown."""
        return self.shard.boxes()

    @classmethod
    def open(cls, folder: Path, form: ShardFormat) -> Part:
        """Map the files of a part.

        Raises:
            IndexCorruptError: If a file is damaged.
        """
        try:
            shard = read_shard(folder, form)
            if shard is None:
                raise IndexCorruptError(folder, "missing")
            rows, embeddings = np.array(shard.array(ROWS)), np.asarray(shard.array(EMBEDDINGS))
            if embeddings.shape != (len(rows), form.embedding_dim):
                expected = f"({len(rows)}, {form.embedding_dim})"
                raise IndexCorruptError(
                    folder / EMBEDDINGS, f"expected {expected}, got {embeddings.shape}"
                )
            return cls(shard, rows, embeddings, shard.token_store())
        except (OSError, ValueError, EOFError, ShapeError) as error:
            raise IndexCorruptError(folder, f"cannot be read ({error})") from error


@dataclass(frozen=True)
class EncodedRows:
    """The rows of one collection that the new model has encoded, at one moment.

    Attributes:
        parts: Finished parts in their order; a row is in one of them.
    """

    parts: tuple[Part, ...] = ()

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """(items,) int64, rows of all parts, one after the other."""
        none = np.empty(0, dtype=np.int64)
        return np.concatenate([none, *(part.rows for part in self.parts)])

    @cached_property
    def _places(self) -> NDArray[np.int64]:
        """Place of each row among `rows`, or -1 for a row that is not encoded."""
        places = np.full(int(self.rows.max(initial=-1)) + 1, -1, dtype=np.int64)
        places[self.rows] = np.arange(len(self.rows))
        return places

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        """Places of the rows in ascending order."""
        return np.argsort(self.rows)

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        return np.cumsum([0, *(len(part.rows) for part in self.parts)])

    @cached_property
    def bitmap(self) -> BitMap:
        """The encoded rows."""
        return bitmap_of(self.rows)

    def are_encoded(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell which rows are encoded."""
        known = rows < len(self._places)
        found = np.zeros(len(rows), dtype=np.bool_)
        found[known] = self._places[rows[known]] >= 0
        return found

    def nearest(
        self, query: NDArray[np.float32], count: int | None, allowed: Selection | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Find the rows whose embeddings are nearest to a query's, comparing all of them.

        Args:
            query: (d_match,), L2-normalised.
            count: Number of rows wanted, or None for all.
            allowed: Rows to choose from, or None for all.

        Returns:
            Rows, best first, those of equal score in ascending order, and their cosines.
        """
        if not self.parts:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
        scores = np.concatenate([part.embeddings @ query for part in self.parts])
        order = self._order
        if allowed is not None:
            order = order[self._is_allowed(self.rows[order], allowed)]
        rows, scores = self.rows[order], scores[order]
        best = largest(scores, len(rows) if count is None else count)
        return rows[best], scores[best]

    def _is_allowed(self, rows: NDArray[np.int64], allowed: Selection) -> NDArray[np.bool_]:
        inside = rows < allowed.size
        inside[inside] = allowed.mask[rows[inside]]
        return inside

    def by_part(
        self, rows: NDArray[np.int64]
    ) -> Iterator[tuple[Part, NDArray[np.int64], list[int]]]:
        """Yield each part that has some of the rows, their places in it, and those among `rows`.

        Raises:
            KeyError: If a row is not encoded.
        """
        if not self.are_encoded(rows).all():
            raise KeyError(f"rows that are not encoded: {rows[~self.are_encoded(rows)].tolist()}")
        places = self._places[rows]
        numbers = np.searchsorted(self._starts, places, side="right") - 1
        for number in np.unique(numbers).tolist():
            of_part = np.flatnonzero(numbers == number)
            yield self.parts[number], places[of_part] - self._starts[number], of_part.tolist()

    def embeddings(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Read embeddings, (rows, d_match)."""
        width = self.parts[0].embeddings.shape[1] if self.parts else 0
        found = np.empty((len(rows), width), dtype=np.float32)
        for part, places, among in self.by_part(rows):
            found[among] = part.embeddings[places]
        return found

    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of tokens of each row."""
        found = np.empty(len(rows), dtype=np.int64)
        for part, places, among in self.by_part(rows):
            found[among] = part.store.lengths(places)
        return found

    def tokens(self, rows: NDArray[np.int64]) -> PackedTokens:
        """Read the tokens of some rows, row after row, float16."""
        found: list[PackedTokens | None] = [None] * len(rows)
        for part, places, among in self.by_part(rows):
            packed = part.store.packed(places)
            ends = np.cumsum(part.store.lengths(places))
            starts = ends - part.store.lengths(places)
            for place, start, end in zip(among, starts.tolist(), ends.tolist(), strict=True):
                found[place] = packed.take(slice(start, end))
        return PackedTokens.concatenate([each for each in found if each is not None])

    def align(
        self, query: NDArray[np.float32], modality: Modality, rows: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Score rows by late interaction, see `aladin_index.search.backend.Collection`."""
        found = np.zeros(len(rows), dtype=np.float32)
        for part, places, among in self.by_part(rows):
            found[among] = alignment_with_candidates(query, modality, part.store, places)
        return found

    def similarities(
        self, query: NDArray[np.float32], modality: Modality, rows: NDArray[np.int64]
    ) -> list[NDArray[np.float32]]:
        """Compare tokens, see `aladin_index.tokens.maxsim.SecondStage`."""
        found: list[NDArray[np.float32]] = [np.empty((0, 0), dtype=np.float32)] * len(rows)
        for part, places, among in self.by_part(rows):
            compared = token_similarities(query, modality, part.store, places)
            for place, each in zip(among, compared, strict=True):
                found[place] = each
        return found


class PartsReader:
    """Follows the parts of one collection as they are finished; thread-safe."""

    def __init__(self, root: Path, target: Target, form: ShardFormat) -> None:
        """Store the arguments; nothing is opened yet.

        Args:
            root: Index folder.
            target: Images or texts.
            form: Format of the new model's encodings.
        """
        self._root = root
        self._target: Target = target
        self._form = form
        self._lock = threading.Lock()
        self._seen: tuple[FileIdentity, int] | None = None
        self._opened: dict[Path, Part] = {}
        self._snapshot = EncodedRows()

    def snapshot(self) -> EncodedRows:
        """Return all finished parts; one look at the disk where nothing is new.

        Where the folder is gone, because the upgrade is finished or was given up, the parts that
        were read before stay: a search that has begun goes on with them.

        Raises:
            IndexCorruptError: If a part is damaged.
        """
        folder = parts_folder(self._root, self._target)
        with self._lock:
            try:
                changed_ns = folder.stat().st_mtime_ns
            except OSError:
                return self._snapshot
            identity = identity_at(folder)
            seen = None if identity is None else (identity, changed_ns)
            if seen is not None and seen != self._seen:
                folders = part_folders(self._root, self._target)
                for each in folders:
                    if each not in self._opened:
                        self._opened[each] = Part.open(each, self._form)
                if folders:
                    self._snapshot = EncodedRows(tuple(self._opened[each] for each in folders))
                # Another part may appear within the same tick of the file system's clock.
                is_past = time.time_ns() - changed_ns > _TICK_NS
                self._seen = seen if is_past else None
            return self._snapshot
