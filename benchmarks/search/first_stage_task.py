"""What `benchmarks.search.first_stages` searches for what: photos, and captions of two kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aladin_training.data import read_records
from benchmarks.lib.synthetic import SyntheticPhotos
from benchmarks.lib.synthetic_sources import Caption, Photos, Source

# Photos that a first stage is fitted to, and photos that are made up at a time.
SAMPLE = 3000
_PHOTOS_A_BATCH = 2048


@dataclass(frozen=True)
class Task:
    """What is searched for what.

    Attributes:
        photos: Yields all photos in batches, always the same.
        count: Number of photos.
        fitted_to: Captions that a first stage may be fitted to.
        asked: Captions that are searched with.
        name: Name to be printed.
        sample: (photos, regions, dim) regions of the photos that a first stage may be fitted to.
        unseen: Rows of the photos that nothing is fitted to, or None for no such photos.
    """

    photos: Callable[[], Iterator[Photos]]
    count: int
    fitted_to: list[Caption]
    asked: list[Caption]
    name: str
    sample: NDArray[np.float32]
    unseen: NDArray[np.int64] | None = None


def make_task(source: Source, items: int, queries: int, *, real: bool) -> Task:
    """Divide the captions, and draw the photos and the queries."""
    stored, asking = source.divided()
    fitted_to = [each for of_photo in stored.captions for each in of_photo]
    if real:
        asked = [each for of_photo in asking.captions for each in of_photo]
        return Task(
            _batches(source.photos),
            len(asking.captions),
            fitted_to,
            _some(asked, queries),
            source.name,
            source.photos.tokens[:SAMPLE],
        )
    synthetic = SyntheticPhotos(asking)
    drawn = synthetic.queries(queries, items, seed=1)
    asked = [Caption(*each) for each in zip(drawn.embeddings, drawn.words, strict=True)]

    def batches() -> Iterator[Photos]:
        return synthetic.photos(items, _PHOTOS_A_BATCH)

    return Task(batches, items, fitted_to, asked, source.name, next(batches()).tokens)


def held_out_task(source: Source, data: Path, queries: int) -> Task:
    """Divide the photos: validation photos are asked for, the others may be fitted to."""
    held = {record.id for record in read_records(data, "val")}
    are_held = np.array([photo in held for photo in source.ids])
    asked, fitted_to = (
        [each for row in np.flatnonzero(rows) for each in source.captions[row]]
        for rows in (are_held, ~are_held)
    )
    return Task(
        _batches(source.photos),
        len(source.captions),
        fitted_to,
        _some(asked, queries),
        source.name,
        source.photos.tokens[~are_held][:SAMPLE],
        np.flatnonzero(are_held),
    )


def _some(captions: list[Caption], count: int) -> list[Caption]:
    """Draw some captions, always the same ones."""
    chosen = np.random.default_rng(0).permutation(len(captions))[:count]
    return [captions[place] for place in chosen]


def _batches(photos: Photos) -> Callable[[], Iterator[Photos]]:
    def batches() -> Iterator[Photos]:
        for start in range(0, len(photos.embeddings), SAMPLE):
            part = slice(start, start + SAMPLE)
            yield Photos(photos.embeddings[part], photos.tokens[part])

    return batches
