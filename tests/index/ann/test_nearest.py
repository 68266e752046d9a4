"""Every way to find the nearest items, against comparing all of them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import aladin_index.ann.exact_search
import aladin_index.ann.first_stage
from aladin_index.ann.ann_index import AnnIndex, build_ann
from aladin_index.ann.exact_scan import ExactScan
from aladin_index.ann.exact_search import best_of, exact_scores, exact_search, largest
from aladin_index.ann.first_stage import retrieve
from aladin_index.items.selection import Selection
from aladin_index.kernel.nearest import load_nearest
from aladin_network.types import NullProgress
from tests.index.conftest import MakeCollection
from tests.index.vectors import unit_vectors

VECTORS = unit_vectors(1500, 16)
# Every vector three times: equal scores are the rule.
REPEATED = np.tile(unit_vectors(200, 16), (3, 1))
QUERIES = unit_vectors(15, 16, seed=1)


def ann_of(factory: str, width: int | None, oversample: float = 1.0) -> AnnIndex:
    return AnnIndex(build_ann(factory, VECTORS, NullProgress()), width, oversample)


@pytest.mark.parametrize("count", [1, 7, 100, 300])
def test_the_largest_scores_come_first_and_equal_ones_in_their_order(count: int) -> None:
    scores = np.random.default_rng(0).integers(0, 12, 100).astype(np.float32)
    expected = sorted(range(100), key=lambda place: (-scores[place], place))[:count]
    assert largest(scores, count).tolist() == expected


@pytest.mark.parametrize(
    "allowed", [None, [2, 3, 50, 51, 199], [], list(range(0, 200, 3)), list(range(5, 200))]
)
def test_exact_search_compares_the_allowed_in_any_chunks(
    monkeypatch: pytest.MonkeyPatch, allowed: list[int] | None
) -> None:
    monkeypatch.setattr(aladin_index.ann.exact_search, "_ROWS_AT_A_TIME", 3)
    embeddings, query = unit_vectors(200, 8), unit_vectors(1, 8, seed=1)[0]
    rows = None if allowed is None else Selection.of_mask(np.isin(np.arange(200), allowed))
    found, scores = exact_search(embeddings, query, 10, rows)
    among = range(200) if allowed is None else allowed
    expected = sorted(among, key=lambda row: -float(embeddings[row] @ query))[:10]
    assert found.tolist() == expected
    np.testing.assert_allclose(scores, embeddings[expected] @ query, rtol=1e-6)
    some = np.array([7, 3, 199, 3])
    np.testing.assert_allclose(
        exact_scores(embeddings, query, some), embeddings[some] @ query, rtol=1e-5
    )


@pytest.mark.parametrize(
    ("factory", "width", "oversample"),
    [("Flat", None, 1.0), ("IVF8,Flat", 8, 1.0), ("IVF8,PQ16x4fs", 8, 6.0), ("SQ8", None, 3.0)],
)
@pytest.mark.parametrize("vectors", [VECTORS, REPEATED], ids=["different", "repeated"])
def test_an_ann_gives_the_order_of_exact_search(
    factory: str, width: int | None, oversample: float, vectors: NDArray[np.float32]
) -> None:
    ann = AnnIndex(build_ann(factory, vectors, NullProgress()), width, oversample)
    # Each third row of three equal ones may be another: which is found, nobody promises.
    kinds = 200 if vectors is REPEATED else len(vectors)
    for query in QUERIES:
        rows, scores = retrieve(ann, vectors, query, 30)
        expected, true_scores = exact_search(vectors, query, 30)
        assert (rows % kinds).tolist() == (expected % kinds).tolist()
        np.testing.assert_allclose(scores, true_scores, rtol=1e-5)
        same = scores[1:] == scores[:-1]
        assert (np.diff(rows)[same] > 0).all()


@pytest.mark.parametrize("factory", ["IVF8,Flat", "IVF8,PQ16x4fs"])
def test_an_ann_that_finds_too_few_is_completed_by_exact_search(factory: str) -> None:
    ann, allowed = ann_of(factory, 1, 2.0), Selection.of_mask(np.arange(1500) % 2 == 0)
    for query in QUERIES[:5]:
        assert len(ann.search(query, 700)) < 700
        for selection in (None, allowed):
            rows, _ = retrieve(ann, VECTORS, query, 700, selection)
            np.testing.assert_array_equal(rows, exact_search(VECTORS, query, 700, selection)[0])


def test_vectors_are_read_ahead_at_first_and_while_they_come_from_a_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocks = iter([0, 8, 8, 8, 8, 8])  # before and after each search
    asked: list[list[int]] = []

    def ask(array: NDArray[np.float32], starts: list[int], stops: list[int]) -> None:
        assert array is VECTORS and stops == [start + 1 for start in starts]
        asked.append(starts)

    monkeypatch.setattr("aladin_index.format.npy.read_ahead", ask)
    monkeypatch.setattr("aladin_index.ann.first_stage.blocks_read", lambda: next(blocks))
    ann = ann_of("IVF8,PQ16x4fs", 8, 2.0)
    found = [retrieve(ann, VECTORS, QUERIES[0], 30)[0] for _ in range(3)]
    assert [len(starts) for starts in asked] == [60, 60] and set(found[0]) <= set(asked[0])
    np.testing.assert_array_equal(found[0], found[2])
    assert not ann.is_cold
    retrieve(ann_of("Flat", None), VECTORS, QUERIES[0], 30)  # has its own copy
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("factory", "width"), [("Flat", None), ("HNSW8,Flat", 4), ("IVF32,SQ4", 2)]
)
@pytest.mark.parametrize("step", [None, 3])
def test_a_longer_order_of_a_collection_begins_with_a_shorter_one(
    make_collection: MakeCollection,
    monkeypatch: pytest.MonkeyPatch,
    factory: str,
    width: int | None,
    step: int | None,
) -> None:
    """Also by a filter that goes through the ANN."""
    monkeypatch.setattr(aladin_index.ann.first_stage, "EXACT_UP_TO", 0)
    collection = make_collection(VECTORS, factory=factory, search_width=width)
    allowed = None if step is None else Selection.of_mask(np.arange(1500) % step == 0)
    for query in QUERIES[:10]:
        whole, scores = collection.order(query, 1500, 40, allowed)
        assert sorted(whole.tolist()) == list(range(0, 1500, step or 1))
        np.testing.assert_allclose(scores, VECTORS[whole] @ query, rtol=1e-6)
        for count in (1, 39, 40, 41, 77):
            rows = collection.order(query, count, 40, allowed)[0]
            np.testing.assert_array_equal(rows, whole[:count])


def test_a_filter_goes_through_the_ann_if_it_leaves_many(
    make_collection: MakeCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection = make_collection(VECTORS, factory="HNSW32,Flat", search_width=64)
    rows = np.argsort(VECTORS[:, 0])[:100]
    allowed = Selection.of_mask(np.isin(np.arange(1500), rows))
    for least, exact in ((100, True), (99, False)):
        monkeypatch.setattr(aladin_index.ann.first_stage, "EXACT_UP_TO", least)
        shares: list[float] = []
        for query in QUERIES:
            found, _ = collection.candidates(query, 30, allowed)
            assert len(found) == 30 and np.isin(found, rows).all()
            shares.append(np.isin(exact_search(VECTORS, query, 30, allowed)[0], found).mean())
        assert np.mean(shares) == 1 if exact else np.mean(shares) > 0.95


# The scan of one-byte codes, which finds what comparing all does.


def clustered(count: int, dim: int) -> NDArray[np.float32]:
    """Vectors that lean one way, as embeddings do, many of which are nearly the same."""
    random = np.random.default_rng([count, dim])
    centres = random.standard_normal((20, dim)) + 2
    spread = np.where(np.arange(count) % 3 == 0, 0.001, 0.4)[:, None]
    values = centres[random.integers(0, 20, count)] + spread * random.standard_normal((count, dim))
    return (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)


def any_lengths() -> NDArray[np.float32]:
    random = np.random.default_rng(0)
    values = random.standard_normal((500, 20)) * 10 ** random.uniform(-6, 6, (500, 1))
    values[::7] = 0
    return values.astype(np.float32)


def scan_of(vectors: NDArray[np.float32]) -> ExactScan:
    scan = ExactScan.of(vectors)
    assert scan is not None, "the native library is not compiled"
    while not scan.is_ready():  # the first searches compare all vectors
        pass
    return scan


SCANNED = {
    **{f"{dim} dimensions": clustered(777, dim) for dim in (3, 16, 50, 256, 1030)},
    "equal": np.repeat(clustered(3, 20), 40, axis=0),
    "any lengths": any_lengths(),
}


@pytest.mark.parametrize("name", SCANNED)
@pytest.mark.parametrize("share", [None, 0.9, 0.5, 0.02, 0.0])
def test_the_scan_finds_what_comparing_all_does(name: str, share: float | None) -> None:
    vectors = SCANNED[name]
    scan, mask = scan_of(vectors), np.ones(len(vectors), dtype=np.bool_)
    if share is not None:
        mask = np.random.default_rng(1).random(len(vectors)) < share
    allowed = None if share is None else Selection.of_mask(mask)
    other = clustered(9, vectors.shape[1])
    zero = np.zeros_like(vectors[:1])
    for query in [*vectors[:5], *-vectors[5:8], *other, *zero]:
        for count in (1, 10, 300):
            rows, scores = scan.search(query, count, allowed)
            expected, expected_scores = best_of(vectors, query, np.flatnonzero(mask), count)
            assert rows.tolist() == expected.tolist(), count
            # Sums of large summands of either sign are rounded by their size.
            atol = 1e-6 * float(np.abs(vectors).max()) ** 2
            np.testing.assert_allclose(scores, expected_scores, rtol=1e-4, atol=atol)


def test_vectors_that_are_no_numbers_are_compared_one_by_one() -> None:
    vectors = clustered(300, 16)
    vectors[5] = np.nan
    rows, _ = scan_of(vectors).search(vectors[1], 10)
    assert rows.tolist() == exact_search(vectors, vectors[1], 10)[0].tolist()


def test_every_code_path_finds_the_same_rows() -> None:
    vectors = clustered(333, 70)
    codes, kernel = scan_of(vectors)._codes, load_nearest()
    assert codes is not None and kernel is not None
    found: list[list[int]] = []
    for path in range(3):
        try:
            found.append(sorted(kernel.rows(codes._native, vectors[3], 9, None, path).tolist()))
        except ValueError:
            break
    assert found and found == found[:1] * len(found)
    assert 9 <= len(found[0]) < 200


def test_codes_are_made_once_searches_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    scan = ExactScan.of(VECTORS)
    assert scan is not None
    assert [scan.is_ready() for _ in range(5)] == [False] * 3 + [True] * 2
    rows, scores = scan.search(VECTORS[0], 5)
    expected, expected_scores = retrieve(ann_of("Flat", None), VECTORS, VECTORS[0], 5)
    assert rows.tolist() == expected.tolist()
    assert scores.tolist() == expected_scores.tolist()  # to the bit, as before there were codes
    monkeypatch.setattr("aladin_index.ann.exact_scan.load_nearest", lambda: None)
    assert ExactScan.of(VECTORS) is None
