from typing import Any

import numpy as np
import pytest

from aladin_index.tokens.codec import PackedTokens, TokenCodec
from aladin_network.errors import ConfigError, ShapeError
from aladin_network.types import TOKEN_DTYPES


def clustered(count: int, dim: int = 16, seed: int = 0) -> np.ndarray:
    """Unit tokens around a few directions."""
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(9).standard_normal((6, dim))
    tokens = centres[random.integers(0, 6, count)] + 0.4 * random.standard_normal((count, dim))
    return (tokens / np.linalg.norm(tokens, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize(("dtype", "error"), [("float16", 2e-4), ("int8", 2e-3), ("4bit", 0.02)])
def test_tokens_come_back(dtype: Any, error: float) -> None:
    tokens = clustered(600)
    codec = TokenCodec.train(dtype, tokens)
    packed = codec.pack(tokens)
    assert [array.dtype for array in packed if array is not None] == [
        array.dtype for array in codec.arrays
    ]
    size = sum(array.nbytes for array in packed if array is not None)
    assert size == codec.token_bytes * 600
    back = codec.unpack(packed)
    assert back.dtype == np.float32
    assert float(np.sqrt(np.square(back - tokens).mean())) < error


@pytest.mark.parametrize(("dtype", "size"), [("float16", 26), ("int8", 17), ("4bit", 13)])
def test_a_token_of_13_dimensions_takes(dtype: Any, size: int) -> None:
    assert TokenCodec.train(dtype, clustered(40, 13)).token_bytes == size


def test_int8_spends_its_range_on_each_token() -> None:
    packed = TokenCodec("int8", 2).pack(np.float32([[0.5, -1.0], [0.01, 0.002], [0, 0]]))
    assert packed.values.tolist() == [[64, -127], [127, 25], [0, 0]]
    assert packed.scales is not None
    np.testing.assert_allclose(packed.scales, [1 / 127, 0.01 / 127, 1])


@pytest.mark.parametrize("dtype", TOKEN_DTYPES)
def test_a_region_of_zeros_stays_one(dtype: Any) -> None:
    """The alignment head may give each image one; every word has to score 0 with it."""
    tokens = clustered(700)
    tokens[::35] = 0
    codec = TokenCodec.train(dtype, tokens, queries=clustered(300, seed=1))
    back = codec.unpack(codec.pack(tokens))
    np.testing.assert_allclose(back[::35], 0, atol=1e-6)
    assert float(np.linalg.norm(back, axis=1)[1:35].min()) > 0.8


@pytest.mark.parametrize("dtype", ["int8", "4bit"])
def test_known_queries_keep_scores_better(dtype: Any) -> None:
    tokens, queries = clustered(900), clustered(900, seed=1)
    plain = TokenCodec.train(dtype, tokens)
    knowing = TokenCodec.train(dtype, tokens, queries=queries[:300])
    errors = [
        np.square((tokens - codec.unpack(codec.pack(tokens))) @ queries[300:].T).mean()
        for codec in (plain, knowing)
    ]
    assert errors[1] < 0.75 * errors[0]
    assert knowing.token_bytes == plain.token_bytes


def test_a_sample_makes_one_codebook() -> None:
    sample = clustered(700)
    first, again = (TokenCodec.train("4bit", sample).centroids for _ in range(2))
    assert first is not None and again is not None
    # The largest power of 2 with 39 tokens a centroid.
    assert first.shape == (16, 16)
    np.testing.assert_array_equal(first, again)


def test_tokens_get_the_nearest_centroid() -> None:
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
    assert codec.centroids is not None
    assert len(codec.centroids) == 5
    for own, offset, part in zip(codecs, offsets, tokens, strict=True):
        packed = own.pack(part)
        assert packed.centroid_ids is not None
        moved = packed._replace(centroid_ids=packed.centroid_ids + np.uint16(offset))
        np.testing.assert_array_equal(codec.unpack(moved), own.unpack(packed))
    assert TokenCodec.concatenated([TokenCodec("int8", 4)] * 2)[1] == [0, 0]


def test_parts_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(ConfigError, match="int8 of 4 and int8 of 8"):
        TokenCodec.concatenated([TokenCodec("int8", 4), TokenCodec("int8", 8)])
    books = [np.full((2**15, 1), number, dtype=np.float32) for number in range(3)]
    with pytest.raises(ConfigError, match="at most 65536 centroids, got 98304"):
        TokenCodec.concatenated([TokenCodec("4bit", 1, book) for book in books])


def test_a_codebook_belongs_to_its_form() -> None:
    with pytest.raises(ConfigError, match="4bit tokens: expected a codebook, got none"):
        TokenCodec("4bit", 8)
    with pytest.raises(ConfigError, match="int8 tokens: expected no codebook, got one"):
        TokenCodec("int8", 8, np.zeros((1, 8), dtype=np.float32))
    with pytest.raises(ShapeError, match="8"):
        TokenCodec("4bit", 8, np.zeros((3, 7), dtype=np.float32))
    with pytest.raises(ConfigError, match="got none"):
        TokenCodec.train("4bit", np.zeros((0, 8), dtype=np.float32))


@pytest.mark.parametrize("dtype", TOKEN_DTYPES)
def test_no_tokens_are_packed_as_none(dtype: Any) -> None:
    codec = TokenCodec.train(dtype, clustered(50))
    packed = codec.pack(np.zeros((0, 16), dtype=np.float32))
    assert packed.count == 0
    assert codec.unpack(packed).shape == (0, 16)


def test_packed_tokens_are_taken_and_joined() -> None:
    packed = TokenCodec.train("4bit", clustered(60)).pack(clustered(60))
    parts = [packed.take(slice(0, 20)), packed.take(np.arange(20, 60))]
    joined = PackedTokens.concatenate(parts)
    for array, expected in zip(joined, packed, strict=True):
        np.testing.assert_array_equal(array, expected)
    assert PackedTokens.concatenate([PackedTokens(np.ones((1, 2)))] * 2).scales is None
