"""The engines of torch, run on the processor, against exact search and slow scores."""

import numpy as np
import pytest
import torch

from aladin_index.ann.exact_search import exact_search
from aladin_index.devices.torch_stages import TorchAlignment, TorchExact
from aladin_index.items.selection import Selection
from aladin_index.tokens.codec import TokenCodec
from aladin_index.tokens.maxsim import alignment_with_candidates
from aladin_index.tokens.store import TokenStore

CPU = torch.device("cpu")
RANDOM = np.random.default_rng(0)


def unit_vectors(count: int, dim: int = 24) -> np.ndarray:
    vectors = RANDOM.standard_normal((count, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_the_nearest_are_among_those_found(dtype: torch.dtype) -> None:
    vectors = unit_vectors(5000)
    engine = TorchExact(vectors, CPU, dtype)
    for query in unit_vectors(20):
        nearest, _ = exact_search(vectors, query, 100)
        found = engine.search(query, 100)
        assert len(found) == len(set(found)) == 126
        assert set(nearest) <= set(found)


def test_blocks_are_searched_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, query = unit_vectors(1000), unit_vectors(1)[0]
    whole = TorchExact(vectors, CPU, torch.float32).search(query, 50)
    monkeypatch.setattr("aladin_index.devices.torch_stages._ROWS_AT_A_TIME", 37)
    in_blocks = TorchExact(vectors, CPU, torch.float32).search(query, 50)
    assert set(in_blocks) == set(whole)


def test_only_allowed_rows_are_found() -> None:
    vectors, query = unit_vectors(1000), unit_vectors(1)[0]
    allowed = Selection.of_mask(RANDOM.random(1000) < 0.3)
    engine = TorchExact(vectors, CPU)
    nearest, _ = exact_search(vectors, query, 40, allowed)
    found = engine.search(query, 40, allowed)
    assert set(nearest) <= set(found)
    assert allowed.mask[found].all()
    few = Selection.of_mask(np.arange(1000) < 3)
    assert set(engine.search(query, 40, few)) == {0, 1, 2}


def store(dtype: str) -> TokenStore:
    lengths = RANDOM.integers(0, 9, 60)
    lengths[5] = 0
    tokens = unit_vectors(int(lengths.sum()))
    codec = TokenCodec.train(dtype, unit_vectors(3000))  # type: ignore[arg-type]
    return TokenStore.from_arrays(codec, codec.pack(tokens), lengths)


@pytest.mark.parametrize("dtype", ["float16", "int8", "4bit"])
@pytest.mark.parametrize("budget_bytes", [0, 2**30])
@pytest.mark.parametrize("modality", ["text", "image"])
def test_scores_are_the_second_stage_of_the_processor(
    dtype: str, budget_bytes: int, modality: str
) -> None:
    tokens = store(dtype)
    engine = TorchAlignment(tokens, CPU, budget_bytes)
    assert engine.is_resident == (budget_bytes > 0 and dtype != "4bit")
    query = unit_vectors(6)
    rows = RANDOM.permutation(60)[:41]
    rows[7] = 5  # without tokens
    expected = [slow_score(query, modality, tokens.read(np.array([row])).values) for row in rows]
    np.testing.assert_allclose(engine.align(query, modality, rows), expected, atol=2e-5)
    processor = alignment_with_candidates(query, modality, tokens, rows)
    np.testing.assert_allclose(engine.align(query, modality, rows), processor, atol=0.02)


def slow_score(query: np.ndarray, modality: str, tokens: np.ndarray) -> float:
    words, regions = (query, tokens) if modality == "text" else (tokens, query)
    if len(words) == 0 or len(regions) == 0:
        return 0.0
    return float(sum(max(word @ region for region in regions) for word in words))


def test_nothing_to_score() -> None:
    engine = TorchAlignment(store("int8"), CPU, 2**30)
    query = unit_vectors(3)
    assert engine.align(query, "text", np.empty(0, dtype=np.int64)).shape == (0,)
    np.testing.assert_array_equal(engine.align(query[:0], "text", np.arange(4)), np.zeros(4))
    no_tokens = np.array([5, 5])
    np.testing.assert_array_equal(engine.align(query, "image", no_tokens), np.zeros(2))


def test_the_budget_is_kept() -> None:
    tokens = store("int8")
    size = tokens.stored.count * (24 + 4)
    assert TorchAlignment(tokens, CPU, size).is_resident
    assert not TorchAlignment(tokens, CPU, size - 1).is_resident
