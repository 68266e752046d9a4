"""What a damaged ``ann.faiss`` does: it is refused, and takes no process with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aladin_index.ann import faiss
from aladin_index.ann.ann_index import AnnIndex, build_ann
from aladin_index.ann.file import check_valid, read_ann, write_ann
from aladin_index.ann.first_stage import retrieve
from aladin_network.errors import IndexCorruptError
from aladin_network.types import NullProgress
from tests.index.ann.open_and_search import fates
from tests.index.vectors import unit_vectors

COUNT, DIM = 3000, 16
VECTORS = unit_vectors(COUNT, DIM)
FAST_SCAN = "IVF16,PQ16x4fs"
# Each is read outside of memory where it is believed.
WRONG_IDS = [COUNT, 2**40, 2**62, -2, -(2**62)]


def ids_of_a_list(index: Any, number: int = 3) -> np.ndarray:
    """Return the ids of a list, to be written to."""
    lists = index.invlists
    return faiss.rev_swig_ptr(lists.get_ids(number), lists.list_size(number))


def write_with_id(path: Path, factory: str, wrong: int) -> None:
    """Write an index of which one id of one list is wrong; FAISS writes what it is given."""
    index = build_ann(factory, VECTORS, NullProgress())
    ivf = faiss.downcast_index(faiss.extract_index_ivf(index))
    ids_of_a_list(ivf)[0] = wrong
    write_ann(path, index)


def test_an_id_that_is_no_row_is_refused_and_ends_no_process(tmp_path: Path) -> None:
    files: list[Path] = []
    for factory in (FAST_SCAN, "IVF16,SQ8", "IVF16,Flat", "RR16,IVF16,SQ8"):
        for wrong in WRONG_IDS:
            files.append(tmp_path / f"{len(files)}.faiss")
            write_with_id(files[-1], factory, wrong)
            with pytest.raises(
                IndexCorruptError, match=f"list 3: expected rows below {COUNT}, found {wrong}"
            ):
                read_ann(files[-1])
    assert fates(VECTORS, files) == ["refused"] * len(files)


def test_bytes_that_are_changed_anywhere_end_no_process(tmp_path: Path) -> None:
    whole = tmp_path / "whole.faiss"
    write_ann(whole, build_ann(FAST_SCAN, VECTORS, NullProgress()))
    content = whole.read_bytes()
    random = np.random.default_rng(5)
    files = [whole]
    for number in range(40):
        changed = bytearray(content)
        for place in random.integers(0, len(content), 4):
            changed[place] = int(random.integers(0, 256))
        files.append(tmp_path / f"{number}.faiss")
        files[-1].write_bytes(changed)
    told = fates(VECTORS, files)
    assert len(told) == len(files)
    assert told[0] == "sound"
    assert set(told) == {"sound", "refused"}  # many of the bytes are codes, which lead nowhere


@pytest.mark.parametrize("factory", ["IVF16,SQ8", "IVF16,Flat"])
def test_an_id_that_changes_after_the_file_was_opened_is_found_by_the_search(
    tmp_path: Path, factory: str
) -> None:
    """As on a disk that fails under the map; both kinds, of which one keeps the vectors."""
    index = build_ann(factory, VECTORS, NullProgress())
    ann = AnnIndex(index, 16, 1.0, tmp_path / "ann.faiss")
    rows = ids_of_a_list(index)
    near = VECTORS[rows[0]]
    assert len(retrieve(ann, VECTORS, near, 50)[0]) == 50
    for wrong in (2**40, COUNT):
        rows[:] = wrong
        with pytest.raises(
            IndexCorruptError, match=f"ann.faiss: expected rows below {COUNT}, found {wrong}"
        ):
            retrieve(ann, VECTORS, near, 2000)
    rows[:] = COUNT - 1
    retrieve(ann, VECTORS, near, 2000)


def test_parts_that_do_not_fit_together_are_refused() -> None:
    def built(factory: str = FAST_SCAN) -> Any:
        return build_ann(factory, VECTORS, NullProgress())

    for factory in (FAST_SCAN, "Flat", "HNSW8,Flat", "IVF16,PQ16x4fs,RFlat", "PQ16x4fs"):
        check_valid(built(factory))
    index = built()
    index.M2 = 64
    with pytest.raises(RuntimeError, match="layout"):
        check_valid(index)
    index = built()
    index.ntotal = COUNT - 1
    with pytest.raises(RuntimeError, match=f"expected rows below {COUNT - 1}, found {COUNT - 1}"):
        check_valid(index)
    index.ntotal = COUNT + 1
    with pytest.raises(RuntimeError, match=f"expected lists of {COUNT + 1} vectors, got {COUNT}"):
        check_valid(index)
    index = built()
    index.quantizer.add(VECTORS[:1])
    with pytest.raises(RuntimeError, match="with 17 centroids"):
        check_valid(index)
    refined = built("IVF16,SQ8,RFlat")
    refined.refine_index.ntotal = 7
    with pytest.raises(RuntimeError, match="in both of its stages"):
        check_valid(refined)
    with pytest.raises(RuntimeError, match="a map of ids"):
        check_valid(faiss.IndexIDMap2(faiss.IndexFlatIP(DIM)))


def test_sizes_of_lists_that_add_up_by_overflow_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "ann.faiss"
    write_ann(path, build_ann(FAST_SCAN, VECTORS, NullProgress()))
    content = bytearray(path.read_bytes())
    start = len(content) - len(b"aladin inverted lists\n") - 16 * 8
    sizes = np.frombuffer(content, dtype=np.int64, count=16, offset=start).copy()
    sizes[:4] = sizes[:4] + 2**62  # which is 0 more in 64 bits
    assert sizes.sum() == COUNT
    content[start : start + 16 * 8] = sizes.tobytes()
    path.write_bytes(content)
    assert fates(VECTORS, [path]) == ["refused"]
    with pytest.raises(IndexCorruptError, match=f"expected lists of {COUNT} vectors, got"):
        read_ann(path)


@pytest.mark.parametrize("factory", ["HNSW8,Flat", FAST_SCAN])
def test_a_length_that_asks_for_more_memory_than_there_is_is_refused(
    tmp_path: Path, factory: str
) -> None:
    path = tmp_path / "whole.faiss"
    write_ann(path, build_ann(factory, VECTORS[:500], NullProgress()))
    content = path.read_bytes()
    files: list[Path] = []
    for place in range(24, 340, 4):
        changed = bytearray(content)
        changed[place : place + 8] = (2**38).to_bytes(8, "little")
        files.append(tmp_path / f"{place}.faiss")
        files[-1].write_bytes(changed)
    told = fates(VECTORS[:500], files)
    assert len(told) == len(files)
    assert set(told) == {"sound", "refused"}


def test_a_file_with_lists_that_is_cut_or_changed_is_refused(tmp_path: Path) -> None:
    write_ann(tmp_path / "whole", build_ann(FAST_SCAN, VECTORS, NullProgress()))
    content = (tmp_path / "whole").read_bytes()
    mark = len(b"aladin inverted lists\n")
    sizes = len(content) - mark - 16 * 8
    wrong_sizes = bytearray(content)
    wrong_sizes[sizes] ^= 1
    for name, damaged in {
        "size": bytes(wrong_sizes),
        "front": content[:100] + content[sizes:],
        "short": content[:100],
    }.items():
        (tmp_path / name).write_bytes(damaged)
        with pytest.raises(IndexCorruptError, match=f"{name}: not a FAISS index"):
            read_ann(tmp_path / name)
