"""Compares the exact first stage of small indexes with FAISS's comparison with every vector.

    python -m benchmarks.search.exact_scan [--items 10000 50000] [--json] [--quick]
    python -m benchmarks.search.exact_scan --embeddings VECTORS.npy --queries QUERIES.npy

Photos are synthetic, queries are captions, unless arrays of embeddings are given: (items, dim) and
(queries, dim) float32, L2-normalised. Searches of both take turns, on one thread.

made_ms       time to make the codes, once
compared      median number of rows that are compared exactly, beside the codes
recall        share of the nearest 100 by FAISS that is found; by construction it is 1
same_order    share of queries with the same rows in the same order
flat_ms       median time of a search that compares with every vector, as FAISS's IndexFlat does
scan_ms       median time of the scan of codes with its exact comparison
ratio         the latter over the former
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aladin_index.ann.ann_index import AnnIndex, build_ann
from aladin_index.ann.exact_scan import ExactScan
from aladin_index.ann.first_stage import retrieve
from aladin_network.errors import ConfigError
from aladin_network.types import NullProgress
from benchmarks.lib.measuring import one_thread, ratio, time_in_turn
from benchmarks.lib.output import figures_parser, print_json, print_rows
from benchmarks.lib.synthetic import SyntheticPhotos
from benchmarks.lib.synthetic_sources import find_source
from benchmarks.search.ann_factories import CANDIDATES, draw_embeddings

_QUERIES, _TIMED, _QUICK_ITEMS = 200, 300, 3000


def main() -> None:
    """Run the measurements, and print a table or JSON."""
    parser = figures_parser(__doc__, f"{_QUICK_ITEMS} items")
    parser.add_argument("--items", type=int, nargs="+", default=[10_000, 50_000])
    parser.add_argument("--source", type=Path, help="index of real photos to draw from")
    parser.add_argument("--embeddings", type=Path, help="array of embeddings to search instead")
    parser.add_argument("--queries", type=Path, help="array of queries for --embeddings")
    options = parser.parse_args()
    items = [_QUICK_ITEMS] if options.quick else options.items
    with tempfile.TemporaryDirectory() as folder, one_thread():
        vectors, queries = _arrays(options, Path(folder), max(items))
        lines = [_measure(vectors[:count], queries) for count in items if count <= len(vectors)]
    if options.json:
        print_json({"candidates": CANDIDATES, "sizes": lines})
    else:
        print_rows(list(lines[0]), [[f"{value:.4g}" for value in line.values()] for line in lines])


def _arrays(
    options: Any, folder: Path, items: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return (items, dim) vectors and (queries, dim) queries."""
    if options.embeddings is None:
        photos = SyntheticPhotos(find_source(options.source))
        vectors = draw_embeddings(folder / "embeddings.npy", photos, items)
        return vectors, np.ascontiguousarray(photos.queries(_QUERIES, items).embeddings)
    if options.queries is None:
        raise ConfigError("--embeddings: expected --queries beside it")
    queries = np.load(options.queries).astype(np.float32)
    return np.load(options.embeddings).astype(np.float32), queries[:_QUERIES]


def _measure(vectors: NDArray[np.float32], queries: NDArray[np.float32]) -> dict[str, float]:
    vectors = np.ascontiguousarray(vectors)
    ann = AnnIndex(build_ann("Flat", vectors, NullProgress()), None)
    scan = ExactScan.of(vectors)
    if scan is None:
        raise ConfigError("the native library is not compiled: install the package again")
    started = time.perf_counter()
    scan.make_codes()
    made_ms = 1000 * (time.perf_counter() - started)
    count = min(CANDIDATES, len(vectors) - 1)
    found = [scan.search(query, count)[0] for query in queries]
    nearest = [retrieve(ann, vectors, query, count)[0] for query in queries]
    pairs = list(zip(found, nearest, strict=True))

    def flat(turn: int) -> object:
        return retrieve(ann, vectors, queries[turn % len(queries)], count)

    def scanned(turn: int) -> object:
        return scan.search(queries[(turn + len(queries) // 2) % len(queries)], count)

    times = time_in_turn({"flat": flat, "scan": scanned}, _TIMED)
    return {
        "items": len(vectors),
        "dim": vectors.shape[1],
        "made_ms": made_ms,
        "compared": float(np.median([scan.candidate_count(query, count) for query in queries])),
        "recall": float(np.mean([len(np.intersect1d(*pair)) / count for pair in pairs])),
        "same_order": float(np.mean([np.array_equal(*pair) for pair in pairs])),
        "flat_ms": float(np.median(times["flat"])),
        "scan_ms": float(np.median(times["scan"])),
        "ratio": ratio(times, "scan", "flat"),
    }


if __name__ == "__main__":
    main()
