import errno
import sqlite3
from pathlib import Path

import pytest

from aladin_index.format.disk import disk_errors, only_builder
from aladin_network.errors import IndexWriteError, InputError


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "a.npy"),
            r"a\.npy: No space left on device; the live generation is unchanged",
        ),
        (OSError("100 requested and 7 written"), "100 requested"),  # NumPy, on a full disk
        (sqlite3.OperationalError("database or disk is full"), "disk is full"),
    ],
)
def test_a_failed_write_is_one_clear_error(tmp_path: Path, error: Exception, said: str) -> None:
    (tmp_path / "CURRENT").touch()
    with pytest.raises(IndexWriteError, match=said), disk_errors(tmp_path):
        raise error


def test_a_live_generation_is_named_only_where_there_is_one(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "a.npy")
    with pytest.raises(IndexWriteError) as caught, disk_errors(tmp_path):
        raise full
    assert str(caught.value) == (
        "a.npy: No space left on device; no generation is live yet, and the command can be "
        "run again (`aladin index build` with --resume)"
    )


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
