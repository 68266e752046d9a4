"""Synthetic photos: deterministic, independent of the batch, and as real ones are."""

import numpy as np
import pytest

from benchmarks.lib.synthetic import SyntheticPhotos
from benchmarks.lib.synthetic_sources import Photos, Source, stand_in_source
from benchmarks.search.synthetic_check import real_queries, statistics


@pytest.fixture(scope="module")
def source() -> Source:
    return stand_in_source()


@pytest.fixture(scope="module")
def synthetic(source: Source) -> SyntheticPhotos:
    return SyntheticPhotos(source, seed=3)


def drawn(synthetic: SyntheticPhotos, count: int, batch: int = 2048) -> Photos:
    parts = list(synthetic.photos(count, batch))
    return Photos(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def test_photos_depend_on_seed_and_number_only(source: Source, synthetic: SyntheticPhotos) -> None:
    many, few = drawn(synthetic, 1100, batch=512), drawn(synthetic, 600)
    assert many.embeddings.shape == (1100, 256)
    assert many.tokens.shape == (1100, 49, 128)
    # The matrix product of a block that was cut short may sum in another order.
    np.testing.assert_allclose(few.embeddings, many.embeddings[:600], atol=1e-5)
    np.testing.assert_allclose(few.tokens, many.tokens[:600], atol=1e-5)
    again = drawn(SyntheticPhotos(source, seed=3), 600)
    np.testing.assert_array_equal(again.tokens, few.tokens)
    other = drawn(SyntheticPhotos(source, seed=4), 600)
    assert np.abs(other.embeddings - few.embeddings).max() > 0.1


def test_vectors_are_normalised(synthetic: SyntheticPhotos) -> None:
    photos = drawn(synthetic, 600)
    np.testing.assert_allclose(np.linalg.norm(photos.embeddings, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(photos.tokens, axis=2), 1, atol=1e-5)


def test_photos_cluster_as_their_source_does(source: Source, synthetic: SyntheticPhotos) -> None:
    count = len(source.photos.embeddings)
    real = statistics(source.photos, real_queries(source))
    made = statistics(drawn(synthetic, count), synthetic.queries(100, count))
    for name, allowed in {
        "cosine of two photos": 0.03,
        "cosine to a photo's neighbour 1": 0.03,
        "cosine to a photo's neighbour 10": 0.03,
        "cosine to a photo's neighbour 100": 0.03,
        "cosine of a text to photo 10": 0.03,
        "best region of a word, another photo": 0.03,
        "correlation of matching and alignment": 0.03,
        "alignment's top 10 among 50 candidates": 0.03,
    }.items():
        np.testing.assert_allclose(made[name], real[name], atol=allowed, err_msg=name)


def test_a_query_is_nearer_to_its_photo_than_to_others(synthetic: SyntheticPhotos) -> None:
    photos, queries = drawn(synthetic, 600), synthetic.queries(60, 600)
    cosines = queries.embeddings @ photos.embeddings.T
    own = cosines[np.arange(60), queries.photos]
    ranks = (cosines > own[:, None]).sum(axis=1)
    assert np.median(ranks) < 60
    assert all(8 <= len(words) <= 16 for words in queries.words)
