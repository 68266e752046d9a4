"""Compares synthetic photos with the real ones that they were made from.

    python -m benchmarks.search.synthetic_check [--photos 1000] [--source INDEX]

With as many synthetic photos as real ones, both columns should agree. With more photos, neighbours
are closer, as in a larger collection.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.lib.output import print_rows
from benchmarks.lib.synthetic import SyntheticPhotos, TextQueries
from benchmarks.lib.synthetic_sources import Photos, Source, find_source

_NEIGHBOURS = (1, 10, 100)
_CANDIDATES = (10, 20, 50, 100)
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_QUERIES = 200


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--photos", type=int, default=1000, help="synthetic photos; at most 20000")
    parser.add_argument("--source", type=Path, metavar="INDEX", help="index of real photos")
    options = parser.parse_args()
    source = find_source(options.source)
    synthetic = SyntheticPhotos(source)
    batches = list(synthetic.photos(options.photos))
    made = Photos(*(np.concatenate(part) for part in zip(*batches, strict=True)))
    print(f"real: {source.name}")
    columns = (
        statistics(source.photos, real_queries(source)),
        statistics(made, synthetic.queries(_QUERIES, options.photos)),
    )
    rows = [[name, _shown(real), _shown(columns[1][name])] for name, real in columns[0].items()]
    print_rows(["", "real: quantiles 5, 25, 50, 75, 95 %", "synthetic"], rows)


def real_queries(source: Source) -> TextQueries:
    """Take one caption of each of some real photos."""
    chosen = np.random.default_rng(0).permutation(len(source.photos.embeddings))[:_QUERIES]
    captions = [source.captions[photo][0] for photo in chosen]
    embeddings = np.stack([caption.embedding for caption in captions])
    return TextQueries(embeddings, [caption.words for caption in captions], chosen)


def statistics(photos: Photos, queries: TextQueries) -> dict[str, NDArray[np.floating]]:
    """Measure the statistics that the search depends on.

    Returns:
        For each line its quantiles, or one number.
    """
    cosines = photos.embeddings @ photos.embeddings.T
    pairs = cosines[np.triu_indices(len(cosines), 1)]
    np.fill_diagonal(cosines, -2)
    result: dict[str, NDArray[np.floating]] = {}
    result["cosine of two photos"] = np.quantile(pairs, _QUANTILES)
    ordered = -np.sort(-cosines, axis=1)
    for place in _NEIGHBOURS:
        name = f"cosine to a photo's neighbour {place}"
        result[name] = np.quantile(ordered[:, place - 1], _QUANTILES)
    matching = queries.embeddings @ photos.embeddings.T  # (queries, photos)
    for place in _NEIGHBOURS:
        nearest = -np.sort(-matching, axis=1)[:, place - 1]
        result[f"cosine of a text to photo {place}"] = np.quantile(nearest, _QUANTILES)
    flat = photos.tokens.reshape(-1, photos.tokens.shape[2])
    alignment = np.empty_like(matching)
    own: list[NDArray[np.float32]] = []
    others: list[NDArray[np.float32]] = []
    for place, words in enumerate(queries.words):
        best = (words @ flat.T).reshape(len(words), len(photos.tokens), -1).max(axis=2)
        alignment[place] = best.sum(axis=0)
        own.append(best[:, queries.photos[place]])
        others.append(best[:, (queries.photos[place] + 1) % len(photos.tokens)])
    result["best region of a word, own photo"] = np.quantile(np.concatenate(own), _QUANTILES)
    result["best region of a word, another photo"] = np.quantile(np.concatenate(others), _QUANTILES)
    correlations = [np.corrcoef(*pair)[0, 1] for pair in zip(matching, alignment, strict=True)]
    result["correlation of matching and alignment"] = np.quantile(correlations, _QUANTILES)
    best_photos = np.argsort(-alignment, axis=1)[:, :10]
    candidates = np.argsort(-matching, axis=1)
    for count in _CANDIDATES:
        shares = [
            len(np.intersect1d(best, nearest[:count])) / 10
            for best, nearest in zip(best_photos, candidates, strict=True)
        ]
        name = f"alignment's top 10 among {count} candidates"
        result[name] = np.array([np.mean(shares)])
    for name, scores in (("matching", matching), ("alignment", alignment)):
        hits = scores.argmax(axis=1) == queries.photos
        result[f"R@1 of {name}"] = np.array([np.mean(hits)])
    return result


def _shown(numbers: NDArray[np.floating]) -> str:
    return " ".join(f"{number:.3f}" for number in numbers)


if __name__ == "__main__":
    main()
