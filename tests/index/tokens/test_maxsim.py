from typing import Any

import numpy as np
import pytest
import torch

import aladin_index.tokens.maxsim
from aladin_index.kernel import load_kernel
from aladin_index.tokens.codec import TokenCodec
from aladin_index.tokens.maxsim import (
    alignment_of_queries,
    alignment_with_all,
    alignment_with_candidates,
    token_similarities,
)
from aladin_index.tokens.store import TokenStore
from aladin_network.errors import IndexCorruptError
from aladin_network.scoring.scores import maxsim
from aladin_network.types import TOKEN_DTYPES
from tests.index.progress import CountedProgress
from tests.index.vectors import unit_vectors

ENGINES = ["numpy"] if load_kernel() is None else ["native", "numpy"]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each engine in turn."""
    if request.param == "numpy":
        monkeypatch.setattr(aladin_index.tokens.maxsim, "load_kernel", lambda: None)
    return request.param


LENGTHS = np.random.default_rng(0).integers(0, 9, 60)
ITEMS = np.split(unit_vectors(int(LENGTHS.sum()), 8), np.cumsum(LENGTHS)[:-1])
QUERY = unit_vectors(5, 8, seed=1)


def make_store(dtype: Any = "float16") -> TokenStore:
    tokens = np.concatenate(ITEMS)
    codec = TokenCodec.train(dtype, tokens)
    return TokenStore.from_arrays(codec, codec.pack(tokens), LENGTHS)


@pytest.mark.parametrize("dtype", TOKEN_DTYPES)
@pytest.mark.parametrize("modality", ["text", "image"])
def test_scores_are_those_of_maxsim_on_the_stored_tokens(
    engine: str, dtype: str, modality: Any
) -> None:
    store, rows = make_store(dtype), np.arange(60)
    block = store.read(rows)
    padded = torch.zeros(60, 8, 8)
    mask = torch.arange(8) < torch.from_numpy(block.lengths).unsqueeze(1)
    padded[mask] = torch.from_numpy(block.values)
    query, real = torch.from_numpy(QUERY).unsqueeze(0), torch.ones(1, 5, dtype=torch.bool)
    if modality == "text":
        expected = maxsim(query, padded, real, mask)[0]
    else:
        expected = maxsim(padded, query, mask, real)[:, 0]
    scores = alignment_with_candidates(QUERY, modality, store, rows)
    # The kernel rounds queries to 16 bits where the store is not float16: 1e-5 a product.
    atol = 1e-5 if engine == "numpy" or dtype == "float16" else 8e-5
    np.testing.assert_allclose(scores, expected.numpy(), atol=atol)


@pytest.mark.parametrize("dtype", TOKEN_DTYPES)
@pytest.mark.parametrize("modality", ["text", "image"])
def test_scores_are_sums_of_the_best_similarities(engine: str, dtype: Any, modality: Any) -> None:
    # Words with one large value are rounded most coarsely, and a text that repeats itself adds the
    # same error up: the product of the decoded tokens is further than 1e-4 from the scores.
    random = np.random.default_rng(4)
    lengths = [90, 1, 0, 17, 60]
    flat = random.standard_normal((5, 512)).astype(np.float32) / np.sqrt(np.float32(512))
    peaky = random.standard_normal((1, 512)) + 150 * (np.arange(512) == 3)
    peaky = (peaky / np.linalg.norm(peaky)).astype(np.float32)
    tokens = np.repeat(flat, lengths, axis=0)
    codec = TokenCodec.train(dtype, tokens)
    store = TokenStore.from_arrays(codec, codec.pack(tokens), lengths)
    query = np.repeat(peaky, 80, axis=0)
    scores = alignment_with_candidates(query, modality, store, np.arange(5))
    furthest = 0.0
    every = token_similarities(query, modality, store, np.arange(5))
    for row, (score, told) in enumerate(zip(scores, every, strict=True)):
        assert (told.shape, told.dtype) == ((80, lengths[row]), np.float32)
        decoded = query @ store.read(np.array([row])).values.T
        np.testing.assert_allclose(told, decoded, atol=2e-4)
        if lengths[row]:
            best = told.max(axis=1 if modality == "text" else 0)
            assert best.sum(dtype=np.float64) == pytest.approx(score, abs=1e-5 + 1e-6 * len(best))
            best = decoded.max(axis=1 if modality == "text" else 0)
            furthest = max(furthest, abs(best.sum(dtype=np.float64) - score))
    if engine == "native" and dtype == "int8":
        assert furthest > 1e-4


@pytest.mark.usefixtures("engine")
def test_no_tokens_score_0_no_item_is_compared_and_rows_beyond_are_mistakes() -> None:
    store, empty = make_store(), np.zeros((0, 8), np.float32)
    found = token_similarities(empty, "text", store, np.array([1, 3]))
    assert [each.shape for each in found] == [(0, LENGTHS[1]), (0, LENGTHS[3])]
    assert alignment_with_candidates(empty, "text", store, np.arange(60)).tolist() == [0.0] * 60
    assert token_similarities(QUERY, "text", store, np.empty(0, dtype=np.int64)) == []
    with pytest.raises(IndexError):
        alignment_with_candidates(QUERY, "text", store, np.array([60]))


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("modality", ["text", "image"])
def test_several_queries_score_as_each_alone(
    monkeypatch: pytest.MonkeyPatch, modality: Any, threads: int
) -> None:
    monkeypatch.setattr("aladin_index.tokens.maxsim.compute_threads", lambda: threads)
    monkeypatch.setattr(aladin_index.tokens.maxsim, "_CANDIDATES_A_THREAD", 7)
    store, random = make_store("int8"), np.random.default_rng(3)
    queries = [unit_vectors(count, 8, seed=count) for count in (3, 0, 20, 7)]
    rows = [random.permutation(60)[:count] for count in (10, 30, 0, 41)]
    together = alignment_of_queries(queries, modality, store, rows)
    alone = [
        alignment_with_candidates(query, modality, store, candidates)
        for query, candidates in zip(queries, rows, strict=True)
    ]
    assert [scores.tolist() for scores in together] == [scores.tolist() for scores in alone]
    assert alignment_of_queries([], modality, store, []) == []


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("modality", ["text", "image"])
def test_all_items_score_as_candidates_do(
    monkeypatch: pytest.MonkeyPatch, modality: Any, threads: int
) -> None:
    monkeypatch.setattr("aladin_index.tokens.maxsim.compute_threads", lambda: threads)
    monkeypatch.setattr(aladin_index.tokens.maxsim, "_CANDIDATES_A_THREAD", 4)
    monkeypatch.setattr(aladin_index.tokens.maxsim, "_ITEMS_AT_A_TIME", 9)
    store, rows = make_store("4bit"), np.arange(60)
    queries = [unit_vectors(count, 8, seed=count) for count in (3, 0, 20)]
    progress = CountedProgress()
    scores = alignment_with_all(queries, modality, store, progress)
    expected = alignment_of_queries(queries, modality, store, [rows] * 3)
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    assert progress.pieces == [("items", 60, 60)]
    assert alignment_with_all([], modality, store).shape == (0, 60)


@pytest.mark.parametrize("at_a_time", [1, 13])
def test_numpy_scores_a_bounded_number_of_tokens_at_a_time(
    monkeypatch: pytest.MonkeyPatch, at_a_time: int
) -> None:
    query, store = QUERY, make_store()
    whole = aladin_index.tokens.maxsim.numpy_alignment(query, "text", store, np.arange(60))
    monkeypatch.setattr(aladin_index.tokens.maxsim, "_TOKENS_AT_A_TIME", at_a_time)
    parts = aladin_index.tokens.maxsim.numpy_alignment(query, "text", store, np.arange(60))
    np.testing.assert_allclose(parts, whole, atol=1e-6)


@pytest.mark.skipif("native" not in ENGINES, reason="the native kernel is not compiled here")
def test_scoring_a_damaged_store_raises_index_corrupt() -> None:
    store = make_store("4bit")
    assert store.stored.centroid_ids is not None
    store.stored.centroid_ids[:] = 9999
    with pytest.raises(IndexCorruptError, match="centroid"):
        alignment_with_candidates(QUERY, "text", store, np.arange(60))
    with pytest.raises(IndexCorruptError, match="centroid"):
        alignment_with_all([QUERY], "text", store)
