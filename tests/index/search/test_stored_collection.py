import numpy as np
import pytest
import torch
from torch.nn import functional as F

import aladin_index.ann.first_stage
from aladin_index.ann.exact_search import exact_search
from aladin_index.items.selection import Selection


def unit_vectors(count: int, dim: int, seed: int = 0) -> np.ndarray:
    """Random directions, float32."""
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(count, dim, generator=generator), dim=1).numpy()


def selection(rows: np.ndarray) -> Selection:
    """Select rows of `VECTORS`."""
    return Selection.of_mask(np.isin(np.arange(1500), rows))


VECTORS = unit_vectors(1500, 8)
QUERIES = unit_vectors(10, 8, seed=1)


@pytest.mark.parametrize(
    ("factory", "width"), [("Flat", None), ("HNSW8,Flat", 4), ("IVF32,SQ4", 2)]
)
def test_scores_are_exact_whatever_the_ann_keeps(make_collection, factory: str, width: int) -> None:
    collection = make_collection(VECTORS, factory=factory, search_width=width)
    for query in QUERIES:
        rows, scores = collection.candidates(query, 30)
        assert len(set(rows.tolist())) == 30
        np.testing.assert_allclose(scores, VECTORS[rows] @ query, rtol=1e-6)
        assert (np.diff(scores) <= 0).all()


@pytest.mark.parametrize(
    ("factory", "width"), [("Flat", None), ("HNSW8,Flat", 4), ("IVF32,SQ4", 2)]
)
@pytest.mark.parametrize("allowed", [None, selection(np.arange(0, 1500, 3))])
def test_a_longer_order_begins_with_a_shorter_one(
    make_collection, factory: str, width: int, allowed: Selection | None
) -> None:
    collection = make_collection(VECTORS, factory=factory, search_width=width)
    total = 1500 if allowed is None else 500
    for query in QUERIES:
        whole, scores = collection.order(query, total, 40, allowed)
        assert sorted(whole.tolist()) == list(range(1500) if allowed is None else allowed.rows)
        np.testing.assert_allclose(scores, VECTORS[whole] @ query, rtol=1e-6)
        for count in (1, 39, 40, 41, 77):
            np.testing.assert_array_equal(
                collection.order(query, count, 40, allowed)[0], whole[:count]
            )


def test_a_filter_that_leaves_few_is_answered_exactly(make_collection) -> None:
    collection = make_collection(VECTORS, factory="HNSW8,Flat", search_width=4)
    allowed = selection(np.argsort(VECTORS[:, 0])[:100])
    for query in QUERIES:
        np.testing.assert_array_equal(
            collection.candidates(query, 30, allowed)[0],
            exact_search(VECTORS, query, 30, allowed)[0],
        )


def test_a_filter_that_leaves_many_goes_through_the_ann(
    make_collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aladin_index.ann.first_stage, "EXACT_UP_TO", 99)
    collection = make_collection(VECTORS, factory="HNSW32,Flat", search_width=64)
    allowed = selection(np.argsort(VECTORS[:, 0])[:100])
    shares = []
    for query in QUERIES:
        rows, _ = collection.candidates(query, 30, allowed)
        assert len(rows) == 30
        assert np.isin(rows, allowed.rows).all()
        shares.append(np.isin(exact_search(VECTORS, query, 30, allowed)[0], rows).mean())
    assert np.mean(shares) > 0.95


def test_an_ann_that_finds_too_few_is_made_up_for(make_collection) -> None:
    collection = make_collection(VECTORS, factory="IVF32,Flat", search_width=1)
    for query in QUERIES:
        assert len(collection.ann.search(query, 400)) < 400
        np.testing.assert_array_equal(
            collection.candidates(query, 400)[0], exact_search(VECTORS, query, 400)[0]
        )
