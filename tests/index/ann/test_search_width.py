import itertools

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from aladin_index.ann.ann_index import AnnIndex, build_ann
from aladin_index.ann.search_width import ann_recall, choose_search_width, lowest_true_scores
from aladin_index.format.manifest import RecallPoint
from aladin_network.types import NullProgress


def unit_vectors(count: int, dim: int, seed: int = 0) -> np.ndarray:
    """Random directions, float32."""
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(count, dim, generator=generator), dim=1).numpy()


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


def test_codes_that_say_little_are_made_up_for_by_asking_for_more() -> None:
    ann = build("IVF16,PQ8x4fs")
    assert recall_of(ann, 16, 1.0) < 0.9
    chosen, _ = choose_search_width(ann, VECTORS, QUERIES, 10, 0.99)
    assert chosen.recall >= 0.99
    assert chosen.oversample > 1


def test_where_nothing_finds_enough_more_work_without_gain_is_not_paid_for() -> None:
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


def test_the_same_is_measured_each_time() -> None:
    first = choose_search_width(build("IVF64,PQ16x4fs"), VECTORS, QUERIES, 10, 0.95)
    assert first == choose_search_width(build("IVF64,PQ16x4fs"), VECTORS, QUERIES, 10, 0.95)
