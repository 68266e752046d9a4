from __future__ import annotations

import numpy as np
import pytest

from aladin_index.upgrade.bridge import Bridge, fit_matrix, overlaps, pair_tokens, unit_rows
from aladin_network.scoring.encoding import Encoding


def vectors(count: int, dim: int, seed: int = 0) -> np.ndarray:
    return unit_rows(np.random.default_rng(seed).standard_normal((count, dim)))


@pytest.mark.parametrize("centred", [False, True])
def test_an_exact_linear_map_is_found(centred: bool) -> None:
    old = vectors(200, 6)
    matrix = np.random.default_rng(1).standard_normal((4, 6)).astype(np.float32)
    constant = np.array([1, -2, 0.5, 3], dtype=np.float32) if centred else 0
    found = fit_matrix(old, old @ matrix.T + constant, 1e-9, centred=centred)
    np.testing.assert_allclose(found, matrix, atol=1e-3)


def test_damping_keeps_the_matrix_small() -> None:
    old, new = vectors(30, 20), vectors(30, 5, seed=1)  # hardly more pairs than coordinates
    sizes = [np.linalg.norm(fit_matrix(old, new, each, centred=True)) for each in (1e-3, 1, 100)]
    assert sizes[0] > sizes[1] > sizes[2]


def test_a_query_orders_old_items_as_it_orders_their_new_encodings() -> None:
    """If the map is exact, the new model's order of the new embeddings is found by the old ones."""
    old = vectors(50, 8)
    rotation = np.linalg.qr(np.random.default_rng(2).standard_normal((8, 8)))[0]
    new = (old @ rotation.T).astype(np.float32)
    bridge = Bridge(fit_matrix(old, new, 1e-9, centred=False), None)
    query = vectors(1, 8, seed=3)
    asked = bridge.query(Encoding.of_item(query[0], vectors(3, 8)), token_dim=5)
    np.testing.assert_allclose(old @ asked.embedding[0], new @ query[0], atol=1e-4)
    assert asked.tokens.shape == (1, 0, 5)  # tokens have no bridge


def test_tokens_cross_by_their_own_matrix() -> None:
    tokens = np.diag([2, 1, 1]).astype(np.float32)
    bridge = Bridge(np.eye(2, dtype=np.float32), tokens)
    words = np.array([[1, 1, 0], [0, 0, 1]], dtype=np.float32)
    asked = bridge.query(Encoding.of_item(np.array([0, 3], dtype=np.float32), words), 3)
    np.testing.assert_allclose(asked.embedding, [[0, 1]])
    np.testing.assert_allclose(asked.tokens[0], [[2 / 5**0.5, 1 / 5**0.5, 0], [0, 0, 1]], atol=1e-6)


def test_overlaps_worked_by_hand() -> None:
    whole, left, right = (0, 0, 1, 1), (0, 0, 0.5, 1), (0.5, 0, 1, 1)
    expected = [[1, 0.5, 0.5], [0.5, 1, 0]]
    found = overlaps(np.array([whole, left]), np.array([whole, left, right]))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_region_is_paired_with_the_one_that_it_overlaps_most() -> None:
    old, new = [vectors(2, 3)], [vectors(4, 5)]
    halves = [(0.0, 0.0, 0.5, 1.0), (0.5, 0.0, 1.0, 1.0)]
    others = [(0.6, 0.0, 1.0, 1.0), (0.0, 0.0, 1.0, 1.0), (0.0, 0.0, 0.4, 1.0)]
    pairs = pair_tokens(old, new, [(halves, others)])  # the last new token is one of zeros
    assert pairs is not None
    np.testing.assert_array_equal(pairs.old, old[0])
    np.testing.assert_array_equal(pairs.new, new[0][[2, 0]])


def test_words_are_paired_where_there_are_as_many() -> None:
    lengths = [(3, 3), (2, 4), (1, 1)]
    old = [vectors(before, 3, seed) for seed, (before, _) in enumerate(lengths)]
    new = [vectors(after, 5, seed) for seed, (_, after) in enumerate(lengths)]
    pairs = pair_tokens(old, new, [((), ())] * 3)
    assert pairs is not None
    np.testing.assert_array_equal(pairs.old, np.concatenate([old[0], old[2]]))
    np.testing.assert_array_equal(pairs.new, np.concatenate([new[0], new[2]]))
    assert pair_tokens(old[:2], [new[1], new[0]], [((), ())] * 2) is None
