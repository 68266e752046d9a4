import itertools

import numpy as np
import pytest

from aladin_index.ann.ann_index import AnnIndex, build_ann
from aladin_index.ann.exact_search import exact_search
from aladin_index.ann.search_width import (
    ann_recall,
    choose_search_width,
    lowest_true_scores,
    sample_queries,
)
from aladin_index.format.manifest import RecallPoint
from aladin_network.types import NullProgress
from tests.index.vectors import unit_vectors

VECTORS = unit_vectors(3000, 16)
QUERIES = unit_vectors(60, 16, seed=1)


def build(factory: str) -> AnnIndex:
    return AnnIndex(build_ann(factory, VECTORS, NullProgress()), None)


def recall_of(ann: AnnIndex, width: int | None, oversample: float) -> float:
    lowest = lowest_true_scores(VECTORS, QUERIES, 10)
    tried = AnnIndex(ann.faiss_index, width, oversample)
    return ann_recall(tried, VECTORS, QUERIES, lowest, 10)


def test_an_exact_index_has_nothing_to_choose() -> None:
    point = RecallPoint(search_width=None, oversample=1.0, recall=1.0)
    assert choose_search_width(build("Flat"), VECTORS, QUERIES, 10, 0.99) == (point, [point])


@pytest.mark.parametrize("factory", ["IVF64,Flat", "IVF64,PQ16x4fs", "HNSW8,Flat"])
def test_the_narrowest_search_that_finds_enough_is_chosen(factory: str) -> None:
    ann = build(factory)
    chosen, curve = choose_search_width(ann, VECTORS, QUERIES, 10, 0.97)
    assert (chosen, curve) == choose_search_width(build(factory), VECTORS, QUERIES, 10, 0.97)
    assert chosen.recall >= 0.97
    assert chosen.search_width is not None
    assert chosen.recall == recall_of(ann, chosen.search_width, chosen.oversample)
    narrower = [point for point in curve if point.search_width < chosen.search_width]
    assert all(point.recall < 0.97 for point in narrower)
    # More is found by a wider search, and by asking for more; this is what the curve says.
    for before, after in itertools.pairwise(curve):
        assert before.search_width < after.search_width
        if before.recall < 0.97:
            assert before.recall < after.recall + 0.0005
    for point in curve:
        assert point.recall == recall_of(ann, point.search_width, point.oversample)
        if ann.keeps_vectors:
            assert point.oversample == 1
        elif point.oversample > 1:
            assert recall_of(ann, point.search_width, 1.0) < point.recall


def test_coarse_codes_are_oversampled() -> None:
    ann = build("IVF16,PQ8x4fs")
    assert recall_of(ann, 16, 1.0) < 0.9
    chosen, _ = choose_search_width(ann, VECTORS, QUERIES, 10, 0.99)
    assert chosen.recall >= 0.99
    assert chosen.oversample > 1


def test_if_no_width_finds_enough_the_cheapest_of_the_best_is_chosen() -> None:
    chosen, curve = choose_search_width(build("IVF64,PQ2x4"), VECTORS, QUERIES, 10, 0.99)
    assert chosen.recall == pytest.approx(max(point.recall for point in curve), abs=0.0005)
    assert chosen.recall < 0.99


def test_times_are_measured_when_asked_for_and_the_fastest_is_chosen() -> None:
    ann = build("IVF64,PQ16x4fs")
    assert all(
        point.search_ms is None
        for point in choose_search_width(ann, VECTORS, QUERIES, 10, 0.9).curve
    )
    chosen, curve = choose_search_width(ann, VECTORS, QUERIES, 10, 0.9, timed=True)
    enough = [point for point in curve if point.recall >= 0.9]
    assert all(point.search_ms is not None and point.search_ms > 0 for point in curve)
    assert chosen == min(enough, key=lambda point: point.search_ms)


def test_the_exact_search_after_one_that_finds_too_few_is_not_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(*_: object) -> None:
        raise AssertionError

    ann = build("IVF64,Flat")
    assert len(AnnIndex(ann.faiss_index, 1).search(QUERIES[0], 500)) < 500
    monkeypatch.setattr("aladin_index.ann.first_stage.exact_search", never)
    narrowest = choose_search_width(ann, VECTORS, QUERIES, 500, 0.9, timed=True).curve[0]
    assert narrowest.search_width == 1
    assert narrowest.recall < 0.5
    assert narrowest.search_ms > 0


def test_recall_is_the_share_of_what_exact_search_finds() -> None:
    ann = AnnIndex(build_ann("IVF64,Flat", VECTORS, NullProgress()), 3)
    nearest = [exact_search(VECTORS, query, 10) for query in QUERIES]
    lowest = lowest_true_scores(VECTORS, QUERIES, 10)
    np.testing.assert_allclose(lowest, [scores[-1] for _, scores in nearest], rtol=1e-5)
    shares = [
        np.isin(ann.search(query, 10), rows).mean()
        for query, (rows, _) in zip(QUERIES, nearest, strict=True)
    ]
    recall = ann_recall(ann, VECTORS, QUERIES, lowest, 10)
    assert 0.3 < recall < 0.95
    np.testing.assert_allclose(recall, np.mean(shares), atol=1e-9)


def test_any_of_several_equal_items_counts_as_found() -> None:
    vectors = np.repeat(unit_vectors(40, 8), 25, axis=0)  # every vector 25 times
    ann = AnnIndex(build_ann("IVF8,PQ8x4fs", vectors, NullProgress()), 8, 4.0)
    queries = unit_vectors(20, 8, seed=2)
    lowest = lowest_true_scores(vectors, queries, 10)
    assert ann_recall(ann, vectors, queries, lowest, 10) > 0.98


def test_a_sample_is_the_same_each_time_and_has_no_row_twice() -> None:
    sample = sample_queries(VECTORS, 100)
    np.testing.assert_array_equal(sample, sample_queries(VECTORS, 100))
    assert len(np.unique(sample, axis=0)) == 100
    assert len(sample_queries(QUERIES, 100)) == 60
