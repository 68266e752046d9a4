import numpy as np
import torch
from torch.nn import functional as F

from aladin_index.ann.ann_index import AnnIndex, build_ann
from aladin_index.ann.exact_search import exact_search
from aladin_index.ann.search_width import ann_recall, lowest_true_scores, sample_queries
from aladin_network.types import NullProgress


def unit_vectors(count: int, dim: int, seed: int = 0) -> np.ndarray:
    """Random directions, float32."""
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(count, dim, generator=generator), dim=1).numpy()


VECTORS = unit_vectors(3000, 16)
QUERIES = unit_vectors(30, 16, seed=1)


def test_the_lowest_true_score_is_that_of_exact_search() -> None:
    lowest = lowest_true_scores(VECTORS, QUERIES, 25)
    expected = [exact_search(VECTORS, query, 25)[1][-1] for query in QUERIES]
    np.testing.assert_allclose(lowest, expected, rtol=1e-5)


def test_recall_is_the_share_found() -> None:
    # Two lists, one vector each of the four axes: a search of one list finds half of them.
    vectors = np.repeat(np.eye(2, 4, dtype=np.float32), [3, 3], axis=0)
    vectors += 0.01 * unit_vectors(6, 4)
    ann = AnnIndex(build_ann("IVF2,Flat", vectors, NullProgress()), 1)
    queries = np.float32([[1, 0.5, 0, 0]])
    lowest = lowest_true_scores(vectors, queries, 3)
    assert ann_recall(ann, vectors, queries, lowest, 3) == 1.0
    # Of the lowest score of five nearest, a search for two can reach two of two.
    assert ann_recall(ann, vectors, queries, lowest_true_scores(vectors, queries, 5), 2) == 1.0
    # The nearest alone is as near as the nearest: one of three.
    assert ann_recall(ann, vectors, queries, lowest_true_scores(vectors, queries, 1), 3) == 1 / 3


def test_recall_counts_what_exact_search_would_have_found() -> None:
    ann = AnnIndex(build_ann("IVF64,Flat", VECTORS, NullProgress()), 3)
    shares = [
        np.isin(ann.search(query, 10), exact_search(VECTORS, query, 10)[0]).mean()
        for query in QUERIES
    ]
    lowest = lowest_true_scores(VECTORS, QUERIES, 10)
    recall = ann_recall(ann, VECTORS, QUERIES, lowest, 10)
    assert 0.3 < recall < 0.95
    np.testing.assert_allclose(recall, np.mean(shares), atol=1e-9)


def test_which_of_several_equal_items_is_found_makes_no_difference() -> None:
    vectors = np.repeat(unit_vectors(40, 8), 25, axis=0)  # every vector 25 times
    ann = AnnIndex(build_ann("IVF8,PQ8x4fs", vectors, NullProgress()), 8, 4.0)
    queries = unit_vectors(20, 8, seed=2)
    lowest = lowest_true_scores(vectors, queries, 10)
    assert ann_recall(ann, vectors, queries, lowest, 10) > 0.98


def test_a_sample_is_the_same_each_time_and_has_no_row_twice() -> None:
    sample = sample_queries(VECTORS, 100)
    np.testing.assert_array_equal(sample, sample_queries(VECTORS, 100))
    assert len(np.unique(sample, axis=0)) == 100
    assert len(sample_queries(QUERIES, 100)) == 30
