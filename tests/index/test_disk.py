import errno
import sqlite3
from pathlib import Path

import pytest

from aladin.errors import IndexWriteError, InputError
from index.disk import disk_errors, only_builder


def test_a_failed_write_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(IndexWriteError, match="a.npy: No space left on device; the live"):
        with disk_errors(tmp_path):
            raise OSError(errno.ENOSPC, "No space left on device", "a.npy")
    with pytest.raises(IndexWriteError, match="100 requested and 7 written"):
        with disk_errors(tmp_path):
            raise OSError("100 requested and 7 written")  # what NumPy says of a full disk
    with pytest.raises(IndexWriteError, match="database or disk is full"):
        with disk_errors(tmp_path):
            raise sqlite3.OperationalError("database or disk is full")


def test_other_errors_pass(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no items"), disk_errors(tmp_path):
        raise InputError("no items")


def test_the_lock_goes_with_its_holder_and_leftovers_of_the_killed_are_cleared(
    tmp_path: Path,
) -> None:
    (tmp_path / ".model.123.partial").mkdir()
    (tmp_path / ".CURRENT.123.partial").touch()
    (tmp_path / "CURRENT").touch()
    with only_builder(tmp_path):
        assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "CURRENT"]
        with pytest.raises(IndexWriteError, match="another build"), only_builder(tmp_path):
            raise AssertionError
    with only_builder(tmp_path):
        pass
