import numpy as np
import pytest

import aladin_index.measure.fidelity
from aladin_index.measure.fidelity import (
    TimedSearch,
    TuneQueries,
    exhaustive_tops,
    fewest_candidates,
    fidelity_of,
    two_stage_ms,
)
from aladin_network.scoring.fusion import DirectionFusion
from tests.index.vectors import unit_vectors

COUNT, QUERIES, DIM, TOKEN_DIM = 120, 9, 8, 4
FUSION = DirectionFusion(weight=0.6, align_std=0.5, match_std=0.2)


@pytest.fixture
def embeddings() -> np.ndarray:
    vectors = unit_vectors(COUNT, DIM, 0)
    vectors[50] = vectors[10]  # two items with the same cosine to everything
    return vectors


@pytest.fixture
def tokens() -> list[np.ndarray]:
    # float16 takes sixteenths as they are, so the reference need not round.
    lengths = np.random.default_rng(0).integers(1, 6, COUNT)
    flat = np.round(unit_vectors(int(lengths.sum()), TOKEN_DIM, 1) * 16) / 16
    return np.split(flat.astype(np.float32), np.cumsum(lengths)[:-1])


@pytest.fixture
def queries() -> TuneQueries:
    words = [unit_vectors(2 + place % 3, TOKEN_DIM, 10 + place) for place in range(QUERIES)]
    return TuneQueries("text", unit_vectors(QUERIES, DIM, 2), words)


def fused_scores(
    embeddings: np.ndarray, tokens: list[np.ndarray], queries: TuneQueries, place: int
) -> list[float]:
    """Score every item for one query by both stages, in loops."""
    scores = []
    for embedding, regions in zip(embeddings, tokens, strict=True):
        align = sum(
            max(float(word @ region) for region in regions) for word in queries.tokens[place]
        )
        match = float(embedding @ queries.embeddings[place])
        scores.append(0.6 * align / 0.5 + 0.4 * match / 0.2)
    return scores


@pytest.mark.parametrize("scores_at_a_time", [2**26, COUNT])
def test_tops_are_those_of_scoring_every_item(
    make_collection,
    embeddings: np.ndarray,
    tokens: list[np.ndarray],
    queries: TuneQueries,
    scores_at_a_time: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aladin_index.measure.fidelity, "_SCORES_AT_A_TIME", scores_at_a_time)
    collection = make_collection(embeddings, tokens)
    tops = exhaustive_tops(collection, queries, FUSION, 10)
    for place in range(QUERIES):
        scores = fused_scores(embeddings, tokens, queries, place)
        expected = sorted(range(COUNT), key=lambda row: -scores[row])[:10]
        assert tops.rows[place].tolist() == expected
        match = embeddings @ queries.embeddings[place]
        order = sorted(range(COUNT), key=lambda row: (-match[row], row))
        assert tops.places[place].tolist() == [order.index(row) for row in expected]


def test_fidelity_is_the_share_that_two_stages_keep(
    make_collection, embeddings: np.ndarray, tokens: list[np.ndarray], queries: TuneQueries
) -> None:
    collection = make_collection(embeddings, tokens)
    tops = exhaustive_tops(collection, queries, FUSION, 10)
    for candidates in (10, 17, 40, 119, COUNT):
        shares = []
        for place in range(QUERIES):
            scores = fused_scores(embeddings, tokens, queries, place)
            found = collection.candidates(queries.embeddings[place], candidates)[0].tolist()
            served = sorted(found, key=lambda row: -scores[row])[:10]
            shares.append(len(set(served) & set(tops.rows[place].tolist())) / 10)
        kept = fidelity_of(collection, collection.ann, queries, tops, candidates)
        assert kept == pytest.approx(np.mean(shares))
        # The first stage is exact here: the places tell as much.
        assert kept == pytest.approx((tops.places < candidates).mean())
    for fidelity in (0.05, 0.6, 0.9, 0.99, 1.0):
        fewest = fewest_candidates(tops, fidelity)
        assert fewest >= 10  # never fewer candidates than hits that are compared
        assert fidelity_of(collection, collection.ann, queries, tops, fewest) >= fidelity - 1e-9
        if fewest > 10:
            assert fidelity_of(collection, collection.ann, queries, tops, fewest - 1) < fidelity
    (took_ms,) = two_stage_ms(collection, queries, FUSION, [TimedSearch(collection.ann, 20)])
    assert took_ms > 0
