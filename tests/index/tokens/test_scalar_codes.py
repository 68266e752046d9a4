import numpy as np
import pytest

from aladin_index.tokens.quantisation import LEVELS, code_bytes, dequantise, quantise


def normal_vectors(count: int, dim: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((count, dim)).astype(np.float32)


def test_levels_are_those_of_lloyd_and_max() -> None:
    # A level is the mean of the normally distributed values that are nearest to it.
    values = np.random.default_rng(0).standard_normal(400_000)
    levels = LEVELS.astype(float)
    assert levels.tolist() == (-levels[::-1]).tolist()
    levels *= 2.7326 / 127
    nearest = np.abs(values[:, None] - levels).argmin(axis=1)
    means = [values[nearest == place].mean() for place in range(16)]
    np.testing.assert_allclose(means, levels, atol=0.02)


def test_codes_lie_in_the_order_of_the_dimensions() -> None:
    # Two sizes alike have the level of one standard deviation, 44: places 4 and 11.
    vector = np.float32([[-88, 88, 88]])
    codes, scales = quantise(vector)
    assert codes.tolist() == [[4 + (11 << 4), 11]]
    np.testing.assert_allclose(scales, [2], rtol=1e-6)
    np.testing.assert_allclose(dequantise(codes, scales, 3), vector, rtol=1e-6)
    # The first of two codes is in the lower half of the byte; the last half is filled.
    found = dequantise(np.uint8([[0x5F, 0x07]]), np.float32([2]), 3)
    assert found.tolist() == [[2 * 127, 2 * -31, 2 * -6]]


@pytest.mark.parametrize("dim", [61, 128])
def test_the_error_is_that_of_the_best_quantiser(dim: int) -> None:
    vectors = normal_vectors(500, dim) * np.logspace(-3, 3, 500, dtype=np.float32)[:, None]
    codes, scales = quantise(vectors)
    assert codes.shape == (500, code_bytes(dim))
    errors = vectors - dequantise(codes, scales, dim)
    shares = np.square(errors).sum(axis=1) / np.square(vectors).sum(axis=1)
    # A scale of its own even gains a little on the known share of a normal distribution.
    assert 0.8 * 0.0095 < shares.mean() < 1.02 * 0.0095


def test_a_vector_of_zeros_stays_one() -> None:
    codes, scales = quantise(np.zeros((2, 6), dtype=np.float32))
    assert np.isfinite(scales).all()
    assert np.abs(dequantise(codes, scales, 6)).max() < 1e-30
