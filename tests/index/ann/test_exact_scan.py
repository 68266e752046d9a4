import numpy as np
import pytest
from numpy.typing import NDArray

from aladin_index.ann.ann_index import AnnIndex, build_ann
from aladin_index.ann.exact_scan import ExactScan
from aladin_index.ann.exact_search import best_of, exact_search
from aladin_index.ann.first_stage import retrieve
from aladin_index.items.selection import Selection
from aladin_index.kernel.nearest import load_nearest
from aladin_network.types import NullProgress


def unit(values: NDArray[np.float64]) -> NDArray[np.float32]:
    return (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)


def clustered(count: int, dim: int) -> NDArray[np.float32]:
    """Vectors that lean one way, as embeddings do, many of which are nearly the same."""
    random = np.random.default_rng([count, dim])
    centres = random.standard_normal((20, dim)) + 2
    spread = np.where(np.arange(count) % 3 == 0, 0.001, 0.4)[:, None]
    return unit(
        centres[random.integers(0, 20, count)] + spread * random.standard_normal((count, dim))
    )


def scan_of(vectors: NDArray[np.float32]) -> ExactScan:
    scan = ExactScan.of(vectors)
    assert scan is not None, "the native library is not compiled"
    while not scan.is_ready():  # the first searches compare all vectors
        pass
    return scan


@pytest.mark.parametrize("dim", [3, 16, 50, 256, 1030])
def test_the_best_rows_are_those_of_comparing_all(dim: int) -> None:
    vectors = clustered(777, dim)
    scan, every = scan_of(vectors), np.arange(777)
    for place, query in enumerate([*vectors[:5], *-vectors[5:8], *clustered(9, dim)]):
        for count in (1, 10, 300):
            rows, scores = scan.search(query, count)
            expected, expected_scores = best_of(vectors, query, every, count)
            assert rows.tolist() == expected.tolist(), (place, count)
            assert scores.tolist() == expected_scores.tolist()


def test_only_selected_rows_are_found() -> None:
    vectors = clustered(1003, 24)
    scan = scan_of(vectors)
    for share in (0.9, 0.5, 0.02):
        allowed = Selection.of_mask(np.random.default_rng(1).random(1003) < share)
        rows, _ = scan.search(vectors[7], 15, allowed)
        assert rows.tolist() == best_of(vectors, vectors[7], allowed.rows, 15)[0].tolist()
    few = Selection.of_mask(np.arange(1003) < 4)
    assert scan.search(vectors[7], 15, few)[0].size == 4
    assert scan.search(vectors[7], 15, Selection.of_mask(np.zeros(1003, dtype=bool)))[0].size == 0


def test_equal_vectors_are_found_in_the_order_of_their_rows() -> None:
    vectors = np.repeat(clustered(3, 20), 40, axis=0)
    rows, scores = scan_of(vectors).search(vectors[45], 50)
    assert rows[:40].tolist() == list(range(40, 80))
    assert len(set(scores[:40].tolist())) == 1


def test_vectors_of_any_length_and_zeros() -> None:
    random = np.random.default_rng(0)
    vectors = (random.standard_normal((500, 20)) * 10 ** random.uniform(-6, 6, (500, 1))).astype(
        np.float32
    )
    vectors[::7] = 0
    scan = scan_of(vectors)
    for query in [vectors[1], vectors[2], np.zeros(20, dtype=np.float32)]:
        expected = best_of(vectors, query, np.arange(500), 30)
        assert scan.search(query, 30)[0].tolist() == expected[0].tolist()


def test_vectors_that_are_no_numbers_are_compared_one_by_one() -> None:
    vectors = clustered(300, 16)
    vectors[5] = np.nan
    rows, _ = scan_of(vectors).search(vectors[1], 10)
    assert rows.tolist() == exact_search(vectors, vectors[1], 10)[0].tolist()


def test_every_code_path_finds_the_same_rows() -> None:
    vectors = clustered(333, 70)
    scan, kernel = scan_of(vectors), load_nearest()
    codes = scan._codes
    assert codes is not None
    assert kernel is not None
    found = []
    for path in range(3):
        try:
            found.append(sorted(kernel.rows(codes._native, vectors[3], 9, None, path).tolist()))
        except ValueError:
            break
    assert found
    assert found == found[:1] * len(found)
    assert 9 <= len(found[0]) < 200


def test_codes_are_made_once_searches_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = clustered(400, 16)
    scan = ExactScan.of(vectors)
    assert scan is not None
    assert [scan.is_ready() for _ in range(5)] == [False] * 3 + [True] * 2
    rows, scores = scan.search(vectors[0], 5)
    flat = AnnIndex(build_ann("Flat", vectors, NullProgress()), None)
    expected, expected_scores = retrieve(flat, vectors, vectors[0], 5)
    assert rows.tolist() == expected.tolist()
    assert scores.tolist() == expected_scores.tolist()  # to the bit, as before there were codes
    monkeypatch.setattr("aladin_index.ann.exact_scan.load_nearest", lambda: None)
    assert ExactScan.of(vectors) is None
