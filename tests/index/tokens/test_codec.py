"""Every form of stored tokens: what comes back, its size, joined and refused codebooks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aladin_index.tokens.codec import PackedTokens, TokenCodec
from aladin_network.errors import ConfigError, ShapeError
from aladin_network.types import TOKEN_DTYPES

# By form: the error, and the bytes of a token of 13 dimensions.
FORMS = {"float16": (2e-4, 26), "int8": (2e-3, 17), "4bit": (0.02, 13)}


def clustered(count: int, dim: int = 16, seed: int = 0) -> np.ndarray:
    """Unit tokens around a few directions."""
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(9).standard_normal((6, dim))
    tokens = centres[random.integers(0, 6, count)] + 0.4 * random.standard_normal((count, dim))
    return (tokens / np.linalg.norm(tokens, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("dtype", TOKEN_DTYPES)
def test_tokens_come_back_from_the_bytes_of_their_form(dtype: Any) -> None:
    error, small = FORMS[dtype]
    tokens = clustered(700)
    tokens[::35] = 0  # the alignment head may give each photo a region of zeros, which stays one
    codec = TokenCodec.train(dtype, tokens, queries=clustered(300, seed=1))
    packed = codec.pack(tokens)
    arrays = [array for array in packed if array is not None]
    assert [array.dtype for array in arrays] == [array.dtype for array in codec.arrays]
    assert sum(array.nbytes for array in arrays) == codec.token_bytes * 700
    assert TokenCodec.train(dtype, clustered(40, 13)).token_bytes == small
    back = codec.unpack(packed)
    assert back.dtype == np.float32
    np.testing.assert_allclose(back[::35], 0, atol=1e-6)
    assert float(np.linalg.norm(back, axis=1)[1:35].min()) > 0.8
    plain = TokenCodec.train(dtype, clustered(600))
    found = plain.unpack(plain.pack(clustered(600)))
    assert float(np.sqrt(np.square(found - clustered(600)).mean())) < error
    nothing = codec.pack(np.zeros((0, 16), dtype=np.float32))
    assert (nothing.count, codec.unpack(nothing).shape) == (0, (0, 16))
    parts = [packed.take(slice(0, 20)), packed.take(np.arange(20, 700))]
    for array, expected in zip(PackedTokens.concatenate(parts), packed, strict=True):
        np.testing.assert_array_equal(array, expected)


def test_int8_spends_its_range_on_each_token() -> None:
    packed = TokenCodec("int8", 2).pack(np.float32([[0.5, -1.0], [0.01, 0.002], [0, 0]]))
    assert packed.values.tolist() == [[64, -127], [127, 25], [0, 0]]
    assert packed.scales is not None
    np.testing.assert_allclose(packed.scales, [1 / 127, 0.01 / 127, 1])


@pytest.mark.parametrize("dtype", ["int8", "4bit"])
def test_known_queries_keep_scores_better(dtype: Any) -> None:
    tokens, queries = clustered(900), clustered(900, seed=1)
    codecs = [TokenCodec.train(dtype, tokens, queries=each) for each in (None, queries[:300])]
    errors = [
        np.square((tokens - codec.unpack(codec.pack(tokens))) @ queries[300:].T).mean()
        for codec in codecs
    ]
    assert errors[1] < 0.75 * errors[0]
    assert codecs[0].token_bytes == codecs[1].token_bytes


def test_a_sample_makes_one_codebook_and_tokens_get_its_nearest_centroid() -> None:
    first, again = (TokenCodec.train("4bit", clustered(700)).centroids for _ in range(2))
    assert first is not None and again is not None
    assert first.shape == (16, 16)  # the largest power of 2 with 39 tokens a centroid
    np.testing.assert_array_equal(first, again)
    codec = TokenCodec("4bit", 2, np.float32([[1, 0], [0, 1], [-1, -1]]))
    packed = codec.pack(np.float32([[0.9, 0.2], [-3, 0], [0.4, 0.6]]))
    assert packed.centroid_ids is not None
    assert packed.centroid_ids.tolist() == [0, 2, 1]


def test_codebooks_of_parts_become_one() -> None:
    tokens = [clustered(200, seed=seed) for seed in range(3)]
    codecs = [TokenCodec.train("4bit", tokens[0]), TokenCodec.train("4bit", tokens[1][:50])]
    codecs.append(TokenCodec("4bit", 16, np.array(codecs[0].centroids)))
    codec, offsets = TokenCodec.concatenated(codecs)
    assert offsets == [0, 4, 0]
    assert codec.centroids is not None and len(codec.centroids) == 5
    for own, offset, part in zip(codecs, offsets, tokens, strict=True):
        packed = own.pack(part)
        assert packed.centroid_ids is not None
        moved = packed._replace(centroid_ids=packed.centroid_ids + np.uint16(offset))
        np.testing.assert_array_equal(codec.unpack(moved), own.unpack(packed))
    assert TokenCodec.concatenated([TokenCodec("int8", 4)] * 2)[1] == [0, 0]


def test_parts_and_codebooks_that_do_not_go_together_are_refused() -> None:
    def book(rows: int, dim: int, value: int = 0) -> np.ndarray:
        return np.full((rows, dim), value, dtype=np.float32)

    many = [TokenCodec("4bit", 1, book(2**15, 1, number)) for number in range(3)]
    for make, message in (
        (
            lambda: TokenCodec.concatenated([TokenCodec("int8", 4), TokenCodec("int8", 8)]),
            "int8 of 4 and int8 of 8",
        ),
        (lambda: TokenCodec.concatenated(many), "at most 65536 centroids, got 98304"),
        (lambda: TokenCodec("4bit", 8), "4bit tokens: expected a codebook, got none"),
        (lambda: TokenCodec("int8", 8, book(1, 8)), "int8 tokens: expected no codebook, got one"),
        (lambda: TokenCodec("4bit", 8, book(3, 7)), "8"),
        (lambda: TokenCodec.train("4bit", book(0, 8)), "got none"),
    ):
        with pytest.raises((ConfigError, ShapeError), match=message):
            make()
