"""Databases of changes that are read without locks and without writing a file."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aladin_index.changes.opening as opening
from aladin_index.changes.database import changes_database
from aladin_index.changes.opening import open_database, open_to_read
from aladin_index.changes.writer import ChangesWriter
from aladin_index.generations.reader import open_index
from aladin_index.generations.verify import verify_index
from aladin_index.search.options import SearchOptions
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.errors import IndexWriteError
from tests.index.written import made_up

_UNSHARE = ["unshare", *(["--user", "--map-root-user"] if os.geteuid() else [])]


def write_some(connection: sqlite3.Connection, random: np.random.Generator) -> None:
    """One transaction that inserts and deletes lines, some longer than a page."""
    with connection:
        for _ in range(int(random.integers(1, 6))):
            text = "x" * int(random.integers(0, 9000))
            connection.execute("INSERT INTO lines (text) VALUES (?)", (text,))
        number = int(random.integers(1, 50))
        connection.execute("DELETE FROM lines WHERE number % 50 = ?", (number,))


def lines(connection: sqlite3.Connection) -> list[Any]:
    return connection.execute("SELECT * FROM lines ORDER BY number").fetchall()


@pytest.fixture
def unfollowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make SQLite fail as it does where it cannot make the file by which it follows others."""
    connect = opening._connect  # pyright: ignore[reportPrivateUsage]

    def refused(path: Path, options: str) -> sqlite3.Connection:
        if "immutable" not in options:
            raise full_disk()
        return connect(path, options)

    monkeypatch.setattr(opening, "_connect", refused)


def full_disk() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
    return error


@pytest.mark.usefixtures("unfollowed")
@pytest.mark.parametrize(("page_size", "seed"), [(512, 0), (4096, 1), (65536, 2)])
def test_every_committed_transaction_is_read_and_no_other(
    tmp_path: Path, page_size: int, seed: int
) -> None:
    """Files as a killed writer leaves them, after each commit, checkpoint and open transaction."""
    random = np.random.default_rng(seed)
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.mkdir()
    with closing(sqlite3.connect(source / "a", isolation_level=None)) as writer:
        writer.execute(f"PRAGMA page_size = {page_size}")
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("CREATE TABLE lines (number INTEGER PRIMARY KEY, text TEXT)")
        for step in range(25):
            write_some(writer, random)
            if random.random() < 0.3:
                mode = ["PASSIVE", "RESTART", "TRUNCATE"][int(random.integers(0, 3))]
                writer.execute(f"PRAGMA wal_checkpoint({mode})")
            expected = lines(writer)
            if step % 3 == 0:  # pages of an unfinished transaction are in the log, too
                writer.execute("PRAGMA cache_size = 1")
                writer.execute("BEGIN")
                writer.execute("UPDATE lines SET text = text || 'not yet'")
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(source, copy)
            (copy / "a-shm").unlink()
            with closing(open_to_read(copy / "a")) as reader:
                assert lines(reader) == expected
            if writer.in_transaction:
                writer.execute("ROLLBACK")
            assert not (copy / "a-shm").exists()


@pytest.mark.usefixtures("unfollowed")
def test_a_log_that_was_cut_short_or_changed_ends_before_the_fault(tmp_path: Path) -> None:
    file, log = tmp_path / "a", tmp_path / "a-wal"
    writer = sqlite3.connect(file, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("CREATE TABLE lines (number INTEGER PRIMARY KEY)")
    ends: list[int] = []
    for _ in range(4):
        writer.execute("INSERT INTO lines DEFAULT VALUES")
        ends.append(log.stat().st_size)
    complete = log.read_bytes()
    for count, end in enumerate(ends):
        for broken in (complete[: end - 1], _flipped(complete, end - 100)):
            log.write_bytes(broken)
            with closing(open_to_read(file)) as reader:
                assert len(lines(reader)) == count
    log.write_bytes(_flipped(complete, 9))  # no part of a damaged log is used
    with closing(open_to_read(file)) as reader, pytest.raises(sqlite3.OperationalError):
        lines(reader)
    log.write_bytes(complete)
    writer.close()


def _flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def found(searcher: TwoStageSearcher) -> set[str]:
    options = SearchOptions(k=99, filter={"n": {"gte": 0}})
    return {hit.id for hit in searcher.search(searcher.stored_query("t"), "images", options).hits}


@pytest.mark.usefixtures("unfollowed")
@pytest.mark.parametrize("is_at_work", [True, False])
def test_each_change_is_found_at_once_where_sqlite_cannot_follow_which_is_said_once(
    root: Path, writer: ChangesWriter, caplog: pytest.LogCaptureFixture, is_at_work: bool
) -> None:
    """With the changes in the log of a writer that is at work, and without a log."""
    writer.add("images", made_up(["d"], n=[4]), "error")
    caplog.set_level(logging.WARNING)
    with open_index(root) as index:
        searcher = TwoStageSearcher(index)
        expected = set("abcd")
        assert found(searcher) == expected
        for step in range(12):
            new, gone = f"new {step}", min(expected)
            writer.add("images", made_up([new], n=[step]), "error")
            writer.delete("images", [gone])
            if not is_at_work:
                writer.close()
            expected = expected - {gone} | {new}
            assert found(searcher) == expected
            assert dict(index.collection("images").items.ids()).keys() == expected
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"{changes_database(root, 1, 'images')}: read as it is now")
    assert "disk I/O error" in said


def without_locks(monkeypatch: pytest.MonkeyPatch, root: Path, number: int) -> None:
    """Make locks of an index fail as on a disk that has none."""

    def refuse(lock: Callable[..., None]) -> Callable[..., None]:
        def locked(file: Any, *rest: Any) -> None:
            descriptor = file if isinstance(file, int) else file.fileno()
            if Path(f"/proc/self/fd/{descriptor}").readlink().is_relative_to(root):
                raise OSError(number, os.strerror(number))
            lock(file, *rest)

        return locked

    monkeypatch.setattr(fcntl, "flock", refuse(fcntl.flock))
    monkeypatch.setattr(fcntl, "lockf", refuse(fcntl.lockf))


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_an_index_on_a_disk_without_locks_is_read_and_not_written(
    root: Path,
    writer: ChangesWriter,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    number: int,
) -> None:
    writer.add("images", made_up(["d"], n=[4]), "error")
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        without_locks(patch, root, number)
        with open_index(root) as index:
            searcher = TwoStageSearcher(index)
            assert found(searcher) == set("abcd")  # "d" is in the log alone
            assert open_database(changes_database(root, 1, "images")).fixed is not None
            verify_index(root)
            with pytest.raises(IndexWriteError) as caught:
                writer.delete("images", ["a"])
            patch.undo()
            writer.delete("images", ["b"])  # by a machine that has locks
            without_locks(patch, root, number)
            assert found(searcher) == set("acd")
    assert str(caught.value).startswith(f"{root}: this disk has no file locks (")
    assert "NFS version 4" in str(caught.value)
    said = [record.getMessage() for record in caplog.records]
    assert len([each for each in said if each.startswith(f"{root}: this disk has no file")]) == 1


_ON_A_FULL_DISK = """
import shutil, sqlite3, subprocess, sys
from pathlib import Path
from aladin_index.changes.opening import open_database
source, place = map(Path, sys.argv[1:])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)], check=True)
shutil.copy(source, place / "a")
shutil.copy(f"{source}-wal", place / "a-wal")
try:
    (place / "filler").write_bytes(bytes(2**21))
except OSError as error:
    print(error.errno)
for round in range(2):
    connection, fixed = open_database(place / "a")
    print(connection.execute("SELECT COUNT(*) FROM lines").fetchone()[0], fixed is None)
    connection.close()
    (place / "filler").unlink(missing_ok=True)
"""


def test_a_full_disk_is_read_and_followed_again_once_it_has_space(tmp_path: Path) -> None:
    unshare = [*_UNSHARE, "--mount", "--"]
    permitted = [*unshare, "mount", "-t", "tmpfs", "none", "/mnt"]
    if not shutil.which("unshare") or subprocess.run(permitted, capture_output=True).returncode:
        pytest.skip("this system does not let the tests mount a disk of their own (unshare)")
    with closing(sqlite3.connect(tmp_path / "a", isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("CREATE TABLE lines (number INTEGER PRIMARY KEY)")
        for _ in range(5):
            writer.execute("INSERT INTO lines DEFAULT VALUES")
        (tmp_path / "disk").mkdir()
        arguments = [str(tmp_path / "a"), str(tmp_path / "disk")]
        command = [*unshare, sys.executable, "-c", _ON_A_FULL_DISK, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(errno.ENOSPC), "5", "False", "5", "True"]
