"""Stacks: the photos that are shown as one, because they are of one moment or copies of each other.

Photos belong together

* by their names, in one folder: a pair of a RAW and a JPEG or of a HEIC and a JPEG, an edited copy
  beside its original, the files of a burst (`aladin_network.photos.names`);
* by time: photos of one camera in one folder, taken at most two seconds after another one, that
  look like the first photo of their stack;
* by look: copies and near-copies wherever they are (`aladin_network.photos.fingerprint`).

Each photo joins one stack or begins one. What a photo has joined by its look is compared with no
further copies: so photos that differ are not joined by others in between, however many there are.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left, insort
from collections.abc import Container, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from aladin_index.items.selection import Selection
from aladin_index.items.tables import StoredItem
from aladin_network.photos.dates import BY_FILE, BY_NAME
from aladin_network.photos.fields import CAMERA, DATE_SOURCE, TAKEN_AT
from aladin_network.photos.fingerprint import (
    ALIKE_BITS,
    COPY_BITS,
    COPY_LOW_BITS,
    WORDS,
    different_bits,
    unpack,
)
from aladin_network.photos.names import Shot, shot_of

# Seconds between neighbours of a burst, and between the clocks' times of one moment.
_NEXT_S = 2.0
_ITEMS_AT_A_TIME = 5_000
# Photos that are compared at once, with how many others: a few megabytes.
_BLOCK, _OTHERS = 64, 8192
_NO_FINGERPRINT = "0" * 16 * WORDS
_NO_DATE = "9"  # after all dates
_EPOCH = datetime(1970, 1, 1)


class Rows(Protocol):
    """Reads items by their rows, also those of items that were removed."""

    def by_rows(self, rows: Sequence[int]) -> list[StoredItem]: ...


class Stacks(NamedTuple):
    """The stacks of a collection at one moment, of the photos that pass a filter.

    Attributes:
        roots: (rows,) int64, for each row that of the photo that began its stack.
        members: Rows by root, of stacks of several photos; later photos may be among them.
        selection: Rows that pass, or None if all do.
    """

    roots: NDArray[np.int64]
    members: Mapping[int, Sequence[int]]
    selection: Selection | None

    def of(self, row: int) -> list[int]:
        """Return the passing photos of a row's stack."""
        members = self.members.get(int(self.roots[row]), (row,))
        selection, end = self.selection, len(self.roots)
        return [
            each
            for each in members
            if each < end and (selection is None or each in selection.bitmap)
        ]

    def firsts(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places, ascending, of the rows that are the first of their stack."""
        _, places = np.unique(self.roots[rows], return_index=True)
        return np.sort(places)


class _Photo(NamedTuple):
    """What decides where a photo belongs.

    Attributes:
        clock: Folder and camera, or None if the time of day is not known from the photo itself.
        order: Place among the photos that are sorted into stacks together.
    """

    row: int
    folder: str
    shot: Shot
    clock: str | None
    time_s: float
    order: tuple[str, str, str]
    fingerprint: str | None


# What is kept of each photo: the row that began its stack, its fingerprint, its local time in
# seconds (not a number if unknown), whether its name is marked, and whether copies may join it.
_KEPT = np.dtype([
    ("root", np.int64), ("words", np.uint64, WORDS), ("has_words", np.bool_),
    ("time_s", np.float64), ("is_marked", np.bool_), ("is_anchor", np.bool_),
])  # fmt: skip


class _Anchors:
    """The fingerprints that copies are looked for among, with room for more."""

    def __init__(self, rows: NDArray[np.int64], words: NDArray[np.uint64], room: int) -> None:
        self.count = len(rows)
        self._rows = np.concatenate([rows, np.empty(room, dtype=np.int64)])
        self._words = np.concatenate([words, np.empty((room, WORDS), dtype=np.uint64)])
        self._low = self._words[:, 0].copy()  # by itself, it is read in a quarter of the time
        # Written again and again: new arrays of this size take three times as long.
        self._different = np.empty((_BLOCK, _OTHERS), dtype=np.uint64)
        self._bits = np.empty((_BLOCK, _OTHERS), dtype=np.uint8)

    def add(self, row: int, words: NDArray[np.uint64]) -> None:
        """Add a photo, for which there is room."""
        self._rows[self.count], self._words[self.count] = row, words
        self._low[self.count] = words[0]
        self.count += 1

    def nearest(self, words: NDArray[np.uint64], start: int = 0) -> dict[int, tuple[int, int]]:
        """Return for some photos, by place, the bits and the row of the nearest copy from `start`.

        Of equally near ones, that which was added first.
        """
        best: dict[int, tuple[int, int]] = {}
        for first in range(start, self.count, _OTHERS):
            part = slice(first, min(first + _OTHERS, self.count))
            block = slice(len(words)), slice(part.stop - first)
            np.bitwise_xor(words[:, :1], self._low[None, part], out=self._different[block])
            low = np.bitwise_count(self._different[block], out=self._bits[block])
            near_by = np.flatnonzero(low <= COPY_LOW_BITS)
            places, others = np.divmod(near_by, part.stop - first)
            bits = different_bits(words[places], self._words[part][others])
            found = np.flatnonzero(bits <= COPY_BITS)
            # The nearest comes last, and so stays.
            found = found[np.lexsort((-others[found], -bits[found]))]
            rows = self._rows[part][others[found]].tolist()
            for place, *near in zip(
                places[found].tolist(), bits[found].tolist(), rows, strict=True
            ):
                if place not in best or near[0] <= best[place][0]:
                    best[place] = near[0], near[1]
        return best


class StackIndex:
    """The stacks of a collection in memory, read when they are first asked for; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._source: object = None
        self._start_over()

    def _start_over(self) -> None:
        self._kept = np.empty(0, dtype=_KEPT)
        self._members: dict[int, list[int]] = {}
        self._named: dict[str, list[tuple[int, str]]] = {}
        self._clocks: dict[str, list[tuple[float, int]]] = {}
        self._anchors = _Anchors(np.empty(0, np.int64), np.empty((0, WORDS), np.uint64), 0)
        self._gone: Container[int] = ()

    def read(
        self,
        items: Rows,
        built: int,
        end: int,
        selection: Selection | None,
        gone: Container[int] = (),
        source: object = None,
    ) -> Stacks:
        """Return the stacks of the rows below `end`.

        The first call reads all items, a later one those that have been added.

        Args:
            items: Reads them.
            built: Number of the generation's rows, which are sorted into stacks together.
            end: Row that ends the items.
            selection: Rows that pass, or None if all do.
            gone: Rows that were removed, which nothing joins any more.
            source: What the added rows are read from; from another one, all are read anew.
        """
        with self._lock:
            if end > built and self._source is not source:
                if len(self._kept) > built:
                    self._start_over()
                self._source = source
            self._gone = gone
            for stop in (min(built, end), end):
                if len(self._kept) < stop:
                    self._add(items, range(len(self._kept), stop))
            return Stacks(self._kept["root"][:end], self._members, selection)

    def _add(self, items: Rows, rows: range) -> None:
        photos: list[_Photo] = []
        for start in range(rows.start, rows.stop, _ITEMS_AT_A_TIME):
            some = range(start, min(start + _ITEMS_AT_A_TIME, rows.stop))
            photos += [_photo(item) for item in items.by_rows(some)]
        new = np.zeros(len(rows), dtype=_KEPT)
        new["root"] = rows
        new["words"] = unpack([photo.fingerprint or _NO_FINGERPRINT for photo in photos])
        new["has_words"] = [photo.fingerprint is not None for photo in photos]
        new["time_s"] = [photo.time_s for photo in photos]
        new["is_marked"] = [photo.shot.is_marked for photo in photos]
        # Joined to a new array: those who have the old one keep it.
        self._kept = np.concatenate([self._kept, new])
        able = np.flatnonzero(self._kept["is_anchor"] & self._kept["has_words"])
        able = able[[row not in self._gone for row in able.tolist()]] if len(able) else able
        self._anchors = _Anchors(able, self._kept["words"][able], len(rows))
        # Photos of one burst come one after another, the first one first.
        photos.sort(key=lambda photo: photo.order)
        for start in range(0, len(photos), _BLOCK):
            self._add_block(photos[start : start + _BLOCK])

    def _add_block(self, photos: Sequence[_Photo]) -> None:
        kept, anchors = self._kept, self._anchors
        words, before = kept["words"][[photo.row for photo in photos]], anchors.count
        near = anchors.nearest(words)
        for place, photo in enumerate(photos):
            row, has_words = photo.row, bool(kept["has_words"][photo.row])
            partner = self._by_name(photo)
            if partner is None:
                partner = self._by_time(photo)
            is_anchor = partner is None or bool(kept["is_anchor"][partner])
            if partner is None and has_words:
                of_block = anchors.nearest(words[place : place + 1], before).get(0)
                copies = [each for each in (near.get(place), of_block) if each is not None]
                if copies:
                    _, partner = min(copies, key=lambda each: each[0])
                    is_anchor = False
            if partner is not None:
                root = int(kept["root"][partner])
                kept["root"][row] = root
                self._members.setdefault(root, [root]).append(row)
            kept["is_anchor"][row] = is_anchor
            if is_anchor and has_words:
                anchors.add(row, words[place])
            self._named.setdefault(_key(photo), []).append((row, photo.shot.suffix))
            if photo.clock is not None:
                insort(self._clocks.setdefault(photo.clock, []), (photo.time_s, row))

    def _by_name(self, photo: _Photo) -> int | None:
        """Return a photo of the same moment by its name, or None."""
        for row, suffix in self._named.get(_key(photo), ()):
            if row in self._gone:
                continue
            if photo.shot.is_burst or self._is_same(photo, row, suffix):
                return row
        return None

    def _is_same(self, photo: _Photo, other: int, suffix: str) -> bool:
        """Whether photos of one name are of one moment: by their times, or else by their look."""
        kept, shot = self._kept, photo.shot
        is_marked = shot.is_marked or bool(kept["is_marked"][other])
        if suffix == shot.suffix and not is_marked:
            return False  # two files of one name
        apart_s = abs(photo.time_s - float(kept["time_s"][other]))
        if not math.isnan(apart_s):
            return apart_s <= _NEXT_S
        # An edited copy may show a part of the photo.
        is_known = bool(kept["has_words"][photo.row] and kept["has_words"][other])
        return is_marked or not is_known or self._are_alike(photo.row, other)

    def _by_time(self, photo: _Photo) -> int | None:
        """Return a photo of the same burst, or None."""
        kept = self._kept
        if photo.clock is None or not kept["has_words"][photo.row]:
            return None
        taken = self._clocks.get(photo.clock, [])
        for time_s, row in taken[bisect_left(taken, (photo.time_s - _NEXT_S, -1)) :]:
            if time_s > photo.time_s + _NEXT_S:
                break
            root = int(kept["root"][row])
            is_known = row not in self._gone and kept["has_words"][root]
            if is_known and self._are_alike(photo.row, root):
                return row
        return None

    def _are_alike(self, row: int, other: int) -> bool:
        words = self._kept["words"]
        return bool(different_bits(words[row : row + 1], words[other])[0] <= ALIKE_BITS)


def _key(photo: _Photo) -> str:
    return f"{photo.folder}/{photo.shot.key}"


def _photo(item: StoredItem) -> _Photo:
    folder, _, name = (item.uri or "").rpartition("/")
    told, camera = item.metadata.get(TAKEN_AT), item.metadata.get(CAMERA)
    taken_at = told if isinstance(told, str) else ""
    is_own = item.metadata.get(DATE_SOURCE) not in (None, BY_FILE, BY_NAME)
    time_s = _seconds(taken_at) if is_own else math.nan
    has_clock = isinstance(camera, str) and not math.isnan(time_s)
    return _Photo(
        row=item.row,
        folder=folder,
        shot=shot_of(name),
        clock=f"{folder}/{camera}" if has_clock else None,
        time_s=time_s,
        order=(folder, taken_at or _NO_DATE, name),
        fingerprint=item.fingerprint,
    )


def _seconds(taken_at: str) -> float:
    """Return a local time as seconds; a day alone is none."""
    try:
        moment = datetime.fromisoformat(taken_at) if len(taken_at) > len("2024-07-31") else None
    except ValueError:  # of the user's own metadata
        moment = None
    return math.nan if moment is None else (moment.replace(tzinfo=None) - _EPOCH).total_seconds()
