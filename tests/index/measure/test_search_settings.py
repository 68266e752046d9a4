"""Settings of both stages by their measured time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aladin_index.ann.ann_index import AnnIndex, build_ann
from aladin_index.format.manifest import SettingsPoint
from aladin_index.measure.fidelity import TuneQueries, exhaustive_tops, fidelity_of
from aladin_index.measure.search_settings import (
    ann_entry,
    compare_settings,
    fastest,
    fewest_enough,
)
from aladin_network.scoring.fusion import DirectionFusion
from aladin_network.types import NullProgress

ITEMS, QUERIES, DIM = 1500, 12, 16


def point(
    search_width: int | None, oversample: float, candidates: int, search_ms: float
) -> SettingsPoint:
    return SettingsPoint(
        search_width=search_width, oversample=oversample, candidates=candidates, search_ms=search_ms
    )


def test_the_fastest_is_neither_the_narrowest_nor_that_of_the_fewest_candidates() -> None:
    points = [
        point(32, 1.0, 400, 1.9),
        point(64, 1.0, 210, 1.2),
        point(64, 2.0, 160, 1.1),
        point(128, 4.0, 110, 1.3),
    ]
    assert fastest(points) == points[2]
    assert fastest([*points, point(128, 2.0, 120, 1.1)]).candidates == 120
    assert fastest([point(None, 1.0, 30, 0.5)]).search_width is None


@pytest.mark.parametrize("least", [1, 7, 23])
@pytest.mark.parametrize("needed", [1, 8, 22, 24, 97, 100])
def test_the_fewest_that_are_enough(least: int, needed: int) -> None:
    tried: list[int] = []

    def enough(number: int) -> bool:
        tried.append(number)
        return number >= needed

    assert fewest_enough(least, 100, enough) == max(least, needed)
    assert least <= min(tried) <= max(tried) <= 100
    assert len(tried) < 16


def test_none_is_enough() -> None:
    assert fewest_enough(10, 100, lambda _number: False) is None
    assert fewest_enough(100, 100, lambda _number: False) is None


def test_each_setting_has_the_fewest_candidates_that_keep_enough(make_side) -> None:
    random = np.random.default_rng(0)
    vectors = random.standard_normal((ITEMS, DIM)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    tokens = [rows[None].copy() for rows in vectors[:, :8]]
    side = make_side(vectors, tokens)
    ann = AnnIndex(build_ann("IVF32,PQ8x4fs", vectors, NullProgress()), 32)
    side = replace(side, ann=ann)
    asked = vectors[:QUERIES] + 0.1 * random.standard_normal((QUERIES, DIM)).astype(np.float32)
    queries = TuneQueries("text", asked, [rows[None, :8].copy() for rows in asked])
    fusion = DirectionFusion(weight=0.5)
    tops = exhaustive_tops(side, queries, fusion, 5)
    points = compare_settings(side, queries, tops, fusion, 0.9, 400, NullProgress())

    assert len(points) > 3
    assert len({each.search_width for each in points}) > 1
    assert len({each.oversample for each in points}) > 1
    for each in points:
        assert each.search_ms > 0
        tried = AnnIndex(ann.faiss_index, each.search_width, each.oversample)
        assert fidelity_of(side, tried, queries, tops, each.candidates, completed=False) >= 0.9
        fewer = fidelity_of(side, tried, queries, tops, each.candidates - 1, completed=False)
        assert fewer < 0.9
    of_width: dict[int | None, list[int]] = {}
    for each in points:  # more is compared exactly only where fewer candidates do then
        of_width.setdefault(each.search_width, []).append(each.candidates)
    assert all(sorted(set(each), reverse=True) == each for each in of_width.values())

    entry = ann_entry(side.entry.ann, side, queries, points[0])
    assert (entry.search_width, entry.oversample) == (points[0].search_width, points[0].oversample)
    assert entry.recall_at == points[0].candidates
    nearest = np.argsort(-(asked @ vectors.T), axis=1)[:, : points[0].candidates]
    tried = AnnIndex(ann.faiss_index, entry.search_width, entry.oversample)
    found = [side_found(tried, vectors, query, points[0].candidates) for query in asked]
    pairs = zip(nearest, found, strict=True)
    shares = [len(np.intersect1d(*pair)) / nearest.shape[1] for pair in pairs]
    assert entry.recall == pytest.approx(np.mean(shares))
    assert entry.recall_wanted == side.entry.ann.recall_wanted
    # What no setting keeps has no point.
    assert compare_settings(side, queries, tops, fusion, 1.0, 5, NullProgress()) == []


def side_found(ann: AnnIndex, vectors: np.ndarray, query: np.ndarray, count: int) -> np.ndarray:
    """Return the best `count` of what an ANN index finds, by their inner products."""
    rows = ann.search(query, count)
    return rows[np.argsort(-(vectors[rows] @ query))][:count]
