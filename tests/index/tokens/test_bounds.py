"""Bounds of alignment scores, and the exact best items by them, against scoring everything."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import aladin_index.tokens.bounds
from aladin_index.kernel import load_kernel
from aladin_index.kernel.structures import NativeShorts, ShortQuery
from aladin_index.tokens.bounds import ShortTokens, TokenBounds, score_best
from aladin_index.tokens.codec import TokenCodec
from aladin_index.tokens.lazy_bounds import LazyBounds, query_sample
from aladin_index.tokens.maxsim import alignment_with_all, numpy_alignment
from aladin_index.tokens.short_form import BoundTransform, kept_dimensions
from aladin_index.tokens.store import TokenStore
from aladin_network.types import TOKEN_DTYPES, Modality, TokenDtype

KERNEL = load_kernel()
PATHS = range(len(KERNEL.paths) if KERNEL else 0)
Scores = NDArray[np.float32]


def clustered(count: int, dim: int, seed: int) -> NDArray[np.float32]:
    """Vectors of decreasing variance around a common mean, as those of a network."""
    random = np.random.default_rng([seed, dim])
    basis = np.linalg.qr(np.random.default_rng(dim).standard_normal((dim, dim)))[0]
    spread = 0.9 ** np.arange(dim)
    values = 0.3 + random.standard_normal((count, dim)) * spread
    vectors = values @ basis
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def make_store(tokens: NDArray[np.float32], lengths: list[int], dtype: TokenDtype) -> TokenStore:
    codec = TokenCodec.train(dtype, tokens)
    return TokenStore.from_arrays(codec, codec.pack(tokens), lengths)


LENGTHS = np.random.default_rng(0).integers(0, 12, 150).tolist()


def in_float64(query: NDArray[np.float32], modality: Modality, store: TokenStore) -> Scores:
    """Scores of all items, written out."""
    scores: list[float] = []
    for row in range(store.count):
        item = store.read(np.array([row])).values.astype(np.float64)
        products = query.astype(np.float64) @ item.T  # (query tokens, tokens)
        if products.size == 0:
            scores.append(0.0)
        else:
            scores.append(products.max(axis=1 if modality == "text" else 0).sum())
    return np.array(scores, dtype=np.float32)


@pytest.mark.parametrize("modality", ["text", "image"])
@pytest.mark.parametrize("dtype", TOKEN_DTYPES)
@pytest.mark.parametrize("dim", [3, 20, 128])
def test_no_score_is_above_its_bound(dim: int, dtype: TokenDtype, modality: Modality) -> None:
    # At most three dimensions have no rest; 20 and 128 are cut.
    store = make_store(clustered(sum(LENGTHS), dim, 1), LENGTHS, dtype)
    sample = clustered(500, dim, 2)
    for known in (sample, None):
        bounds = TokenBounds.build(store, known, are_texts=modality == "image")
        for place, words in enumerate((1, 16, 17, 40)):
            asked = clustered(words, dim, 3 + place)
            if place % 2:
                asked = -asked  # all cosines with the items are negative
            query = asked
            upper = bounds.upper(query, modality)
            rows = np.arange(store.count, dtype=np.int64)
            for scores in (
                alignment_with_all([query], modality, store)[0],
                numpy_alignment(query, modality, store, rows),
                in_float64(asked, modality, store),
            ):
                assert (upper >= scores).all()
            # A bound, not a number above everything.
            assert np.median(upper - alignment_with_all([query], modality, store)[0]) < 0.7 * words
            assert (upper[np.array(LENGTHS) == 0] == 0).all()


@pytest.mark.parametrize("scale", [1e-20, 1e-3, 1e4, 1e15])
def test_bounds_hold_for_tokens_of_any_length(scale: float) -> None:
    random = np.random.default_rng(0)
    tokens = clustered(300, 32, 1) * random.uniform(0, 3, (300, 1)).astype(np.float32)
    tokens[::7] = 0  # tokens without a direction
    store = make_store((tokens * np.float32(scale)).astype(np.float32), [3] * 100, "int8")
    bounds = TokenBounds.build(store, None, are_texts=False)
    for factor in (0, 1e-20, 1, 1e10):
        query = clustered(5, 32, 2) * factor
        upper = bounds.upper(query, "text")
        assert (upper >= alignment_with_all([query], "text", store)[0]).all()
        assert not np.isnan(upper).any()
    upper = bounds.upper(np.empty((0, 32), np.float32), "text")
    assert (upper >= 0).all() and (upper < 1e-6 * max(scale, 1)).all()


def test_the_transform_keeps_inner_products_and_balances_variances() -> None:
    items, queries = clustered(4000, 24, 1), clustered(4000, 24, 9)[:, ::-1].copy()
    transform = BoundTransform.fit(items, queries, centred=True)
    assert (transform.kept, transform.width) == (kept_dimensions(24), 16)
    moved = (items - transform.mean) @ transform.of_items
    asked = queries @ transform.of_queries
    expected = queries[:50].astype(np.float64) @ (items[:50] - transform.mean).T
    np.testing.assert_allclose(asked[:50] @ moved[:50].T, expected, atol=1e-9)
    of_items, of_queries = np.square(moved).mean(axis=0), np.square(asked).mean(axis=0)
    np.testing.assert_allclose(of_items, of_queries, rtol=0.05)
    assert (np.diff(of_items) <= 0).all()


@pytest.mark.parametrize("without_kernel", [False, True])
@pytest.mark.parametrize("modality", ["text", "image"])
def test_the_best_items_are_those_of_scoring_everything(
    modality: Modality, without_kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if without_kernel:
        monkeypatch.setattr(aladin_index.tokens.bounds, "load_kernel", lambda: None)
    random = np.random.default_rng(5)
    lengths = random.integers(0, 6, 1500)
    tokens = clustered(int(lengths.sum()), 64, 1)
    # Every fifth item repeats another one: equal scores at every rank.
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    for row in range(5, 1500, 5):
        if lengths[row] == lengths[row - 1]:
            tokens[offsets[row] : offsets[row + 1]] = tokens[offsets[row - 1] : offsets[row]]
    store = make_store(tokens, lengths.tolist(), "int8")
    bounds = TokenBounds.build(store, clustered(500, 64, 2), are_texts=modality == "image")
    scored: list[int] = []
    for seed in range(6):
        query = clustered(9, 64, 10 + seed) * (-1 if seed == 5 else 1)
        scores = alignment_with_all([query], modality, store)[0]
        for count in (1, 10, 200, 1500, 2000):
            found = score_best(bounds.upper(query, modality), lambda rows: scores[rows], count)  # noqa: B023
            order = np.lexsort((found.rows, -found.keys))[:count]
            expected = np.argsort(-scores, kind="stable")[:count]
            assert found.rows[order].tolist() == expected.tolist()
            assert found.keys[order].tolist() == scores[expected].tolist()
            if count == 10:
                scored.append(len(found.rows))
    if modality == "text":
        assert np.mean(scored) < 750  # of 1,500


def test_what_a_bound_allows_is_scored_once_and_nothing_else() -> None:
    scores = np.zeros(3000, dtype=np.float32)
    scores[[5, 2999]] = 1
    upper = scores + np.float32(0.5)
    upper[7] = -np.inf  # excluded by a filter
    found = score_best(upper, lambda rows: scores[rows], 3)  # all others are as good
    assert sorted(found.rows.tolist()) == [row for row in range(3000) if row != 7]
    tight = score_best(scores, lambda rows: scores[rows], 2)
    assert set(tight.rows[tight.keys == 1].tolist()) == {5, 2999}
    nothing = np.full(4, -np.inf, dtype=np.float32)
    found = score_best(nothing, lambda rows: nothing[rows], 3)
    assert len(found.rows) == len(found.keys) == 0
    falling = np.sort(np.random.default_rng(0).standard_normal(20_000).astype(np.float32))[::-1]
    seen: list[int] = []

    def score(rows: NDArray[np.int64]) -> Scores:
        seen.extend(rows.tolist())
        return falling[rows]

    score_best(falling + np.float32(1e-6), score, 10)
    assert len(seen) == len(set(seen)) == 64  # the first block; no other item can be among ten


def test_a_sample_of_queries_is_spread_over_the_items() -> None:
    tokens = clustered(60, 8, 1)
    store = make_store(tokens, [3] * 20, "float16")
    sample = query_sample(store)
    assert sample is not None and sample.shape == (60, 8)
    assert query_sample(make_store(tokens, [60] + [0] * 3, "float16")) is not None
    empty = TokenStore.from_arrays(store.codec, store.stored.take(slice(0, 0)), [])
    assert query_sample(empty) is None


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("are_regions", [False, True])
@pytest.mark.parametrize("width", [4, 16, 48, 92])
def test_short_tokens_are_scored_exactly_on_every_path(
    path: int, are_regions: bool, width: int
) -> None:
    assert KERNEL is not None
    random = np.random.default_rng([width, are_regions])
    offsets = np.cumsum([0, 5, 0, 1, 8, 9, 49, 0])
    values = random.integers(1, 256, (offsets[-1], width)).astype(np.uint8)
    values[0], values[5] = 255, 1
    scales = random.uniform(0.5, 2, 7).astype(np.float32)
    short = ShortTokens(values, scales, scales, offsets)
    for words in (0, 1, 8, 9, 16, 17, 33):
        largest = KERNEL.short_largest[path]
        asked = random.integers(-largest, largest + 1, (words, width)).astype(np.int8)
        if words:
            asked[0] = largest
        query = ShortQuery(asked, np.full(words, 0.5, dtype=np.float32), are_regions=are_regions)
        scores = np.full(5, np.nan, dtype=np.float32)
        KERNEL.bound_range(short.native, query, 2, scores, path)
        some = np.array([6, 2, 2, 4, 3], dtype=np.int64)
        by_rows = KERNEL.bound_rows(short.native, query, some, path)
        assert by_rows.tolist() == scores[some - 2].tolist()
        products = asked.astype(np.int64) @ (values.astype(np.int64) - 128).T
        expected: list[float] = []
        for row in range(2, 7):
            own = products[:, offsets[row] : offsets[row + 1]]
            best = own.max(axis=0 if are_regions else 1).sum() if own.size else 0
            expected.append(0.5 * float(best) * float(scales[row]))
        np.testing.assert_allclose(scores, expected, rtol=1e-6)


def one_value(value: int) -> ShortQuery:
    """A short query of one token of eight dimensions, of which the last is a value."""
    values = np.zeros((1, 8), dtype=np.int8)
    values[0, -1] = value
    return ShortQuery(values, np.ones(1, dtype=np.float32), are_regions=False)


def test_short_tokens_that_are_not_there_are_refused() -> None:
    if KERNEL is None:
        pytest.skip("the native kernel is not compiled here")
    values = np.full((6, 8), 128, dtype=np.uint8)
    offsets, scales = np.array([0, 2, 6]), np.ones(2, dtype=np.float32)
    query = ShortQuery(np.ones((1, 8)), np.ones(1), are_regions=False)  # pyright: ignore[reportArgumentType]
    scores = np.empty(2, dtype=np.float32)
    with pytest.raises(Exception, match="row out of range"):
        KERNEL.bound_range(NativeShorts.of(values, scales, offsets), query, 1, scores)
    broken = np.array([0, 4, 2])
    with pytest.raises(Exception, match="offsets"):
        KERNEL.bound_range(NativeShorts.of(values, scales, broken), query, 0, scores)
    narrow = NativeShorts.of(np.ascontiguousarray(values[:, :6]), scales, offsets)
    with pytest.raises(Exception, match="width"):
        KERNEL.bound_range(narrow, query, 0, scores)
    native = NativeShorts.of(values, scales, offsets)
    for rows in ([0, 2], [-1]):
        with pytest.raises(Exception, match="row out of range"):
            KERNEL.bound_rows(native, query, np.array(rows))
    for path, largest in enumerate(KERNEL.short_largest):
        for value in (-largest, largest):
            KERNEL.bound_range(native, one_value(value), 0, scores, path)
        if largest < 127:
            for value in (-largest - 1, largest + 1):
                with pytest.raises(Exception, match="larger than this path multiplies"):
                    KERNEL.bound_range(native, one_value(value), 0, scores, path)
    with pytest.raises(Exception, match="does not support the code path"):
        KERNEL.bound_range(NativeShorts.of(values, scales, offsets), query, 0, scores, 99)


@pytest.mark.parametrize("without_kernel", [False, True])
def test_bounds_of_some_items_are_those_of_all(
    without_kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if without_kernel:
        monkeypatch.setattr(aladin_index.tokens.bounds, "load_kernel", lambda: None)
    tokens = clustered(3000, 16, 1)
    lengths = np.random.default_rng(1).multinomial(3000, np.ones(600) / 600).tolist()
    lazy = LazyBounds(make_store(tokens, lengths, "4bit"), None, are_texts=False)
    query = clustered(7, 16, 2)
    rows = np.random.default_rng(0).permutation(600)[:500]
    assert lazy.of_candidates(query, "text", rows) is None  # not computed yet
    expected = lazy.get().upper(query, "text")[rows]
    found = lazy.of_candidates(query, "text", rows)
    assert found is not None and found.tolist() == expected.tolist()
