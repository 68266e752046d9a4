from __future__ import annotations

import threading
from pathlib import Path

import pytest

from aladin_index.format.disk import GenerationLease, lease_live_generation, sole_use
from aladin_index.format.layout import generation_folder, set_live_generation
from aladin_index.format.manifest import MANIFEST
from aladin_network.errors import IndexCorruptError, IndexNotReadyError


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


def test_whoever_waits_for_a_generation_that_is_going_gets_the_live_one(tmp_path: Path) -> None:
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


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(IndexNotReadyError):
        lease_live_generation(tmp_path)
    generation(tmp_path, 1)
    set_live_generation(tmp_path, 1)
    (generation_folder(tmp_path, 1) / MANIFEST).unlink()
    with pytest.raises(IndexCorruptError, match="cannot be read"):
        lease_live_generation(tmp_path)
    with sole_use(tmp_path, 7) as alone:
        assert alone
