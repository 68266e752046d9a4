"""Finds an id that two indexes have; on the disk, for all ids may be more than memory holds."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path

from aladin.errors import InputError
from aladin.progress import Progress
from index.layout import NEW_CATALOGUE
from index.settings import Target

_IDS_AT_A_TIME = 1000


def check_ids_differ(
    root: Path, target: Target, ids: Mapping[Path, Iterator[str]], progress: Progress
) -> None:
    """Refuse an id that two indexes have.

    Args:
        root: folder of the index that is to hold all of them, to be called by its only builder.
        target: named in errors.
        ids: by index; read once.
        progress: advanced with the ids.

    Raises:
        InputError: an id is in two of the indexes; both are named.
        sqlite3.Error: the disk is full, or cannot be written.
    """
    folder = root / NEW_CATALOGUE
    folder.mkdir()
    try:
        with closing(sqlite3.connect(folder / "ids.sqlite")) as connection:
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("CREATE TABLE ids (id TEXT PRIMARY KEY, part INTEGER) WITHOUT ROWID")
            paths = list(ids)
            for part, of_part in enumerate(ids.values()):
                while batch := list(islice(of_part, _IDS_AT_A_TIME)):
                    lines = [(item_id, part) for item_id in batch]
                    try:
                        connection.executemany("INSERT INTO ids VALUES (?, ?)", lines)
                    except sqlite3.IntegrityError:
                        item_id, first = _repetition(connection, batch, part)
                        raise InputError(
                            f"{target}: id {item_id!r} is in {paths[first]} and in {paths[part]}"
                        ) from None
                    progress.advance(len(batch))
    finally:
        shutil.rmtree(folder)


def _repetition(connection: sqlite3.Connection, ids: Sequence[str], part: int) -> tuple[str, int]:
    """Find the id for which a batch was refused, and the part that has it; those before are in."""
    for item_id in ids:
        found = connection.execute("SELECT part FROM ids WHERE id = ?", (item_id,)).fetchone()
        if found is not None and found[0] != part:
            return item_id, found[0]
    raise AssertionError("the database refused ids of which none repeats")
