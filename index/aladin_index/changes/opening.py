"""Opens a database to read it, also where SQLite cannot: on a full disk, and on one without locks.

Readers and writers of a database with a write-ahead log agree by locks and by a small file beside
it, which SQLite makes when it opens the database. Where either is impossible, the database is read
as it is now, with everything that was committed, and is opened anew once its files have changed.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import struct
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

from aladin_index.format.disk import has_locks
from aladin_index.format.layout import CURRENT

logger = logging.getLogger(__name__)

# Others wait this long for a checkpoint, or for a reader that recovers after a killed writer.
BUSY_S = 30.0
# A file may change once more without a new time for so long after its last change.
_SAME_TIME_NS = 1_000_000_000
# Errors of reading where nothing can be written, or where the locks do not work.
_CANNOT_FOLLOW = frozenset(
    {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}
)
_WAL_HEADER, _FRAME_HEADER = struct.Struct(">8I"), struct.Struct(">6I")
# By the order of the bytes in its checksums.
_WAL_MAGIC = {0x377F0682: "<", 0x377F0683: ">"}
_WAL_VERSION = 3007000


class SeenFiles(NamedTuple):
    """State of the files of a database that is read as it was.

    Attributes:
        database: Size and time of last change of the database, in nanoseconds; None if missing.
        ahead: The same of its write-ahead log; None if it is missing or empty.
    """

    database: tuple[int, int] | None
    ahead: tuple[int, int] | None
    is_settled: bool

    @classmethod
    def of(cls, path: Path) -> SeenFiles:
        """Look at the files of a database."""
        found: list[tuple[int, int] | None] = []
        for file in (path, _ahead(path)):
            try:
                state = file.stat()
                found.append((state.st_size, state.st_mtime_ns) if state.st_size else None)
            except FileNotFoundError:
                found.append(None)
        youngest = max((state[1] for state in found if state is not None), default=0)
        return cls(found[0], found[1], time.time_ns() - youngest > _SAME_TIME_NS)

    def are_now(self, path: Path) -> bool:
        """Whether the files still have these sizes and times."""
        return self[:2] == SeenFiles.of(path)[:2]


class OpenDatabase(NamedTuple):
    """A database that is open for reading.

    Attributes:
        connection: Connection, for one thread at a time; `close` may be called by any thread.
        fixed: State that the connection shows if it never sees a later one, otherwise None.
    """

    connection: sqlite3.Connection
    fixed: SeenFiles | None


def open_database(path: Path) -> OpenDatabase:
    """Connect to a database read-only."""
    root = next((folder for folder in path.parents if (folder / CURRENT).exists()), None)
    is_locked = root is None or has_locks(root / CURRENT, root)
    # SQLite would wait for locks that do not exist, and cannot make its files in such a folder.
    if is_locked and (os.access(path.parent, os.W_OK) or _ahead(path).exists()):
        try:
            return OpenDatabase(_following(path), None)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in _CANNOT_FOLLOW or not path.exists():
                raise
            _say_once(path, str(error))
    deadline_s = time.monotonic() + BUSY_S
    while True:
        before = SeenFiles.of(path)
        connection = _as_it_is(path)
        if before.are_now(path):
            return OpenDatabase(connection, before)
        connection.close()
        if time.monotonic() > deadline_s:
            raise sqlite3.OperationalError("it changed all the time while it was read")


def open_to_read(path: Path) -> sqlite3.Connection:
    """Connect to a database read-only, for one look at it; see `open_database`."""
    return open_database(path).connection


@cache
def _say_once(path: Path, reason: str) -> None:
    logger.warning(
        "%s: read as it is now, since SQLite cannot work beside it (%s; the disk may be full)",
        path,
        reason,
    )


def _ahead(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _connect(path: Path, options: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?{options}"
    connection = sqlite3.connect(
        uri, uri=True, isolation_level=None, timeout=BUSY_S, check_same_thread=False
    )
    connection.execute("PRAGMA temp_store = MEMORY")
    return connection


def _following(path: Path) -> sqlite3.Connection:
    """Connect to a database so that SQLite sees what others commit."""
    connection = _connect(path, "mode=ro")
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _as_it_is(path: Path) -> sqlite3.Connection:
    """Connect to the committed state of a database without a lock and without writing a file."""
    connection = _connect(path, "mode=ro&immutable=1")
    try:
        log = _ahead(path).read_bytes()
    except FileNotFoundError:
        return connection
    pages = _committed(log)
    if pages is None:
        return connection
    # SQLite reads no log without its own files: the pages are put into a copy in memory.
    with_log = bytearray(connection.serialize())
    connection.close()
    size, count, newest = pages
    with_log.extend(bytes(max(0, size * count - len(with_log))))
    del with_log[size * count :]
    for number, page in newest.items():
        with_log[size * (number - 1) : size * number] = page
    with_log[18:20] = b"\1\1"  # no write-ahead log
    copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    copy.deserialize(bytes(with_log))
    return copy


def _committed(log: bytes) -> tuple[int, int, dict[int, bytes]] | None:
    """Read what a write-ahead log has committed (https://sqlite.org/fileformat2.html#walformat).

    Size of a page in bytes, number of pages of the database, and its newest pages by their number
    from 1; None if the log has nothing.
    """
    if len(log) < _WAL_HEADER.size:
        return None
    magic, version, size, _, *salts, first, second = _WAL_HEADER.unpack_from(log)
    order = _WAL_MAGIC.get(magic)
    if order is None or version != _WAL_VERSION:
        return None
    sums = _checksums(log[:24], order, (0, 0))
    if sums != (first, second):
        return None
    count, newest, open_pages = 0, dict[int, bytes](), dict[int, bytes]()
    for start in range(_WAL_HEADER.size, len(log) - size - 23, size + 24):
        number, commits, *frame_salts, first, second = _FRAME_HEADER.unpack_from(log, start)
        page = log[start + 24 : start + 24 + size]
        sums = _checksums(log[start : start + 8] + page, order, sums)
        # The rest is of an earlier log, or was not written completely.
        if frame_salts != salts or sums != (first, second):
            break
        open_pages[number] = page
        if commits:
            newest |= open_pages
            count, open_pages = commits, {}
    return (size, count, newest) if count else None


def _checksums(data: bytes, order: str, sums: tuple[int, int]) -> tuple[int, int]:
    """Return the checksums of a log after more of its data."""
    first, second = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second
