import numpy as np
import pytest

from aladin_index.tokens.quantisation import LEVELS, Bits, code_bytes, dequantise, quantise


def normal_vectors(count: int, dim: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((count, dim)).astype(np.float32)


@pytest.mark.parametrize("bits", [2, 4])
def test_levels_are_those_of_lloyd_and_max(bits: Bits) -> None:
    # A level is the mean of the normally distributed values that are nearest to it.
    values = np.random.default_rng(0).standard_normal(400_000)
    levels = LEVELS[bits].astype(float)
    assert levels.tolist() == (-levels[::-1]).tolist()
    levels *= {2: 1.5104, 4: 2.7326}[bits] / 127
    nearest = np.abs(values[:, None] - levels).argmin(axis=1)
    means = [values[nearest == place].mean() for place in range(2**bits)]
    np.testing.assert_allclose(means, levels, atol=0.02)


def test_codes_lie_in_the_order_of_the_dimensions() -> None:
    # Values that are levels themselves, of scale 1: places 0, 3, 1, 2 and again 3.
    vector = np.float32([[-127, 127, -38, 38, 127]])
    codes, scales = quantise(vector, 2)
    assert codes.tolist() == [[0 + (3 << 2) + (1 << 4) + (2 << 6), 3]]
    np.testing.assert_allclose(scales, [1], rtol=1e-6)
    np.testing.assert_allclose(dequantise(codes, scales, 5, 2), vector, rtol=1e-6)
    # Two codes a byte, the first in the lower half: places 15, 5 and 7, the last half is filled.
    found = dequantise(np.uint8([[0x5F, 0x07]]), np.float32([2]), 3, 4)
    assert found.tolist() == [[2 * 127, 2 * -31, 2 * -6]]


@pytest.mark.parametrize(("bits", "lost"), [(2, 0.1175), (4, 0.0095)])
@pytest.mark.parametrize("dim", [61, 128])
def test_the_error_is_that_of_the_best_quantiser(bits: Bits, lost: float, dim: int) -> None:
    vectors = normal_vectors(500, dim) * np.logspace(-3, 3, 500, dtype=np.float32)[:, None]
    codes, scales = quantise(vectors, bits)
    assert codes.shape == (500, code_bytes(dim, bits))
    errors = vectors - dequantise(codes, scales, dim, bits)
    shares = np.square(errors).sum(axis=1) / np.square(vectors).sum(axis=1)
    # A scale of its own even gains a little on the known share of a normal distribution.
    assert 0.8 * lost < shares.mean() < 1.02 * lost


@pytest.mark.parametrize("bits", [2, 4])
def test_a_vector_of_zeros_stays_one(bits: Bits) -> None:
    codes, scales = quantise(np.zeros((2, 6), dtype=np.float32), bits)
    assert np.isfinite(scales).all()
    assert np.abs(dequantise(codes, scales, 6, bits)).max() < 1e-30
