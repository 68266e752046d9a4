"""Comparison of two-stage search, raw FAISS and Qdrant on the same photos and queries.

    python -m benchmarks.engines.comparison --items 10000 [--json] [--quick]

Each engine stores the same embeddings (256 values) and tokens (49 of 128 values per photo) and
answers the same texts: it retrieves the 100 nearest photos by their embeddings and returns the best
10 of them by late interaction, with their metadata. Search parameters are chosen on other texts so
that 0.99 of the exact nearest 100 are found. Engines take turns, 25 queries each, in one process
and on one thread.

aladin        this project: built and searched as a user would, with int8 tokens
faiss         dense search alone
faiss_numpy   dense search, and MaxSim in NumPy over a mapped float32 array
qdrant        qdrant-edge-py, Qdrant's engine in process, tokens in float32
qdrant_8bit   the same, tokens in 8 bits

build_s       seconds on all processors, without drawing the photos
disk_bytes    size of the index; for faiss_numpy including the float32 tokens that it reads
rss_bytes     growth of the process by opening and searching, including pages of mapped files
ann_recall    share of the exact nearest 100 that is found
p50_ms ...    latency of a search; queries_per_s on one thread
top_10        share of the exact top 10 by late interaction over float32 tokens
filtered      the same with filters that 1 photo in 1,000 passes, a different one for each query

Engines read their files in advance if they can (`aladin serve --warm`; Qdrant always does).

Qdrant's lines require ``pip install qdrant-edge-py``; without it they are null. A hundred thousand
photos need 12 GB in the folder of temporary files.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.engines.compared import (
    AladinEngine,
    FaissEngine,
    QdrantEngine,
    TokenForm,
    build_aladin,
    build_faiss,
    build_qdrant,
    load_qdrant,
)
from benchmarks.engines.task import TOKENS, Engine, Task, draw_photos, make_task
from benchmarks.lib.measuring import use_one_thread
from benchmarks.lib.output import figures_parser, print_json, print_rows
from benchmarks.lib.processes import in_fresh_process, status_bytes
from benchmarks.lib.small_collection import folder_bytes

_QUICK_ITEMS = 1000
# Number of searches of one engine before the next has its turn. A busy machine then slows all of
# them alike, and each finds the processor's caches as its own searches left them, as in a service.
_BLOCK = 25
# Read when a process loads its libraries.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

QDRANT_TOKENS: dict[str, TokenForm] = {"qdrant": "float32", "qdrant_8bit": "8 bits"}


def main() -> None:
    """Run the measurements, and print a table or JSON."""
    parser = figures_parser(__doc__, "1,000 photos, a few seconds")
    parser.add_argument("--items", type=int, default=10_000, help="number of photos")
    parser.add_argument("--queries", type=int, default=500, help="number of texts to search with")
    parser.add_argument("--source", type=Path, metavar="INDEX", help="index of real photos")
    options = parser.parse_args()
    items, queries = (_QUICK_ITEMS, 30) if options.quick else (options.items, options.queries)
    figures = measure(items, queries, options.source)
    if options.json:
        print_json(figures)
    else:
        print_table(figures)


def measure(items: int, queries: int, source: Path | None) -> dict[str, Any]:
    """Build each engine's index in a separate process, and search them in another.

    Args:
        items: Number of photos.
        queries: Number of texts to measure with.
        source: Index of real photos, or None for the choice of `benchmarks.lib.synthetic_sources`.
    """
    figures: dict[str, Any] = {"items": items, "queries": queries}
    with tempfile.TemporaryDirectory() as folder:
        photos = Path(folder) / "photos"
        photos.mkdir()
        figures |= in_fresh_process(draw_photos, photos, items, source)
        built = build_all(Path(folder), photos, items, source)
        os.environ.update(_ONE_THREAD)
        found = in_fresh_process(search_all, Path(folder), [*built], queries, source)
    figures["engines"] = {
        name: {**built[name], **found[name]} if name in built else None for name in ENGINES
    }
    return figures


def build_all(
    folder: Path, photos: Path, items: int, source: Path | None
) -> dict[str, dict[str, Any]]:
    """Build the indexes of all installed engines; return the cost of each."""
    aladin = in_fresh_process(build_aladin, folder / "aladin", items, source)
    faiss_graph = in_fresh_process(build_faiss, folder / "faiss", photos)
    aladin["disk_bytes"] = folder_bytes(folder / "aladin")
    faiss_graph["disk_bytes"] = folder_bytes(folder / "faiss")
    with_tokens = faiss_graph["disk_bytes"] + (photos / TOKENS).stat().st_size
    built = {
        "aladin": aladin,
        "faiss": faiss_graph,
        "faiss_numpy": {**faiss_graph, "disk_bytes": with_tokens},
    }
    try:
        load_qdrant()
    except ImportError:
        print("qdrant-edge-py is not installed: its lines are null", file=sys.stderr)
        return built
    for name, form in QDRANT_TOKENS.items():
        built[name] = in_fresh_process(build_qdrant, folder / name, photos, form)
        built[name]["disk_bytes"] = folder_bytes(folder / name)
    return built


# Functions that open each engine's index below a folder.
ENGINES: dict[str, Callable[[Path], Engine]] = {
    "aladin": lambda folder: AladinEngine(folder / "aladin"),
    "faiss": lambda folder: FaissEngine(folder / "faiss", reranks=False),
    "faiss_numpy": lambda folder: FaissEngine(folder / "faiss", reranks=True),
    "qdrant": lambda folder: QdrantEngine(folder / "qdrant", "float32"),
    "qdrant_8bit": lambda folder: QdrantEngine(folder / "qdrant_8bit", "8 bits"),
}


def search_all(
    folder: Path, names: list[str], queries: int, source: Path | None
) -> dict[str, dict[str, Any]]:
    """Search the engines in turn; return the figures of each."""
    use_one_thread()
    task = make_task(folder / "photos", max(queries // 5, 10), queries, source)
    engines: dict[str, Engine] = {}
    figures: dict[str, dict[str, Any]] = {}
    for name in names:
        before = status_bytes("self", "VmRSS") or 0
        engines[name] = ENGINES[name](folder)
        engines[name].tune(task)
        for query in range(len(task.windows)):
            engines[name].search(task, query, False)
        figures[name] = {
            "rss_bytes": (status_bytes("self", "VmRSS") or 0) - before,
            "settings": engines[name].settings(),
        }
    times = {filtered: _time(engines, task, filtered) for filtered in (False, True)}
    for name, engine in engines.items():
        figures[name] |= {
            "ann_recall": _recall(engine, task),
            **_answers(engine, task, times[False][name], filtered=False),
            "filtered": _answers(engine, task, times[True][name], filtered=True),
        }
    return figures


def _time(
    engines: Mapping[str, Engine], task: Task, filtered: bool
) -> dict[str, NDArray[np.float64]]:
    """Time a search for every query, in milliseconds; engines alternate after each block."""
    times: dict[str, list[float]] = {name: [] for name in engines}
    for start in range(task.tuning, len(task.windows), _BLOCK):
        for name, engine in engines.items():
            for query in range(start, min(start + _BLOCK, len(task.windows))):
                started = time.perf_counter()
                engine.search(task, query, filtered)
                times[name].append(1000 * (time.perf_counter() - started))
    return {name: np.array(each) for name, each in times.items()}


def _recall(engine: Engine, task: Task) -> float:
    shares = [
        len(np.intersect1d(engine.candidates(task.queries.embeddings[query]), task.nearest[query]))
        / len(task.nearest[query])
        for query in range(task.tuning, len(task.windows))
    ]
    return float(np.mean(shares))


def _answers(
    engine: Engine, task: Task, times_ms: NDArray[np.float64], filtered: bool
) -> dict[str, float]:
    best = task.best_in_window if filtered else task.best
    shares = [
        len(np.intersect1d(engine.search(task, query, filtered), best[query])) / len(best[query])
        for query in range(task.tuning, len(task.windows))
    ]
    return {
        "p50_ms": float(np.quantile(times_ms, 0.5)),
        "p95_ms": float(np.quantile(times_ms, 0.95)),
        "queries_per_s": float(1000 / times_ms.mean()),
        "top_10": float(np.mean(shares)),
    }


def print_table(figures: dict[str, Any]) -> None:
    """Print one line per engine, in Markdown."""
    print(f"{figures['items']:,} photos like {figures['source']}, {figures['queries']} texts\n")
    timed = ["p50 ms", "p95 ms", "queries/s", "top 10"]
    filtered = [f"filtered: {timed[0]}", *timed[1:]]
    columns = ["", "settings", "recall", *timed, *filtered, "build s", "disk MB", "RSS MB"]
    rows: list[list[str]] = []
    for name, line in figures["engines"].items():
        if line is None:
            rows.append([name, "not installed", *[""] * (len(columns) - 2)])
            continue
        cells = [name, line["settings"], f"{line['ann_recall']:.3f}"]
        for part in (line, line["filtered"]):
            cells += [f"{part['p50_ms']:.2f}", f"{part['p95_ms']:.2f}"]
            cells += [f"{part['queries_per_s']:.0f}", f"{part['top_10']:.3f}"]
        cells += [f"{line['build_s']:.1f}"]
        cells += [f"{line[size] / 1e6:,.0f}" for size in ("disk_bytes", "rss_bytes")]
        rows.append(cells)
    print_rows(columns, rows)


if __name__ == "__main__":
    main()
