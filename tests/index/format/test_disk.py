import errno
import sqlite3
import threading
from pathlib import Path

import pytest

from aladin_index.format.disk import (
    GenerationLease,
    disk_errors,
    lease_live_generation,
    only_builder,
    sole_use,
)
from aladin_index.format.layout import generation_folder, set_live_generation
from aladin_index.format.manifest import MANIFEST
from aladin_network.errors import IndexCorruptError, IndexNotReadyError, IndexWriteError, InputError

FULL = OSError(errno.ENOSPC, "No space left on device", "a.npy")
UNCHANGED = r"a\.npy: No space left on device; the live generation is unchanged"


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (FULL, IndexWriteError, UNCHANGED),
        (OSError("100 requested and 7 written"), IndexWriteError, "100 requested"),  # NumPy's
        (sqlite3.OperationalError("database or disk is full"), IndexWriteError, "disk is full"),
        (InputError("no items"), InputError, "^no items$"),  # not of the disk
    ],
)
def test_a_failed_write_is_one_clear_error(
    tmp_path: Path, error: Exception, kind: type[Exception], said: str
) -> None:
    (tmp_path / "CURRENT").touch()
    with pytest.raises(kind, match=said), disk_errors(tmp_path):
        raise error


def test_a_live_generation_is_named_only_where_there_is_one(tmp_path: Path) -> None:
    with pytest.raises(IndexWriteError, match="no generation is live yet"), disk_errors(tmp_path):
        raise FULL


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


def generation(root: Path, number: int) -> None:
    generation_folder(root, number).mkdir(parents=True)
    (generation_folder(root, number) / MANIFEST).touch()


def test_a_generation_is_shared_until_all_have_let_go(tmp_path: Path) -> None:
    generation(tmp_path, 1)
    set_live_generation(tmp_path, 1)
    leases = [lease_live_generation(tmp_path) for _ in range(2)]
    assert [lease.generation for lease in leases] == [1, 1]
    for lease in leases:
        with sole_use(tmp_path, 1) as alone:
            assert not alone
        lease.release()
        lease.release()
    with sole_use(tmp_path, 1) as alone:
        assert alone


def test_waiting_for_a_removed_generation_leases_the_live_one(tmp_path: Path) -> None:
    generation(tmp_path, 1)
    generation(tmp_path, 2)
    set_live_generation(tmp_path, 1)
    got: list[GenerationLease] = []
    with sole_use(tmp_path, 1) as alone:
        assert alone
        thread = threading.Thread(target=lambda: got.append(lease_live_generation(tmp_path)))
        thread.start()  # finds 1 live, and waits for its lock
        thread.join(timeout=0.2)
        assert got == []
        set_live_generation(tmp_path, 2)
        (generation_folder(tmp_path, 1) / MANIFEST).unlink()
    thread.join(timeout=10)
    assert got[0].generation == 2
    got[0].release()


def test_a_missing_generation_cannot_be_leased(tmp_path: Path) -> None:
    with pytest.raises(IndexNotReadyError):
        lease_live_generation(tmp_path)
    generation(tmp_path, 1)
    set_live_generation(tmp_path, 1)
    (generation_folder(tmp_path, 1) / MANIFEST).unlink()
    with pytest.raises(IndexCorruptError, match="cannot be read"):
        lease_live_generation(tmp_path)
    with sole_use(tmp_path, 7) as alone:
        assert alone
