import mmap
import resource
import threading
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from aladin_index.format.npy import map_npy, map_pages, read_ahead, write_npy
from aladin_network.errors import IndexCorruptError


@pytest.mark.parametrize("count", [0, 10])
def test_parts_make_an_array_whose_map_cannot_reach_the_file(tmp_path: Path, count: int) -> None:
    whole = np.random.default_rng(0).normal(size=(count, 3)).astype(np.float32)
    file, parts = tmp_path / "a.npy", (whole[:4], whole[4:4], whole[4:])
    write_npy(file, np.float16, whole.shape, iter(parts))
    before, expected = file.read_bytes(), whole.astype(np.float16)
    np.testing.assert_array_equal(np.load(file), expected)
    mapped = map_npy(file, np.float16, whole.shape, random=True)
    np.testing.assert_array_equal(mapped, expected)
    mapped[:] = -1
    assert file.read_bytes() == before


@pytest.mark.parametrize("parts", [[np.zeros((3, 2))], [np.zeros((4, 3))], []])
def test_parts_that_do_not_add_up_are_refused(tmp_path: Path, parts: list[np.ndarray]) -> None:
    with pytest.raises(ValueError, match=r"a\.npy"):
        write_npy(tmp_path / "a.npy", np.float32, (4, 2), parts)


def test_any_other_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    write_npy(path, np.float32, (2, 2), [np.zeros((2, 2))])
    with pytest.raises(IndexCorruptError, match=r"a\.npy: expected float32 \(3, 2\), got"):
        map_npy(path, np.float32, (3, 2))
    with pytest.raises(IndexCorruptError, match=r"expected int8"):
        map_npy(path, np.int8, (2, 2))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(IndexCorruptError, match="not a readable array"):
        map_npy(path, np.float32, (2, 2))
    np.save(path, np.array([{"pickled": 1}]), allow_pickle=True)
    with pytest.raises(IndexCorruptError, match="not a readable array"):
        map_npy(path, np.float32, (2, 2))


def test_mapped_pages_are_in_memory(tmp_path: Path) -> None:
    array = np.arange(50_000, dtype=np.int64)
    np.save(tmp_path / "a.npy", array)
    mapped = map_npy(tmp_path / "a.npy", np.int64, (50_000,))
    map_pages([mapped, np.empty(0)])
    for thread in threading.enumerate():
        if thread.name == "map-pages":
            thread.join()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    assert int(mapped.sum()) == int(array.sum())
    # A hundred pages of 4 KiB, of which a first reading maps at most sixteen at a time.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 6


class AdvisedMap(mmap.mmap):
    """A map that remembers what it is told to read."""

    advised: ClassVar[list[tuple[int, int, int]]] = []

    def madvise(self, option: int, start: int = 0, length: int = 0) -> None:
        self.advised.append((option, start, length))
        super().madvise(option, start, length)


def test_rows_are_asked_for_by_whole_pages_from_where_they_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AdvisedMap, "advised", asked := [])
    file = tmp_path / "rows"
    file.write_bytes(bytes(64 + 100 * 1000))
    with file.open("rb") as opened:
        mapped = AdvisedMap(opened.fileno(), 0, access=mmap.ACCESS_COPY)
    # As in a file of an array: rows of 1,000 bytes after a header.
    rows = np.ndarray((100, 1000), np.uint8, mapped, offset=64)
    page, needed = mmap.PAGESIZE, mmap.MADV_WILLNEED
    read_ahead(rows, [0, 50, 7], [1, 52, 7])
    first = (64 + 50_000) // page * page
    assert asked == [(needed, 0, 1064), (needed, first, 64 + 52_000 - first)]
    asked.clear()
    read_ahead(rows[50:52])
    assert asked == [(needed, first, 64 + 52_000 - first)]
    asked.clear()
    read_ahead(rows[:0])
    read_ahead(np.zeros((3, 4)), [0], [3])  # in memory
    assert asked == []
