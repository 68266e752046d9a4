from pathlib import Path

import faiss
import numpy as np
import pytest
import torch
from torch.nn import functional as F

from aladin_index.ann.ann_index import build_ann
from aladin_index.ann.file import read_ann, write_ann
from aladin_network.errors import IndexCorruptError
from aladin_network.types import NullProgress

COUNT, DIM = 3000, 16
VECTORS = F.normalize(torch.randn(COUNT, DIM, generator=torch.Generator().manual_seed(0))).numpy()
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
def test_what_is_written_is_found_again(tmp_path: Path, factory: str) -> None:
    index = build_ann(factory, VECTORS, NullProgress())
    before = search(index)
    write_ann(tmp_path / "ann", index)
    for mine, theirs in zip(search(index), before, strict=True):  # it stays as it was
        np.testing.assert_array_equal(mine, theirs)
    opened = read_ann(tmp_path / "ann")
    assert opened.ntotal == COUNT
    for mine, theirs in zip(search(opened), before, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("factory", FACTORIES)
def test_the_same_vectors_make_the_same_bytes(tmp_path: Path, factory: str) -> None:
    for name, threads in (("one", 1), ("two", 2)):
        before = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(threads)
        try:
            write_ann(tmp_path / name, build_ann(factory, VECTORS, NullProgress()))
        finally:
            faiss.omp_set_num_threads(before)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


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


def test_a_file_with_lists_that_is_cut_or_changed_is_refused(tmp_path: Path) -> None:
    write_ann(tmp_path / "whole", build_ann("IVF16,PQ16x4fs", VECTORS, NullProgress()))
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


def test_nothing_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for factory in FACTORIES:
        write_ann(tmp_path / "ann", build_ann(factory, VECTORS, NullProgress()))
        search(read_ann(tmp_path / "ann"))
    assert capfd.readouterr() == ("", "")
