import numpy as np
import pytest
import torch
from torch.nn import functional as F

import index.rerank_torch
from aladin.scoring import maxsim
from index.rerank import alignment_with_candidates


def unit_vectors(count: int, dim: int, seed: int = 0) -> np.ndarray:
    """Random directions, float32."""
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(count, dim, generator=generator), dim=1).numpy()


LENGTHS = np.random.default_rng(0).integers(0, 9, 60)
ITEMS = np.split(unit_vectors(int(LENGTHS.sum()), 8), np.cumsum(LENGTHS)[:-1])
QUERY = unit_vectors(5, 8, seed=1)


def by_loops(words: np.ndarray, regions: np.ndarray) -> float:
    if len(regions) == 0:
        return 0.0
    return sum(max(float(word @ region) for region in regions) for word in words)


@pytest.mark.parametrize(("dtype", "error"), [("float16", 5e-3), ("int8", 5e-2)])
@pytest.mark.parametrize("modality", ["text", "image"])
@pytest.mark.parametrize("at_a_time", [1, 13, 2**12])
def test_scores_are_the_sum_over_words_of_the_best_region(
    make_side,
    monkeypatch: pytest.MonkeyPatch,
    dtype: str,
    error: float,
    modality: str,
    at_a_time: int,
) -> None:
    monkeypatch.setattr(index.rerank_torch, "_TOKENS_AT_A_TIME", at_a_time)
    side = make_side(unit_vectors(60, 4), ITEMS, dtype=dtype)
    rows = np.random.default_rng(2).permutation(60)[:40]
    scores = alignment_with_candidates(torch.from_numpy(QUERY), modality, side.tokens, rows)
    for row, score in zip(rows, scores, strict=True):
        pair = (QUERY, ITEMS[row]) if modality == "text" else (ITEMS[row], QUERY)
        assert score == pytest.approx(by_loops(*pair), abs=error)


@pytest.mark.parametrize("dtype", ["float16", "int8"])
@pytest.mark.parametrize("modality", ["text", "image"])
def test_scores_are_those_of_maxsim_on_the_stored_tokens(
    make_side, dtype: str, modality: str
) -> None:
    side = make_side(unit_vectors(60, 4), ITEMS, dtype=dtype)
    rows = np.arange(60)
    block = side.tokens.read(rows)
    padded = torch.zeros(60, 8, 8)
    mask = torch.arange(8) < torch.from_numpy(block.lengths).unsqueeze(1)
    padded[mask] = block.tokens()
    query, real = torch.from_numpy(QUERY).unsqueeze(0), torch.ones(1, 5, dtype=torch.bool)
    if modality == "text":
        expected = maxsim(query, padded, real, mask)[0]
    else:
        expected = maxsim(padded, query, mask, real)[:, 0]
    scores = alignment_with_candidates(query[0], modality, side.tokens, rows)
    # The kernel rounds an int8 store's queries to 16 bits: up to 1e-5 a summed product.
    atol = 1e-5 if dtype == "float16" else 8e-5
    np.testing.assert_allclose(scores, expected.numpy(), atol=atol)


def test_a_query_without_tokens_scores_nothing(make_side) -> None:
    side = make_side(unit_vectors(60, 4), ITEMS)
    scores = alignment_with_candidates(torch.zeros(0, 8), "text", side.tokens, np.arange(60))
    assert scores.tolist() == [0.0] * 60
