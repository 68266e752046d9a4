"""Compares kinds of FAISS index as the first stage, on the same synthetic photos and real captions.

    python -m benchmarks.search.ann_factories --items 100000
    python -m benchmarks.search.ann_factories --items 1000000 --factories
    "IVF1024,PQ256x4fs;IVF1024,SQ8"

Each kind is built, calibrated on 200 captions as `aladin index tune` does, and measured on others:

built_s         seconds to train and fill the index, on all cores
file_bytes      size of the index; it is mapped, so this is also the most memory that it can take
open_ms         time to open the file, with its pages in the page cache
search_width    chosen nprobe or efSearch; null if all vectors are compared
oversample      chosen number of rows that are compared exactly, per requested row
ann_recall      share of the exact nearest 100 that is found
search_ms       median time of the first stage of one query, on one thread
over_faiss      that time, divided by that of FAISS's own call with the same parameters
"""

from __future__ import annotations

import math
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aladin_index.ann.ann_index import AnnIndex, build_ann
from aladin_index.ann.file import write_ann
from aladin_index.ann.first_stage import retrieve
from aladin_index.ann.first_stage_build import ann_options
from aladin_index.ann.search_width import ann_recall, choose_search_width, lowest_true_scores
from aladin_index.format.manifest import AnnEntry
from aladin_index.format.npy import map_npy
from aladin_network.types import NullProgress
from benchmarks.lib.measuring import one_thread, ratio, time_in_turn
from benchmarks.lib.output import figures_parser, print_json, print_rows
from benchmarks.lib.synthetic import SyntheticPhotos
from benchmarks.lib.synthetic_sources import EMBEDDING_DIM, find_source
from benchmarks.search.searches import raw_parameters

CANDIDATES = 100
_RECALL_WANTED = 0.99
_CALIBRATED, _MEASURED, _TIMED = 200, 200, 300
# Number of vectors above which building a graph takes longer than everything else together.
_GRAPH_UP_TO = 200_000
_QUICK_ITEMS = 3000


def main() -> None:
    """Run the measurements, and print a table or JSON."""
    parser = figures_parser(__doc__, f"{_QUICK_ITEMS} items")
    parser.add_argument("--items", type=int, default=100_000, help="number of photos")
    parser.add_argument("--factories", help="FAISS factory strings, separated by semicolons")
    parser.add_argument("--source", type=Path, help="index of real photos to draw from")
    options = parser.parse_args()
    items = _QUICK_ITEMS if options.quick else options.items
    factories = options.factories.split(";") if options.factories else _factories(items)
    with tempfile.TemporaryDirectory() as folder:
        lines = measure(Path(folder), items, factories, options.source)
    figures = {"items": items, "candidates": CANDIDATES, "factories": lines}
    if options.json:
        print_json(figures)
    else:
        print_table(figures)


def measure(
    folder: Path, items: int, factories: list[str], source: Path | None
) -> list[dict[str, Any]]:
    """Draw photos and captions, and measure every kind of index on them.

    Args:
        folder: Folder for the photos and the indexes.
        items: Number of photos.
        factories: FAISS factory strings.
        source: Index of real photos, or None for the choice of `find_source`.
    """
    photos = SyntheticPhotos(find_source(source))
    embeddings = draw_embeddings(folder / "embeddings.npy", photos, items)
    queries = photos.queries(_CALIBRATED + _MEASURED, items).embeddings
    asked = np.ascontiguousarray(queries[:_CALIBRATED])
    others = np.ascontiguousarray(queries[_CALIBRATED:])
    count = min(CANDIDATES, items)
    lowest = lowest_true_scores(embeddings, others, count)
    lines: list[dict[str, Any]] = []
    for factory in factories:
        started = time.perf_counter()
        index = build_ann(factory, embeddings, NullProgress())
        built_s = time.perf_counter() - started
        path = folder / "ann.faiss"
        write_ann(path, index)
        started = time.perf_counter()
        opened = AnnIndex.open(path, None)
        open_ms = 1000 * (time.perf_counter() - started)
        line = {"factory": factory, "built_s": built_s, "file_bytes": path.stat().st_size}
        line |= {"open_ms": open_ms}
        with one_thread():
            lines.append(line | _measure(opened, embeddings, asked, others, lowest, count))
    return lines


def _measure(
    opened: AnnIndex,
    embeddings: NDArray[np.float32],
    asked: NDArray[np.float32],
    others: NDArray[np.float32],
    lowest: NDArray[np.float32],
    count: int,
) -> dict[str, Any]:
    chosen, curve = choose_search_width(
        opened, embeddings, asked, count, _RECALL_WANTED, timed=True
    )
    ann = AnnIndex(opened.faiss_index, chosen.search_width, chosen.oversample)
    entry = AnnEntry(
        factory="",
        search_width=chosen.search_width,
        oversample=chosen.oversample,
        recall=chosen.recall,
        recall_at=count,
        recall_queries=len(asked),
    )
    wanted = min(math.ceil(count * chosen.oversample), len(embeddings))
    parameters = raw_parameters(opened.faiss_index, entry, wanted)

    def ours(turn: int) -> object:
        return retrieve(ann, embeddings, others[turn % len(others)], count)

    def theirs(turn: int) -> object:
        # A different query from the one of `ours`, whose lists would still be in the caches.
        query = others[(turn + len(others) // 2) % len(others)][None]
        return opened.faiss_index.search(query, wanted, params=parameters)

    times = time_in_turn({"ours": ours, "faiss": theirs}, _TIMED)
    return {
        "search_width": chosen.search_width,
        "oversample": chosen.oversample,
        "ann_recall": ann_recall(ann, embeddings, others, lowest, count),
        "search_ms": float(np.median(times["ours"])),
        "search_p95_ms": float(np.quantile(times["ours"], 0.95)),
        "over_faiss": ratio(times, "ours", "faiss"),
        "curve": [asdict(point) for point in curve],
    }


def draw_embeddings(path: Path, photos: SyntheticPhotos, items: int) -> NDArray[np.float32]:
    """Write the embeddings of the first photos, and map them.

    Args:
        path: Path of the new file.
        photos: Source of the photos.
        items: Number of photos.
    """
    shape = (items, EMBEDDING_DIM)
    array = np.lib.format.open_memmap(path, "w+", np.float32, shape)
    start = 0
    for part in photos.embeddings(items):
        array[start : start + len(part)] = part
        start += len(part)
    array.flush()
    del array
    return map_npy(path, np.float32, shape)


def _factories(items: int) -> list[str]:
    """Return the kinds a build chooses from, and a graph if it builds in reasonable time."""
    factories = [each.factory for each in ann_options(items, EMBEDDING_DIM)]
    return [*factories, "HNSW32,Flat"] if items <= _GRAPH_UP_TO else factories


def print_table(figures: dict[str, Any]) -> None:
    """Print one line per kind of index."""
    print(f"{figures['items']:,} photos, the nearest {CANDIDATES} of a caption\n")
    columns = ["factory", "built s", "MB", "open ms", "width", "oversample"]
    columns += ["recall", "ms", "p95", "/FAISS"]
    rows = [
        [
            line["factory"],
            f"{line['built_s']:.1f}",
            f"{line['file_bytes'] / 1e6:,.1f}",
            f"{line['open_ms']:.1f}",
            "all" if line["search_width"] is None else line["search_width"],
            f"{line['oversample']:g}",
            f"{line['ann_recall']:.4f}",
            f"{line['search_ms']:.3f}",
            f"{line['search_p95_ms']:.3f}",
            f"{line['over_faiss']:.3f}",
        ]
        for line in figures["factories"]
    ]
    print_rows(columns, rows)


if __name__ == "__main__":
    main()
