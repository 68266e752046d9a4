"""Comparison of two-stage search, raw FAISS and Qdrant on the same photos and queries.

    python -m benchmarks.engines.comparison --items 10000 [--json] [--quick] [--plot FILE]

Each engine holds the same embeddings (256 values) and tokens (49 of 128 values a photo) and answers
the same texts: the 100 nearest photos by their embeddings, of which the best 10 by late
interaction, with their metadata. Parameters are chosen on other texts so that 0.99 of the exact
nearest 100 are found. Engines take turns, 25 queries each, in one process and on one thread.

aladin        this project: built and searched as a user would, with int8 tokens
faiss         dense search alone
faiss_numpy   dense search, and MaxSim in NumPy over a mapped float32 array
qdrant        qdrant-edge-py, Qdrant's engine in process, tokens in float32
qdrant_8bit   the same, tokens in 8 bits

build_s       on all processors; drawing the photos is left out
disk_bytes    of the index; for faiss_numpy with the float32 tokens that it reads
rss_bytes     by which opening and searching made the process grow, file pages included
ann_recall    share of the exact nearest 100
p50_ms ...    of a search; queries_per_s of one thread
top_10        share of the exact top 10 by late interaction over float32 tokens
filtered      the same with a filter that 1 photo in 1,000 passes, another one for every query

Files are read ahead where an engine has a way to (`aladin serve --warm`; Qdrant does so unasked).

Qdrant's lines need ``pip install qdrant-edge-py``; without it they are null. A hundred thousand
photos need 12 GB below the folder of temporary files.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aladin_index.ann import faiss
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
from benchmarks.lib.processes import in_fresh_process

_QUICK_ITEMS = 1000
# Number of searches of one engine before the next has its turn. A busy machine then slows all of
# them alike, and each finds the processor's caches as its own searches left them, as in a service.
_BLOCK = 25
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Read when a process loads its libraries.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

QDRANT_TOKENS: dict[str, TokenForm] = {"qdrant": "float32", "qdrant_8bit": "8 bits"}


def main() -> None:
    """Run the measurements, and print a table or JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=10_000, help="photos")
    parser.add_argument("--queries", type=int, default=500, help="texts to measure with")
    parser.add_argument("--source", type=Path, metavar="INDEX", help="of real photos")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quick", action="store_true", help="1,000 photos, a few seconds")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw a PNG")
    options = parser.parse_args()
    items, queries = (_QUICK_ITEMS, 30) if options.quick else (options.items, options.queries)
    figures = measure(items, queries, options.source)
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        print_table(figures)
    if options.plot is not None:
        draw(figures, options.plot)


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
    aladin["disk_bytes"] = _bytes_below(folder / "aladin")
    faiss_graph["disk_bytes"] = _bytes_below(folder / "faiss")
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
        built[name]["disk_bytes"] = _bytes_below(folder / name)
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
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    task = make_task(folder / "photos", max(queries // 5, 10), queries, source)
    engines: dict[str, Engine] = {}
    figures: dict[str, dict[str, Any]] = {}
    for name in names:
        before = _rss_bytes()
        engines[name] = ENGINES[name](folder)
        engines[name].tune(task)
        for query in range(len(task.windows)):
            engines[name].search(task, query, False)
        figures[name] = {"rss_bytes": _rss_bytes() - before, "settings": engines[name].settings()}
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
    columns = "p50 ms | p95 ms | queries/s | top 10"
    print(f"| | settings | recall | {columns} | filtered: {columns} | build s | disk MB | RSS MB |")
    print("|---" * 14 + "|")
    for name, line in figures["engines"].items():
        if line is None:
            print(f"| {name} | not installed |" + " |" * 12)
            continue
        cells = [name, line["settings"], f"{line['ann_recall']:.3f}"]
        for part in (line, line["filtered"]):
            cells += [f"{part['p50_ms']:.2f}", f"{part['p95_ms']:.2f}"]
            cells += [f"{part['queries_per_s']:.0f}", f"{part['top_10']:.3f}"]
        cells += [f"{line['build_s']:.1f}"]
        cells += [f"{line[size] / 1e6:,.0f}" for size in ("disk_bytes", "rss_bytes")]
        print("| " + " | ".join(cells) + " |")


def draw(figures: dict[str, Any], file: Path) -> None:
    """Plot the median of every engine, with a line up to its 95th percentile."""
    # Imported here: only plots need it, and it takes a second.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lines = {name: line for name, line in figures["engines"].items() if line is not None}
    figure = Figure(figsize=(8, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    places = np.arange(len(lines))
    for shift, label in ((-0.2, "all photos"), (0.2, "1 photo in 1,000 passes a filter")):
        parts = [line["filtered"] if shift > 0 else line for line in lines.values()]
        p50 = np.array([part["p50_ms"] for part in parts])
        p95 = np.array([part["p95_ms"] for part in parts])
        above = np.stack([np.zeros_like(p50), np.maximum(p95 - p50, 0)])
        axes.bar(places + shift, p50, 0.38, yerr=above, capsize=3, label=label)
    axes.set_xticks(places, list(lines))
    axes.set_ylabel("ms a query, median and 95th percentile")
    axes.set_title(f"{figures['items']:,} photos, 100 candidates re-ranked, one thread")
    axes.legend()
    figure.savefig(file, format="png", dpi=150)


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _rss_bytes() -> int:
    """Return the resident memory of this process, or 0 if the system does not report it."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * _PAGE_BYTES if status.exists() else 0


if __name__ == "__main__":
    main()
