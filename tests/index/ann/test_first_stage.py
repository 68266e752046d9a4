import numpy as np
import pytest

from aladin_index.ann.ann_index import AnnIndex, build_ann
from aladin_index.ann.exact_search import exact_scores, exact_search
from aladin_index.ann.first_stage import retrieve
from aladin_index.items.selection import Selection
from aladin_network.types import NullProgress
from tests.index.vectors import unit_vectors

VECTORS = unit_vectors(1500, 16)
# Every vector three times: equal scores are the rule.
REPEATED = np.tile(unit_vectors(200, 16), (3, 1))
QUERIES = unit_vectors(15, 16, seed=1)


def test_scores_are_the_inner_products() -> None:
    rows = np.array([7, 3, 1499, 3], dtype=np.int64)
    np.testing.assert_allclose(
        exact_scores(VECTORS, QUERIES[0], rows), VECTORS[rows] @ QUERIES[0], rtol=1e-5
    )


@pytest.mark.parametrize(
    ("factory", "width", "oversample"),
    [("Flat", None, 1.0), ("IVF8,Flat", 8, 1.0), ("IVF8,PQ16x4fs", 8, 6.0), ("SQ8", None, 3.0)],
)
@pytest.mark.parametrize("vectors", [VECTORS, REPEATED])
def test_the_order_is_that_of_exact_search(
    factory: str, width: int | None, oversample: float, vectors: np.ndarray
) -> None:
    ann = AnnIndex(build_ann(factory, vectors, NullProgress()), width, oversample)
    for query in QUERIES:
        rows, scores = retrieve(ann, vectors, query, 30)
        expected, true_scores = exact_search(vectors, query, 30)
        assert len(rows) == len(scores) == 30
        np.testing.assert_allclose(scores, vectors[rows] @ query, rtol=1e-5)
        assert (np.diff(scores) <= 0).all()
        same = scores[1:] == scores[:-1]
        assert (np.diff(rows)[same] > 0).all()
        # Each third row of three equal ones may be another: which is found, nobody promises.
        np.testing.assert_array_equal(rows % 200, expected % 200) if vectors is REPEATED else (
            np.testing.assert_array_equal(rows, expected)
        )
        np.testing.assert_allclose(scores, true_scores, rtol=1e-5)


def test_vectors_are_read_ahead_at_first_and_while_they_come_from_a_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocks = iter([0, 8, 8, 8, 8, 8])  # before and after each search
    asked: list[list[int]] = []

    def ask(array: np.ndarray, starts: list[int], stops: list[int]) -> None:
        assert array is VECTORS and stops == [start + 1 for start in starts]
        asked.append(starts)

    monkeypatch.setattr("aladin_index.format.npy.read_ahead", ask)
    monkeypatch.setattr("aladin_index.ann.first_stage.blocks_read", lambda: next(blocks))
    ann = AnnIndex(build_ann("IVF8,PQ16x4fs", VECTORS, NullProgress()), 8, 2.0)
    found = [retrieve(ann, VECTORS, QUERIES[0], 30)[0] for _ in range(3)]
    assert [len(starts) for starts in asked] == [60, 60] and set(found[0]) <= set(asked[0])
    np.testing.assert_array_equal(found[0], found[2])
    assert not ann.is_cold
    exact = AnnIndex(build_ann("Flat", VECTORS, NullProgress()), None)
    retrieve(exact, VECTORS, QUERIES[0], 30)  # has its own copy
    assert len(asked) == 2


@pytest.mark.parametrize("factory", ["IVF8,Flat", "IVF8,PQ16x4fs"])
def test_an_ann_that_finds_too_few_is_completed_by_exact_search(factory: str) -> None:
    ann = AnnIndex(build_ann(factory, VECTORS, NullProgress()), 1, 2.0)
    allowed = Selection.of_mask(np.arange(1500) % 2 == 0)
    for query in QUERIES:
        assert len(ann.search(query, 700)) < 700
        for selection in (None, allowed):
            rows, _ = retrieve(ann, VECTORS, query, 700, selection)
            np.testing.assert_array_equal(rows, exact_search(VECTORS, query, 700, selection)[0])
