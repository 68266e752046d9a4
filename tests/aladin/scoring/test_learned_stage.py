"""The fitted first stage against the alignment itself, and against loops."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from aladin_network.errors import ConfigError, IndexCorruptError, ShapeError
from aladin_network.scoring.learned_stage import LearnedStage, fit_learned_stage
from aladin_network.scoring.token_rows import TokenRows

DIM = 8


def items(count: int, seed: int, most: int = 5) -> TokenRows:
    """Tokens near a direction of their item, as words of one text or regions of one photo are."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, most + 1, count)
    own = np.repeat(random.standard_normal((count, DIM)), lengths, axis=0)
    values = own + 0.5 * random.standard_normal(own.shape)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    return TokenRows(values.astype(np.float32), lengths)


def items_of(rows: TokenRows) -> list[np.ndarray]:
    return np.split(rows.values, np.cumsum(rows.lengths)[:-1])


def alignment(texts: TokenRows, photos: TokenRows) -> np.ndarray:
    regions = items_of(photos)
    return np.array(
        [
            [sum(float((of_photo @ word).max()) for word in words) for of_photo in regions]
            for words in items_of(texts)
        ]
    )


@pytest.fixture(scope="module")
def stage() -> LearnedStage:
    return fit_learned_stage(items(300, seed=0), items(400, seed=1), 32, bank=1000)


def test_products_order_photos_and_texts_that_were_never_seen_as_the_alignment_does(
    stage: LearnedStage,
) -> None:
    photos, texts = items(200, seed=2), items(60, seed=3)
    exact = alignment(texts, photos)
    fitted = stage.query_vectors(texts) @ stage.photo_vectors(photos).T
    correlations = [np.corrcoef(*pair)[0, 1] for pair in zip(exact, fitted, strict=True)]
    assert np.mean(correlations) > 0.97
    best = np.argsort(-exact, axis=1)[:, :5]
    ranks = np.argsort(np.argsort(-fitted, axis=1), axis=1)
    assert np.mean(np.take_along_axis(ranks, best, axis=1) < 20) > 0.95


def test_more_values_approximate_better(stage: LearnedStage) -> None:
    photos, texts = items(200, seed=2), items(60, seed=3)
    exact = alignment(texts, photos)
    exact -= exact.mean(axis=1, keepdims=True)
    coarse = fit_learned_stage(items(300, seed=0), items(400, seed=1), 4, bank=1000)
    # The same inputs give the same fit; the first values are the most important ones.
    np.testing.assert_array_equal(coarse.words, stage.words)
    np.testing.assert_allclose(coarse.reduction, stage.reduction[:, :4], rtol=1e-5, atol=1e-6)
    errors = []
    for fit in (coarse, stage):
        fitted = fit.query_vectors(texts) @ fit.photo_vectors(photos).T
        errors.append(np.std(fitted - fitted.mean(axis=1, keepdims=True) - exact))
    assert errors[1] < 0.8 * errors[0]


def test_a_small_bank_is_corrected_to_the_vectors_of_all_words(stage: LearnedStage) -> None:
    small = fit_learned_stage(items(300, seed=0), items(400, seed=1), 32, bank=100)
    np.testing.assert_array_equal(small.words, stage.words[:100])
    np.testing.assert_array_equal(small.reduction, stage.reduction)
    features = small.query_vectors(TokenRows(small.words, np.ones(100, dtype=np.int64)))
    moments = features.T @ features
    penalty = 1e-3 * moments.diagonal().mean() * np.eye(32)
    alone = np.linalg.solve(moments + penalty, features.T)
    photos = items(200, seed=2)
    wanted = stage.photo_vectors(photos)
    cosines = np.array([[(of @ word).max() for word in small.words] for of in items_of(photos)])
    by_hundred, corrected = cosines @ alone.T, small.photo_vectors(photos)
    lost = [
        np.square(found - found.mean(axis=0) - wanted + wanted.mean(axis=0)).sum()
        for found in (by_hundred, corrected)
    ]
    assert lost[1] < 0.7 * lost[0]
    # Over the sampled photos, which both fits subtract the mean of.
    sampled = small.photo_vectors(items(300, seed=0))
    np.testing.assert_allclose(sampled.mean(axis=0), 0, atol=1e-4)


def test_a_text_is_the_sum_of_its_words_and_a_photo_depends_on_itself_alone(
    stage: LearnedStage,
) -> None:
    texts, photos = items(5, seed=4), items(7, seed=5)
    for text, words in zip(stage.query_vectors(texts), items_of(texts), strict=True):
        singles = stage.query_vectors(TokenRows(words, np.ones(len(words), dtype=np.int64)))
        np.testing.assert_allclose(text, singles.sum(axis=0), rtol=1e-4, atol=1e-4)
    together = stage.photo_vectors(photos)
    for vector, regions in zip(together, items_of(photos), strict=True):
        alone = stage.photo_vectors(TokenRows(regions, np.array([len(regions)])))[0]
        np.testing.assert_allclose(vector, alone, rtol=1e-4, atol=1e-4)
        cosines = np.stack([(regions @ word).max() for word in stage.words])
        expected = stage.factors @ cosines - stage.centre
        np.testing.assert_allclose(vector, expected, rtol=1e-4, atol=1e-4)
    assert stage.photo_vectors(
        TokenRows(np.zeros((0, DIM), np.float32), np.zeros(0, np.int64))
    ).shape == (
        0,
        32,
    )


def test_photos_without_regions_have_the_cosine_0(stage: LearnedStage) -> None:
    regions = items(2, seed=6).values[:1]
    found = stage.photo_vectors(TokenRows(regions, np.array([0, 1, 0])))
    np.testing.assert_allclose(found[0], -stage.centre)
    np.testing.assert_allclose(found[2], -stage.centre)
    np.testing.assert_allclose(
        found[1], stage.photo_vectors(TokenRows(regions, np.array([1])))[0], rtol=1e-4, atol=1e-4
    )


def test_texts_of_one_length_and_words_that_are_alike_are_fitted_as_well() -> None:
    def alike(rows: TokenRows) -> TokenRows:
        values = DIM**-0.5 + np.float32(0.2) * rows.values
        return TokenRows(values / np.linalg.norm(values, axis=1, keepdims=True), rows.lengths)

    def texts(count: int, seed: int) -> TokenRows:
        return alike(TokenRows(items(count, seed, most=1).values, np.full(count // 3, 3)))

    photos, fitted_to = alike(items(200, seed=0)), texts(900, seed=1)
    fit = fit_learned_stage(photos, fitted_to, 16, bank=600)
    exact = alignment(texts(60, seed=3), photos)
    fitted = fit.query_vectors(texts(60, seed=3)) @ fit.photo_vectors(photos).T
    correlations = [np.corrcoef(*pair)[0, 1] for pair in zip(exact, fitted, strict=True)]
    assert np.mean(correlations) > 0.9


def test_what_was_saved_is_loaded(stage: LearnedStage, tmp_path: Path) -> None:
    path = tmp_path / "fit.safetensors"
    stage.save(path)
    loaded = LearnedStage.load(path, DIM)
    for each in fields(stage):
        np.testing.assert_array_equal(getattr(loaded, each.name), getattr(stage, each.name))
    with pytest.raises(IndexCorruptError, match="expected tokens of 9 values, got 8"):
        LearnedStage.load(path, 9)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(IndexCorruptError, match="not a fitted first stage"):
        LearnedStage.load(path, DIM)


def test_what_cannot_be_fitted_is_refused() -> None:
    photos, texts = items(30, seed=0), items(250, seed=1)
    with pytest.raises(ConfigError, match="at least 200 texts to fit the first stage to, got 199"):
        fit_learned_stage(photos, texts.sample(199, seed=0), 4)
    with pytest.raises(ConfigError, match=r"dim: expected 1 to 30 for so many .*, got 31"):
        fit_learned_stage(photos, texts, 31)
    with pytest.raises(ShapeError, match="words of 8 values"):
        fit_learned_stage(photos, TokenRows(np.zeros((1, 4), np.float32), np.ones(1, np.int64)), 4)
