"""The native kernel against scores that are written out, on every path of this processor."""

from __future__ import annotations

import logging
import shutil

import numpy as np
import pytest
from numpy.typing import NDArray

from aladin_index import kernel as kernel_module
from aladin_index.kernel import Kernel, KernelError, NativeTokens, Queries, load_kernel
from aladin_index.tokens.codec import PackedTokens, TokenCodec
from aladin_index.tokens.store import TokenStore
from aladin_network.types import TOKEN_DTYPES, TokenDtype

LOADED = load_kernel()
PATHS = range(len(LOADED.paths) if LOADED else 0)


@pytest.fixture
def kernel() -> Kernel:
    """The compiled kernel, which an installation without a compiler does not have."""
    if LOADED is None:
        pytest.skip("the native kernel is not compiled here")
    return LOADED


def vectors(count: int, dim: int, seed: int) -> NDArray[np.float32]:
    """Random tokens about norm 1, some small and some large."""
    random = np.random.default_rng(seed)
    tokens = random.standard_normal((count, dim)) / np.sqrt(dim)
    return (tokens * random.uniform(0.2, 2, (count, 1))).astype(np.float32)


def make_store(dtype: TokenDtype, dim: int, lengths: list[int]) -> TokenStore:
    tokens = vectors(sum(lengths), dim, seed=1)
    codec = TokenCodec.train(dtype, tokens)
    return TokenStore.from_arrays(codec, codec.pack(tokens), lengths)


def by_loops(query: NDArray[np.float32], store: TokenStore, row: int, are_regions: bool) -> float:
    """Late interaction of the stored tokens, in float64 and word by word."""
    item = store.read(np.array([row])).values.astype(np.float64)
    words, regions = (item, query) if are_regions else (query, item)
    if len(words) == 0 or len(regions) == 0:
        return 0.0
    return sum(max(float(word @ region) for region in regions) for word in words)


def score(
    kernel: Kernel, store: TokenStore, query: NDArray[np.float32], are_regions: bool, path: int
) -> NDArray[np.float32]:
    rows = np.arange(store.count)[::-1].copy()
    queries = Queries([query], are_regions=are_regions)
    scores = kernel.score_rows(store.native, queries, rows, np.array([0, len(rows)]), path)
    return scores[::-1]


def test_an_installation_with_a_compiler_has_the_kernel() -> None:
    if shutil.which("cc") is None:
        pytest.skip("no compiler here")
    assert LOADED is not None
    assert LOADED.paths[-1] == "portable"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("are_regions", [False, True])
@pytest.mark.parametrize("dtype", TOKEN_DTYPES)
@pytest.mark.parametrize("dim", [1, 6, 37, 128, 768])
def test_scores_are_those_of_the_stored_tokens(
    kernel: Kernel, dtype: TokenDtype, dim: int, are_regions: bool, path: int
) -> None:
    # Tiles of 6 or 8 tokens, blocks of 8 or 16 words: below, at and above each.
    store = make_store(dtype, dim, [5, 0, 1, 6, 7, 8, 9, 17, 0])
    for words in (0, 1, 8, 9, 16, 17):
        query = vectors(words, dim, seed=2)
        scores = score(kernel, store, query, are_regions, path)
        expected = [by_loops(query, store, row, are_regions) for row in range(store.count)]
        # 16 bits a value of the query, or 15 at 768 dimensions; and float32.
        summed = 17 if are_regions else max(1, words)
        np.testing.assert_allclose(scores, expected, atol=2e-5 * summed, rtol=1e-5)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dim", [4, 128, 516, 1024])
def test_the_largest_sums_do_not_overflow(kernel: Kernel, dim: int, path: int) -> None:
    values = np.full((2, dim), 127, dtype=np.int8)
    values[1] = -127
    store = TokenStore.from_arrays(
        TokenCodec("int8", dim), PackedTokens(values, np.float32([1, 1])), [1, 1]
    )
    scores = score(kernel, store, np.full((1, dim), 0.75, dtype=np.float32), False, path)
    np.testing.assert_allclose(scores, [127 * 0.75 * dim, -127 * 0.75 * dim], rtol=1e-4)


@pytest.mark.parametrize("dtype", TOKEN_DTYPES)
def test_all_float16_and_int8_values_are_read(kernel: Kernel, dtype: TokenDtype) -> None:
    # One token a value: any of the form, subnormal ones included.
    if dtype == "float16":
        values = np.arange(2**16, dtype=np.uint16).view(np.float16)
        values = values[np.isfinite(values)][::7].reshape(-1, 1)
        packed = PackedTokens(values)
        codec = TokenCodec("float16", 1)
    else:
        bits = TokenCodec.train(dtype, np.ones((1, 4), dtype=np.float32)).bits
        kind = np.int8 if bits == 8 else np.uint8
        values = np.arange(256, dtype=np.uint8).astype(kind).reshape(-1, 1)
        count = len(values)
        book = None if bits == 8 else np.zeros((1, 8 // bits), dtype=np.float32)
        ids = None if bits == 8 else np.zeros(count, dtype=np.uint16)
        packed = PackedTokens(values, np.ones(count, dtype=np.float32), ids)
        codec = TokenCodec(dtype, 1 if bits == 8 else 8 // bits, book)
    store = TokenStore.from_arrays(codec, packed, [1] * packed.count)
    query = np.linspace(0.5, 2, codec.dim, dtype=np.float32)[None]
    expected = codec.unpack(packed).astype(np.float64) @ query[0].astype(np.float64)
    for path in PATHS:
        scores = score(kernel, store, query, False, path)
        np.testing.assert_allclose(
            scores, expected, rtol=3e-5, atol=1e-2 if dtype != "float16" else 0
        )


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", ["float16", "int8", "4bit"])
def test_a_range_is_scored_as_its_rows_for_every_query(
    kernel: Kernel, dtype: TokenDtype, path: int
) -> None:
    store = make_store(dtype, 20, [3, 0, 12, 1, 7])
    asked = [vectors(count, 20, seed=count) for count in (2, 0, 12, 19)]
    for are_regions in (False, True):
        together = np.full((4, 3), np.nan, dtype=np.float32)
        kernel.score_range(store.native, Queries(asked, are_regions=are_regions), 1, together, path)
        alone = [score(kernel, store, query, are_regions, path)[1:4] for query in asked]
        assert together.tolist() == np.array(alone).tolist()


@pytest.mark.parametrize("path", PATHS)
def test_several_queries_have_their_own_candidates(kernel: Kernel, path: int) -> None:
    store = make_store("int8", 16, [4, 2, 9])
    asked = [vectors(3, 16, seed=3), vectors(5, 16, seed=4), vectors(1, 16, seed=5)]
    scores = kernel.score_rows(
        store.native,
        Queries(asked, are_regions=False),
        np.array([2, 0, 1, 1]),
        np.array([0, 3, 3, 4]),
        path,
    )
    first, last = (score(kernel, store, asked[place], False, path) for place in (0, 2))
    assert scores.tolist() == [first[2], first[0], first[1], last[1]]


def test_rows_and_centroids_that_do_not_exist_are_refused(kernel: Kernel) -> None:
    store = make_store("4bit", 8, [3, 1])
    query = Queries([vectors(2, 8, seed=1)], are_regions=False)

    def ask(rows: list[int]) -> None:
        kernel.score_rows(store.native, query, np.array(rows), np.array([0, len(rows)]))

    for rows in ([2], [-1], [0, 2], [0, -1]):
        with pytest.raises(KernelError, match="row out of range") as raised:
            ask(rows)
        assert raised.value.is_row
    assert store.stored.centroid_ids is not None
    store.stored.centroid_ids[3] = 9
    ask([0])
    with pytest.raises(KernelError, match="centroid") as raised:
        ask([1])
    assert not raised.value.is_row
    store.offsets[1] = 5
    with pytest.raises(KernelError, match="offsets"):
        ask([0])
    with pytest.raises(KernelError, match="does not support the code path"):
        score(kernel, store, vectors(2, 8, seed=1), False, len(kernel.paths))


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("INTERFACE", None, "re-ranking with the native kernel"),
        ("INTERFACE", -1, "expected -1; install again"),
        ("LIBRARY_STEM", "_nothing", "was not compiled"),
    ],
)
def test_the_log_names_the_engine_and_why_a_library_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
    value: object,
    says: str,
) -> None:
    caplog.set_level(logging.DEBUG, logger="aladin_index.kernel")
    if value is not None:
        monkeypatch.setattr(kernel_module, name, value)
    assert (load_kernel.__wrapped__() is None) == (value is not None)
    assert says in caplog.messages[-1]


def test_tokens_are_not_copied() -> None:
    values = np.zeros((3, 4), dtype=np.int8)
    native = NativeTokens.of(values, None, None, None, np.array([0, 3]), 4, 8)
    assert native.values == values.ctypes.data
    assert (native.item_count, native.token_count, native.centroid_count) == (1, 3, 0)
