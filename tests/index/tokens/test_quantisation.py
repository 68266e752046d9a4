import numpy as np
import pytest

from aladin_index.kernel import load_kernel
from aladin_index.tokens import quantisation as rounding
from aladin_index.tokens.quantisation import (
    LEVELS,
    ErrorFeedback,
    code_bytes,
    dequantise,
    quantise,
    round_to_levels,
)

INT8 = np.arange(-127, 128, dtype=np.int8)


def queries(dim: int, seed: int = 0) -> np.ndarray:
    """Tokens with a large common part, and more spread in some directions than in others."""
    random = np.random.default_rng(seed)
    spread = random.standard_normal((400, dim)) * np.linspace(1, 0.05, dim)
    return (2 + spread).astype(np.float32) @ np.linalg.qr(random.standard_normal((dim, dim)))[
        0
    ].astype(np.float32)


def test_without_feedback_every_value_goes_to_its_nearest_level() -> None:
    values = np.float32([[-200, -83, -80, 0.1, 37, 200]])
    places = round_to_levels(values, np.float32([1]), LEVELS, None)
    assert LEVELS[places].tolist() == [[-127, -75, -75, 6, 31, 127]]
    places = round_to_levels(values * 2, np.float32([2]), INT8, None)
    assert INT8[places].tolist() == [[-127, -83, -80, 0, 37, 127]]


def test_the_second_of_two_dimensions_makes_up_for_the_first() -> None:
    # Queries are (1, 1) and nothing else: only the sum of a vector's values matters. 0.4 is
    # rounded to 0, and the second value, 0.4 as well, becomes 1: 0 + 1 is nearer to 0.8.
    feedback = ErrorFeedback.of(np.ones((10, 2), dtype=np.float32))
    np.testing.assert_allclose(feedback.rows, [[1, -1], [0, 1]], atol=0.02)
    places = round_to_levels(np.float32([[0.4, 0.4]]), np.float32([1]), INT8, feedback)
    assert INT8[places].tolist() == [[0, 1]]
    assert INT8[
        round_to_levels(np.float32([[0.4, 0.4]]), np.float32([1]), INT8, None)
    ].tolist() == [[0, 0]]


def test_the_metric_is_the_mean_square_of_errors_in_scores() -> None:
    sample = queries(12)
    errors = np.random.default_rng(1).standard_normal((5, 12)).astype(np.float32)
    feedback = ErrorFeedback.of(sample)
    expected = np.square(errors @ sample.T).mean(axis=1)
    # Damping adds a hundredth of what errors in all directions alike would make.
    expected += 0.01 * np.square(sample).sum(axis=1).mean() / 12 * np.square(errors).sum(axis=1)
    found = np.square(errors @ feedback.metric).sum(axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-3)


@pytest.mark.parametrize("levels", [LEVELS, INT8])
@pytest.mark.parametrize("known", [False, True])
def test_the_kernel_rounds_to_the_bit_as_numpy_does(
    monkeypatch: pytest.MonkeyPatch, levels: np.ndarray, known: bool
) -> None:
    if load_kernel() is None:
        pytest.skip("the native kernel is not compiled here")
    vectors = np.random.default_rng(3).standard_normal((201, 19)).astype(np.float32)
    scales = np.random.default_rng(4).uniform(0.005, 0.03, 201).astype(np.float32)
    feedback = ErrorFeedback.of(queries(19)) if known else None
    by_kernel = round_to_levels(vectors, scales, levels, feedback)
    monkeypatch.setattr(rounding, "load_kernel", lambda: None)
    np.testing.assert_array_equal(round_to_levels(vectors, scales, levels, feedback), by_kernel)


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
    normal = np.random.default_rng(0).standard_normal((500, dim)).astype(np.float32)
    vectors = normal * np.logspace(-3, 3, 500, dtype=np.float32)[:, None]
    codes, scales = quantise(vectors)
    assert codes.shape == (500, code_bytes(dim))
    errors = vectors - dequantise(codes, scales, dim)
    shares = np.square(errors).sum(axis=1) / np.square(vectors).sum(axis=1)
    # A scale of its own even gains a little on the known share of a normal distribution.
    assert 0.8 * 0.0095 < shares.mean() < 1.02 * 0.0095
    codes, scales = quantise(np.zeros((2, 6), dtype=np.float32))
    assert np.isfinite(scales).all()
    assert np.abs(dequantise(codes, scales, 6)).max() < 1e-30
