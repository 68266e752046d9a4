"""The vectors of a fitted first stage in an index with a hubness correction."""

from __future__ import annotations

import numpy as np
import pytest

from aladin_index.learned.weights import Weights
from aladin_network.scoring.fusion import DirectionFusion


@pytest.mark.parametrize("weight", [0.25, 0.7, 1.0])
@pytest.mark.parametrize("asked", [0.4, 1.0])
def test_inner_products_are_fused_corrected_scores(weight: float, asked: float) -> None:
    """Up to a constant of the query, which the fusion subtracts from every item."""
    random = np.random.default_rng(0)
    fusion = DirectionFusion(weight=weight, align_std=0.7, match_std=0.2)
    weights = Weights.of(fusion, corrected=True)
    if weights.fusion == 1 and asked != 1:
        asked = 1.0  # vectors of the alignment alone can find nothing else
    embeddings, learned, biases, queries, of_queries = (
        random.standard_normal(shape).astype(np.float32)
        for shape in ((9, 4), (9, 3), (9, 2), (5, 4), (5, 3))
    )
    words = random.integers(1, 8, 5)
    stored = weights.items(np.hstack([embeddings, -biases]), learned)
    ones = np.tile(np.array([1, 0], dtype=np.float32), (5, 1))
    found = stored @ weights.query(np.hstack([queries, ones]), of_queries, asked, words).T
    match = embeddings @ queries.T - biases[:, :1]
    align = learned @ of_queries.T - biases[:, 1:] * words
    expected = fusion.combine(align, match, asked)
    if asked == 1 and weight < 1:
        expected = expected / fusion.align_std
    np.testing.assert_allclose(
        found - found.mean(axis=0), expected - expected.mean(axis=0), atol=1e-4
    )
    alone = weights.query(np.hstack([queries, ones])[2], of_queries[2], asked, words[2])
    np.testing.assert_allclose(stored @ alone, found[:, 2], atol=1e-5)
