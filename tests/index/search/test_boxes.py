"""Boxes of queries: which regions are inside, and their embeddings, by hand and by equations."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aladin_index.encode.encoded import ItemBatch
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.search.box_query import (
    LazyEmbedder,
    RegionEmbedder,
    box_areas,
    fit_embedder,
    overlap_areas,
    regions_inside,
)

# A grid of two rows and four columns, 0 to 3 above 4 to 7.
GRID = np.array([(x / 4, y / 2, (x + 1) / 4, (y + 1) / 2) for y in range(2) for x in range(4)])


def test_overlaps_and_areas_by_hand() -> None:
    others = np.array([(0.125, 0.25, 0.5, 1.0), (0.9, 0.0, 1.0, 0.1)])
    shared = overlap_areas(GRID[[0, 1, 5, 3]], others)
    half = 0.125 * 0.25  # of the first cell: half its width and half its height
    expected = [(half, 0), (2 * half, 0), (4 * half, 0), (0, 0.01)]
    np.testing.assert_allclose(shared, expected, atol=1e-12)
    np.testing.assert_allclose(box_areas(GRID), 0.125)


@pytest.mark.parametrize(
    ("regions", "box", "inside"),
    [
        # All of the second and third cell, and a bit more or less than a third of the first.
        (GRID, (0.25 * 0.66, 0.0, 0.75, 0.5), [0, 1, 2]),
        (GRID, (0.25 * 0.67, 0.0, 0.75, 0.5), [1, 2]),
        # A small box takes the region that fits it best: both contain it, it is more of the second.
        (GRID, (0.26, 0.6, 0.3, 0.7), [5]),
        (np.array([(0, 0, 1, 1), (0, 0, 0.5, 0.5)]), (0.1, 0.1, 0.2, 0.2), [1]),
        # A region without an area is in no box.
        (np.array([(0.5, 0.5, 0.5, 0.9), (0, 0, 1, 1)]), (0, 0, 1, 1), [1]),
    ],
)
def test_a_third_of_a_region_is_inside_a_box(regions: np.ndarray, box: tuple, inside: list) -> None:
    assert regions_inside(regions, box).tolist() == inside


def test_the_embedding_of_a_part_is_that_of_a_regularised_map_of_its_mean() -> None:
    generator = np.random.default_rng(1)
    means, embeddings = generator.normal(size=(2, 50, 4)).astype(np.float32)
    centred = means - means.mean(axis=0)
    spread = centred.T @ centred
    ridge = 0.05 * np.trace(spread) / 4 * np.eye(4)
    weights = np.linalg.inv(spread + ridge) @ centred.T @ (embeddings - embeddings.mean(axis=0))
    tokens = generator.normal(size=(3, 4)).astype(np.float32)
    for part in (tokens[:2], tokens):
        # The part counts by what it has beyond the whole photo, which is its own part.
        mean = 2 * part.mean(axis=0) - tokens.mean(axis=0)
        expected = embeddings.mean(axis=0) + (mean - means.mean(axis=0)) @ weights
        expected /= np.linalg.norm(expected)
        found = RegionEmbedder(means, embeddings).embed(part, tokens)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_of_a_single_photo_every_part_has_its_embedding() -> None:
    means = np.array([[0.5, 0.5]], dtype=np.float32)
    embeddings = np.array([[0.6, 0.8]], dtype=np.float32)
    tokens = np.eye(2, dtype=np.float32)
    found = RegionEmbedder(means, embeddings).embed(tokens[:1], tokens)
    np.testing.assert_allclose(found, [0.6, 0.8], atol=1e-6)


def test_an_index_without_regions_has_none(
    made_up: Callable[..., ItemBatch], write_made_up: Callable[..., int], tmp_path: Path
) -> None:
    photos = made_up(["a", "b"])
    none = replace(photos, tokens=photos.tokens[:0], lengths=np.zeros(2, dtype=np.int64))
    write_made_up(tmp_path / "index", images=none)
    with open_index(tmp_path / "index") as index:
        assert fit_embedder(index.collection("images")) is None
        assert LazyEmbedder(index).get() is None


def test_it_is_fitted_once(search_index: SearchIndex) -> None:
    lazy = LazyEmbedder(search_index)
    first = lazy.get()
    assert first is not None
    assert lazy.get() is first
