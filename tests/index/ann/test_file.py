from pathlib import Path

import faiss
import numpy as np
import pytest

from aladin_index.ann.ann_index import build_ann
from aladin_index.ann.file import read_ann, write_ann
from aladin_network.types import NullProgress
from tests.index.vectors import unit_vectors

COUNT, DIM = 3000, 16
VECTORS = unit_vectors(COUNT, DIM)
FACTORIES = [
    "Flat",
    "HNSW8,Flat",
    "HNSW8,SQ8",
    "IVF16,SQ8",
    "IVF16,PQ16x4fs",
    "IVF16,PQ16x4fsr",
    "PQ16x4fs",
]


def search(index: object, allowed: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    parameters = None
    if isinstance(index, faiss.IndexIVF):
        selector = None
        if allowed is not None:
            selector = faiss.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))
        parameters = faiss.SearchParametersIVF(nprobe=5, sel=selector)
    return index.search(VECTORS[:50], 20, params=parameters)


@pytest.mark.parametrize("factory", FACTORIES)
def test_an_index_is_read_as_it_was_written_by_any_number_of_threads(
    tmp_path: Path, factory: str, capfd: pytest.CaptureFixture[str]
) -> None:
    before = faiss.omp_get_max_threads()
    for threads in (1, 2):
        faiss.omp_set_num_threads(threads)
        try:
            index = build_ann(factory, VECTORS[:700], NullProgress())
        finally:
            faiss.omp_set_num_threads(before)
        found = search(index)
        write_ann(tmp_path / str(threads), index)
        for mine, theirs in zip(search(index), found, strict=True):  # it stays as it was
            np.testing.assert_array_equal(mine, theirs)
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()
    opened = read_ann(tmp_path / "1")
    assert opened.ntotal == 700
    for mine, theirs in zip(search(opened), found, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert capfd.readouterr() == ("", "")


def test_few_vectors_to_train_on_are_no_reason_to_print(capfd: pytest.CaptureFixture[str]) -> None:
    for factory in ("IVF64,PQ16x4fs", "PQ16x4fs", "RR16,IVF64,PQ8x4", "IVF64,SQ8"):
        build_ann(factory, VECTORS[:300], NullProgress())
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("lists", [1, 16, 200])
def test_fast_scan_lists_are_mapped(tmp_path: Path, lists: int) -> None:
    """Also lists that are empty, and such as fill a block of codes to the last place."""
    index = build_ann("IVF16,PQ16x4fs", VECTORS, NullProgress())
    quantizer = faiss.IndexFlatIP(DIM)
    quantizer.add(np.float32(100) * np.eye(DIM, dtype=np.float32)[np.arange(lists) % DIM])
    index = faiss.IndexIVFPQFastScan(quantizer, DIM, lists, DIM, 4, faiss.METRIC_INNER_PRODUCT)
    index.train(VECTORS)
    index.add(VECTORS[: 32 * 7])
    write_ann(tmp_path / "ann", index)
    opened = read_ann(tmp_path / "ann")
    assert isinstance(faiss.downcast_InvertedLists(opened.invlists), faiss.OnDiskInvertedLists)
    allowed = np.arange(32 * 7) % 3 == 1
    for mine, theirs in zip(search(opened, allowed), search(index, allowed), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    found = search(opened, allowed)[1]
    assert (found[found >= 0] % 3 == 1).all()
    assert opened.own_invlists
