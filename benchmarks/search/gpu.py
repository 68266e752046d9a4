"""Compares searches on a GPU and on the processor, on one index of synthetic photos.

    python -m benchmarks.search.gpu --items 1000000 [--json] [--ann auto] [--keep DIR] [--quick]

processor          FAISS and the kernel on one thread
faiss on the GPU   a copy of the first stage on the GPU; re-ranking on the processor
torch on the GPU   exact search and re-ranking on the GPU

start_s      seconds to open the index, including its copy to the GPU and a search that verifies it
retrieve_ms  median time of the first stage, 100 candidates
rerank_ms    median time of the second stage
search_ms    median time of the whole search, including the look-up of the hits
p95_ms       95th percentile of the whole search
ann_recall   share of the exact nearest 100 that is found
gpu_bytes    memory of the GPU taken by opening the index

Engines take turns, query by query. Without a GPU only the processor is measured, by FAISS and by
torch.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from aladin_index.devices.search_device import SearchDevice
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.types import FirstStageName
from benchmarks.lib.measuring import use_one_thread
from benchmarks.lib.output import figures_parser, print_json, print_rows
from benchmarks.lib.processes import in_fresh_process
from benchmarks.lib.synthetic import SyntheticPhotos, TextQueries
from benchmarks.lib.synthetic_sources import find_source
from benchmarks.search.scale import QUICK_ITEMS, build
from benchmarks.search.searches import CANDIDATES, ServedFirstStage, TextSearches, measure_recall

_RECALL_QUERIES = 50


class Engine(NamedTuple):
    """A combination of device and first stage for searching.

    Attributes:
        name: Name to be printed.
        device: Name of the device in torch.
        first_stage: First stage; see `SearchDevice`.
    """

    name: str
    device: str
    first_stage: FirstStageName


def main() -> None:
    """Run the measurements, and print a table or JSON."""
    parser = figures_parser(__doc__, "2,000 photos, a few seconds")
    parser.add_argument("--items", type=int, default=100_000, help="number of photos")
    parser.add_argument("--ann", default="auto", help="auto, exact or a FAISS factory string")
    parser.add_argument("--searches", type=int, default=300, help="timed searches of each engine")
    parser.add_argument("--source", type=Path, metavar="INDEX", help="index of real photos")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="folder to keep the index in")
    options = parser.parse_args()
    items = QUICK_ITEMS if options.quick else options.items
    searches = 20 if options.quick else options.searches
    with ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        root = folder / "index"
        if not (root / "CURRENT").exists():
            in_fresh_process(build, root, items, "int8", options.ann, options.source)
        queries = SyntheticPhotos(find_source(options.source)).queries(searches, items, seed=1)
        figures = measure(root, queries)
    if options.json:
        print_json(figures)
    else:
        print_table(figures)


def engines() -> list[Engine]:
    """List the engines of this machine."""
    found = [Engine("processor", "cpu", "faiss")]
    if not torch.cuda.is_available():
        return [*found, Engine("torch on the processor", "cpu", "torch")]
    return [
        *found,
        Engine("faiss on the GPU", "cuda:0", "faiss"),
        Engine("torch on the GPU", "cuda:0", "torch"),
    ]


def measure(root: Path, queries: TextQueries) -> dict[str, Any]:
    """Open an index with every engine, and search with all of them in turn.

    Args:
        root: Folder of the index.
        queries: Queries; run once to warm up, and once for the figures.

    Returns:
        Name of the GPU, number of photos, and figures of each engine; None for an engine whose
        verification failed, so that the processor would search.
    """
    use_one_thread()
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    with ExitStack() as stack:
        opened: dict[str, SearchIndex] = {}
        figures: dict[str, dict[str, float] | None] = {}
        for engine in engines():
            device = SearchDevice(engine.device, engine.first_stage)
            stack.callback(device.close)
            before, started = _gpu_bytes(), time.perf_counter()
            index = stack.enter_context(open_index(root, device=device))
            taken_s = time.perf_counter() - started
            # If an engine could not be verified, the index uses the stored ANN instead.
            side = index.side("images").base
            if engine.name == "processor" or side.first_stage is not side.ann:
                opened[engine.name] = index
                figures[engine.name] = {
                    "start_s": taken_s,
                    "gpu_bytes": _gpu_bytes() - before,
                }
            else:
                figures[engine.name] = None
        searches = {
            name: TextSearches(TwoStageSearcher(index), queries) for name, index in opened.items()
        }
        for name, values in _in_turn(searches, len(queries.words)).items():
            figures[name] = (figures[name] or {}) | values
        for name, index in opened.items():
            stage = ServedFirstStage(index.side("images").base, queries)
            recall = measure_recall(stage, _RECALL_QUERIES)
            figures[name] = (figures[name] or {}) | {"ann_recall": recall}
        items = opened["processor"].side("images").count
    return {"gpu": gpu, "items": items, "engines": figures}


def _in_turn(searches: dict[str, TextSearches], count: int) -> dict[str, dict[str, float]]:
    """Run every query on every engine, twice; only the second run is timed."""
    times = {name: np.empty((count, 3)) for name in searches}
    for turn in (*range(count), *range(count)):
        for name, asking in searches.items():
            started = time.perf_counter()
            took_ms = asking.search(turn, CANDIDATES).took_ms
            total_ms = 1000 * (time.perf_counter() - started)
            times[name][turn] = took_ms.retrieve, took_ms.rerank, total_ms
    return {
        name: dict(
            zip(("retrieve_ms", "rerank_ms", "search_ms"), np.median(each, axis=0), strict=True)
        )
        | {"p95_ms": float(np.quantile(each[:, 2], 0.95))}
        for name, each in times.items()
    }


def _gpu_bytes() -> int:
    """Return how much of the GPU's memory is in use, by any library."""
    if not torch.cuda.is_available():
        return 0
    free, total = torch.cuda.mem_get_info()
    return total - free


def print_table(figures: dict[str, Any]) -> None:
    """Print one line per engine."""
    print(figures["gpu"] or "torch finds no GPU here: only the processor was measured.")
    names = ("start_s", "retrieve_ms", "rerank_ms", "search_ms", "p95_ms", "ann_recall")
    rows: list[list[str]] = []
    for engine, values in figures["engines"].items():
        if values is None:
            rows.append([engine, "not usable here, see the warning", *[""] * len(names)])
            continue
        cells = [f"{values[name]:.3f}" for name in names]
        rows.append([engine, *cells, f"{values['gpu_bytes'] / 2**20:.0f}"])
    print_rows([f"{figures['items']:,} photos", *names, "GPU MiB"], rows)


if __name__ == "__main__":
    main()
