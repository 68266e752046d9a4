"""Checks that what FAISS has read from a file cannot lead it, or us, outside of memory.

FAISS itself checks graphs while it reads them: the links, levels and entry point of HNSW. The ids
in inverted lists and the layout of fast-scan codes it takes as they are, and then reads and writes
at the places that they name.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from index.ann.faiss_library import faiss

# Fast scan compares with so many codes at a time: a list's codes fill whole blocks of them.
CODES_PER_BLOCK = 32


def check_sound(index: Any) -> None:
    """Refuse an index whose parts do not fit together, or whose ids are not its rows.

    Reads all ids of inverted lists: 10 ms for a million vectors. Codes are not read, for whatever
    value they have they lead nowhere.

    Args:
        index: of FAISS, with its inverted lists.

    Raises:
        RuntimeError: it is not one that `index.ann.construction` builds.
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
    """Check an index with inverted lists that is to hold the rows 0 to `count` - 1."""
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
            # Negative ids are the largest numbers without a sign.
            largest = int(ids.view(np.uint64).max())
            if largest >= count:
                found = int(ids[ids.view(np.uint64).argmax()])
                raise RuntimeError(f"list {number}: expected rows below {count}, found {found}")
    if held != count:
        raise RuntimeError(f"expected lists of {count} vectors, got {held}")
