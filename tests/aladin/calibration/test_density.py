"""Novelty: the mean squared deviation of a query from the known ones, by a normal distribution."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from aladin_network.calibration.density import fit_density

DIM = 12
EVERY = np.ones(400, dtype=np.bool_)
PHOTOS = np.arange(400) // 4


def drawn(count: int, seed: int = 0) -> NDArray[np.float32]:
    """Vectors that vary most along the first dimensions."""
    deviations = np.array([0.5, 0.4, 0.3, 0.3, 0.2, 0.2, *[0.05] * (DIM - 6)])
    normal = np.random.default_rng(seed).normal(size=(count, DIM))
    return (0.1 + deviations * normal).astype(np.float32)


def test_novelty_is_the_mahalanobis_distance_of_the_fitted_covariance() -> None:
    density = fit_density(drawn(400), PHOTOS, EVERY).density
    kept = len(density.variances)
    assert kept == DIM // 2
    known = drawn(400).astype(np.float64)
    mean = known.mean(axis=0)
    variances, axes = np.linalg.eigh(np.cov(known.T, bias=True))
    variances[:-kept] = variances[:-kept].mean()
    inverse = np.linalg.inv(axes @ np.diag(variances) @ axes.T)
    asked = drawn(20, seed=1)
    apart = asked - mean
    expected = np.log(np.einsum("nd,de,ne->n", apart, inverse, apart) / DIM)
    assert density.novelty(asked) == pytest.approx(expected, abs=0.02)  # stored as float16
    assert abs(density.novelty(drawn(400)).mean()) < 0.2


def test_what_lies_outside_of_the_known_directions_is_novel() -> None:
    density = fit_density(drawn(400), PHOTOS, EVERY).density
    asked = drawn(2, seed=1)
    asked[1, -1] += 1
    like, unlike = density.novelty(asked)
    assert unlike > like + 2


def test_a_query_is_judged_by_the_queries_of_other_photos() -> None:
    """Without that, a query is known by itself."""
    embeddings = drawn(400)
    own = PHOTOS == 7
    embeddings[own, -1] += 3
    fitted = fit_density(embeddings, PHOTOS, EVERY)
    assert (fitted.novelty[own] > fitted.density.novelty(embeddings[own]) + 1).all()


def test_unknown_queries_do_not_count() -> None:
    known = PHOTOS % 2 == 0
    embeddings = drawn(400)
    changed = np.where(known[:, np.newaxis], embeddings, 5)
    ours, theirs = (fit_density(each, PHOTOS, known).density for each in (embeddings, changed))
    assert ours == theirs


def test_vectors_of_another_size_are_refused() -> None:
    density = fit_density(drawn(400), PHOTOS, EVERY).density
    with pytest.raises(ValueError, match="vectors: expected 168 bytes, found 3"):
        replace(density, vectors="AAAA")
    with pytest.raises(ValueError, match="vectors: expected Base64"):
        replace(density, vectors="é")
