import numpy as np
import pytest

import aladin_index.ann.exact_search
from aladin_index.ann.exact_search import exact_search, largest
from aladin_index.items.selection import Selection
from tests.index.vectors import unit_vectors


@pytest.mark.parametrize("count", [1, 7, 100, 300])
def test_the_best_rows_come_first_and_equal_ones_in_their_order(count: int) -> None:
    scores = np.random.default_rng(0).integers(0, 12, 100).astype(np.float32)
    expected = sorted(range(100), key=lambda place: (-scores[place], place))[:count]
    assert largest(scores, count).tolist() == expected


@pytest.mark.parametrize(
    "allowed", [None, [2, 3, 50, 51, 199], [], list(range(0, 200, 3)), list(range(5, 200))]
)
def test_chunks_make_no_difference(
    monkeypatch: pytest.MonkeyPatch, allowed: list[int] | None
) -> None:
    embeddings, query = unit_vectors(200, 8), unit_vectors(1, 8, seed=1)[0]
    rows = None if allowed is None else Selection.of_mask(np.isin(np.arange(200), allowed))
    monkeypatch.setattr(aladin_index.ann.exact_search, "_ROWS_AT_A_TIME", 3)
    found, scores = exact_search(embeddings, query, 10, rows)
    among = range(200) if allowed is None else allowed
    expected = sorted(among, key=lambda row: -float(embeddings[row] @ query))[:10]
    assert found.tolist() == expected
    np.testing.assert_allclose(scores, embeddings[expected] @ query, rtol=1e-6)
