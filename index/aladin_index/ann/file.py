"""The file of a FAISS index: memory-mapped when opened, and validated.

FAISS maps vectors, graphs and inverted lists of plain codes itself. It reads the lists of fast-scan
codes entirely: 139 MB in 0.07 s for a million vectors of 256 values, and more than a second from
tens of millions on. Those lists are therefore written after the rest, and mapped like FAISS's own
inverted lists on disk:

    [FAISS's index, its lists empty] [zeros up to a page] [list 0: codes, ids] ... [sizes] [mark]

A search is as fast as with the lists in memory (0.67 and 0.65 ms, 64 of 1,024 lists, one thread).

While reading, FAISS checks graphs: the links, levels and entry point of HNSW. It does not check the
ids in inverted lists or the layout of fast-scan codes, and would read and write at the positions
that they give; they are checked here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from aladin_index.ann import faiss
from aladin_index.format.disk import read_file_ahead
from aladin_network.errors import IndexCorruptError

# Fast scan compares with this many codes at a time: a list's codes fill whole blocks of them.
CODES_PER_BLOCK = 32

# Marks the end of a file whose lists follow the index. FAISS, which reads from the front, never
# reaches it.
_MARK = b"aladin inverted lists\n"
_PAGE = 4096
_INT64 = np.dtype(np.int64).itemsize


def check_valid(index: Any) -> None:
    """Refuse an index with inconsistent parts, or with ids that are not its rows.

    Reads all ids of inverted lists: 10 ms for a million vectors. Codes are not read, for whatever
    value they have they lead nowhere.
    """
    if isinstance(index, (faiss.IndexIDMap, faiss.IndexIDMap2)):
        raise RuntimeError("expected rows for ids, found a map of ids")
    if isinstance(index, faiss.IndexRefine):
        counts = (index.base_index.ntotal, index.refine_index.ntotal)
        if counts != (index.ntotal, index.ntotal):
            raise RuntimeError(f"expected {index.ntotal} vectors in both of its stages: {counts}")
    ivf = faiss.try_extract_index_ivf(index)
    if ivf is not None:
        _check_lists(faiss.downcast_index(ivf), int(index.ntotal))


def _check_lists(ivf: Any, count: int) -> None:
    """Check an index with inverted lists that should contain the rows 0 to `count` - 1."""
    lists = faiss.downcast_InvertedLists(ivf.invlists)
    numbers = (ivf.ntotal, ivf.quantizer.ntotal, lists.nlist)
    if numbers != (count, ivf.nlist, ivf.nlist):
        raise RuntimeError(
            f"expected {count} vectors in {ivf.nlist} lists, got {numbers[0]} with {numbers[1]} "
            f"centroids and {numbers[2]} lists"
        )
    if isinstance(ivf, faiss.IndexIVFPQFastScan):
        layout = (ivf.M, ivf.M2, ivf.ksub, ivf.bbs, ivf.code_size)
        values = ivf.pq.M
        expected = (values, values + values % 2, 16, CODES_PER_BLOCK, (values + 1) // 2)
        if layout != expected:
            raise RuntimeError(f"expected fast-scan codes of the layout {expected}, got {layout}")
    held = 0
    for number in range(ivf.nlist):
        size = lists.list_size(number)
        held += size
        if size:
            ids = faiss.rev_swig_ptr(lists.get_ids(number), size)
            # Interpreted as unsigned, negative ids are the largest numbers.
            largest = int(ids.view(np.uint64).max())
            if largest >= count:
                found = int(ids[ids.view(np.uint64).argmax()])
                raise RuntimeError(f"list {number}: expected rows below {count}, found {found}")
    if held != count:
        raise RuntimeError(f"expected lists of {count} vectors, got {held}")


def write_ann(path: Path, index: Any) -> None:
    """Write a FAISS index; an index with fast-scan lists loses them."""
    with path.open("wb") as file:
        if _is_fast_scan(index):
            _write_with_lists(file, index)
        else:
            _write(file, index)


def read_ann(path: Path) -> Any:
    """Open a FAISS index; only ids and links are read of parts that searches may not touch."""
    try:
        # Every search reads lists from all over the file, and the check below does so first.
        read_file_ahead(path)
        index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
        if _has_mark(path):
            _map_lists(index, path)
        check_valid(index)
    except (OSError, RuntimeError, MemoryError) as error:
        # A damaged length may request more memory than is available.
        raise IndexCorruptError(path, f"not a FAISS index ({error})") from error
    return index


def _is_fast_scan(index: Any) -> bool:
    # The exact type: its subclasses pack more than codes into their blocks.
    return type(index) is faiss.IndexIVFPQFastScan


def _has_mark(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - len(_MARK), 0))
        return file.read() == _MARK


def _write(file: BinaryIO, index: Any) -> None:
    # Python writes the file: FAISS's own writer does not report why it failed.
    faiss.write_index(index, faiss.PyCallbackIOWriter(file.write))


def _write_with_lists(file: BinaryIO, index: Any) -> None:
    lists, owned = faiss.downcast_InvertedLists(index.invlists), index.own_invlists
    empty = faiss.ArrayInvertedLists(index.nlist, index.code_size)
    index.own_invlists = False
    index.invlists = empty
    try:
        _write(file, index)
    finally:
        index.invlists = lists
        index.own_invlists = owned
    file.write(bytes(-file.tell() % _PAGE))
    sizes = np.array([lists.list_size(number) for number in range(index.nlist)], dtype=np.int64)
    capacities = _capacities(sizes).tolist()
    for number, size in enumerate(sizes.tolist()):
        if size:
            codes = lists.get_codes(number)
            file.write(faiss.rev_swig_ptr(codes, capacities[number] * index.code_size).data)
            ids = np.zeros(capacities[number], dtype=np.int64)
            ids[:size] = faiss.rev_swig_ptr(lists.get_ids(number), size)
            file.write(ids.data)
    file.write(sizes.data)
    file.write(_MARK)


def _map_lists(index: Any, path: Path) -> None:
    lists_end = path.stat().st_size - len(_MARK) - index.nlist * _INT64
    if index.nlist < 1 or lists_end < 0:
        raise RuntimeError(f"expected room for the sizes of {index.nlist} lists")
    with path.open("rb") as file:
        file.seek(lists_end)
        sizes = np.fromfile(file, dtype=np.int64, count=index.nlist)
    # Python integers, as a sum of damaged sizes may exceed 64 bits.
    total = sum(sizes.tolist())
    if sizes.min() < 0 or total != index.ntotal or total * index.code_size > lists_end:
        raise RuntimeError(f"expected lists of {index.ntotal} vectors, got {total}")
    capacities = _capacities(sizes)
    ends = np.cumsum(capacities * (index.code_size + _INT64))
    start = lists_end - int(ends[-1])
    if start < 0:
        raise RuntimeError(f"expected lists of {ends[-1]} bytes, got {lists_end}")
    table = faiss.OnDiskOneListVector()
    offsets = start + ends - capacities * (index.code_size + _INT64)
    for size, capacity, offset in zip(
        sizes.tolist(), capacities.tolist(), offsets.tolist(), strict=True
    ):
        entry = faiss.OnDiskOneList()
        entry.size, entry.capacity, entry.offset = size, capacity, offset
        table.push_back(entry)
    lists = faiss.OnDiskInvertedLists(index.nlist, index.code_size, str(path))
    lists.lists = table
    lists.totsize = lists_end
    lists.read_only = True
    # Otherwise it would start threads at searches to prefetch pages, which takes twice the time.
    lists.prefetch_nthread = 0
    lists.do_mmap()
    lists.this.disown()
    index.replace_invlists(lists, True)


def _capacities(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the capacity of each list: its vectors, rounded up to whole blocks."""
    return -(-sizes // CODES_PER_BLOCK) * CODES_PER_BLOCK
