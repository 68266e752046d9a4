import re
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest

from aladin_index import ann
from aladin_index.ann.ann_index import AnnIndex, build_ann, check_factory
from aladin_index.ann.exact_search import exact_search
from aladin_index.ann.file import write_ann
from aladin_index.items.selection import Selection
from aladin_network.errors import ConfigError
from aladin_network.types import NullProgress
from tests.index.vectors import unit_vectors

COUNT, DIM = 2000, 16
VECTORS = unit_vectors(COUNT, DIM)
QUERIES = unit_vectors(20, DIM, seed=1)
# Each kind with the width and the oversampling at which it should be next to exact.
KINDS = {
    "Flat": (None, 1),
    "SQfp16": (None, 1),
    "HNSW32,Flat": (256, 1),
    "IVF16,Flat": (16, 1),
    "IVF16,SQ8": (16, 1),
    "RR16,IVF16,Flat": (16, 1),
    "IVF16,PQ8x4fs,RFlat": (16, 1),
    "IVF16,PQ16x4fs": (16, 4),
    "IVF16,RaBitQ": (16, 25),
}


@pytest.fixture(scope="module")
def built() -> dict[str, Any]:
    return {factory: build_ann(factory, VECTORS, NullProgress()) for factory in KINDS}


def recall(ann: AnnIndex, count: int, allowed: Selection | None = None) -> float:
    shares = []
    for query in QUERIES:
        nearest = exact_search(VECTORS, query, count, allowed)[0]
        shares.append(np.isin(nearest, ann.search(query, count, allowed)).mean())
    return float(np.mean(shares))


@pytest.mark.parametrize(
    "factory", ["IVF16,Flat", "IVF16,PQ16x4fs", "IVF16,PQ16x4fsr", "IVF16,SQ8"]
)
def test_vectors_of_different_lengths_are_in_the_list_of_the_nearest_centroid(factory: str) -> None:
    lengths = np.random.default_rng(2).uniform(0.5, 2, (COUNT, 1)).astype(np.float32)
    vectors = VECTORS * lengths
    for given, is_nearest in ((vectors, True), (VECTORS, False)):
        index = build_ann(factory, given, NullProgress())
        centroids = index.quantizer.reconstruct_n(0, 16)
        products = given @ centroids.T
        distances = np.square(given).sum(1)[:, None] - 2 * products + np.square(centroids).sum(1)
        expected = distances.argmin(axis=1) if is_nearest else products.argmax(axis=1)
        lists = index.invlists
        for number in range(16):
            members = faiss.rev_swig_ptr(lists.get_ids(number), lists.list_size(number))
            assert (expected[members] == number).mean() > 0.99
        # The lists searched are those whose centroids have the largest inner products.
        found = AnnIndex(index, 1).search(QUERIES[0], 5)
        assert set(expected[found]) == {int((centroids @ QUERIES[0]).argmax())}


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("bogus", "'bogus' is no FAISS factory string"),
        ("PQ7", "'PQ7'"),  # 16 dimensions do not divide by 7
        ("IDMap,Flat", "has ids of its own"),
        ("IVF64,Flat", "needs at least 64 vectors, there are 50"),
        ("PCA8,IVF64,Flat", "needs at least 64 vectors, there are 50"),
    ],
)
def test_impossible_factories_are_refused_before_any_work(factory: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_factory(factory, DIM, 50)


@pytest.mark.parametrize("factory", KINDS)
def test_every_kind_finds_the_nearest(built: dict[str, Any], tmp_path: Path, factory: str) -> None:
    write_ann(tmp_path / "ann", built[factory])
    ann = AnnIndex.open(tmp_path / "ann", *KINDS[factory])
    assert (ann.count, ann.dim) == (COUNT, DIM)
    assert recall(ann, 20) > 0.97
    same = AnnIndex(built[factory], *KINDS[factory])
    for query in QUERIES:
        np.testing.assert_array_equal(
            np.sort(ann.search(query, 20)), np.sort(same.search(query, 20))
        )


@pytest.mark.parametrize("factory", KINDS)
@pytest.mark.parametrize("share", [0.5, 0.05])
def test_a_filter_leaves_as_many_and_only_the_allowed(
    built: dict[str, Any], factory: str, share: float
) -> None:
    # Allowed are those in one direction: the query's own neighbourhood may have none of them.
    rows = np.argsort(VECTORS[:, 0])[: int(COUNT * share)]
    allowed = Selection.of_mask(np.isin(np.arange(COUNT), rows))
    # A quarter of the width that finds nearly all: the filter has to widen it.
    width, oversample = KINDS[factory]
    ann = AnnIndex(built[factory], None if width is None else width // 4, oversample)
    for query in QUERIES:
        found = ann.search(query, 50, allowed)
        assert 50 <= len(np.unique(found)) == len(found) <= 50 * oversample
        assert allowed.mask[found].all()
    assert recall(ann, 50, allowed) > 0.8


@pytest.mark.parametrize("factory", ["HNSW32,Flat", "IVF16,Flat"])
def test_a_search_changes_nothing_that_is_shared(built: dict[str, Any], factory: str) -> None:
    index = built[factory]
    settings = ("nprobe",) if factory.startswith("IVF") else ()
    before = [getattr(index, name) for name in settings]
    graph_before = index.hnsw.efSearch if isinstance(index, faiss.IndexHNSW) else None
    ann, wide = AnnIndex(index, 2), AnnIndex(index, 512)
    narrow = [ann.search(query, 50) for query in QUERIES]
    for query in QUERIES:
        wide.search(query, 50, Selection.of_mask(np.arange(COUNT) % 7 == 0))
    for query, rows in zip(QUERIES, narrow, strict=True):
        np.testing.assert_array_equal(ann.search(query, 50), rows)
    assert [getattr(index, name) for name in settings] == before
    if graph_before is not None:
        assert index.hnsw.efSearch == graph_before


def test_torch_is_imported_before_faiss_and_in_one_place() -> None:
    """With both CUDA builds installed, the libraries of the one that comes first win."""
    sources = {path.name: path.read_text() for path in Path(ann.__file__).parent.rglob("*.py")}
    importing = [
        name for name, text in sources.items() if re.search(r"^\s*import faiss", text, re.M)
    ]
    assert importing == ["__init__.py"]
    assert re.search(r"^\s*import torch\b.*^\s*import faiss\b", sources["__init__.py"], re.M | re.S)


@pytest.mark.parametrize("factory", KINDS)
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_queries_of_one_call_find_what_each_finds_alone(
    built: dict[str, Any], factory: str, share: float
) -> None:
    width, oversample = KINDS[factory]
    ann = AnnIndex(built[factory], None if width is None else width // 4, oversample)
    allowed = None if share == 1 else Selection.of_mask(np.arange(COUNT) < share * COUNT)
    for count in (5, 60):
        together = ann.search_scored(QUERIES, count, allowed)
        for query, (rows, scores) in zip(QUERIES, together, strict=True):
            ((alone, own_scores),) = ann.search_scored(query[None], count, allowed)
            np.testing.assert_array_equal(np.sort(rows), np.sort(alone))
            np.testing.assert_allclose(scores, own_scores, atol=1e-6)
