"""Counts the work of a query: calls, allocations and time of each step, and what threads gain.

    python -m benchmarks.search.query_work [--items 100000] [--index INDEX] [--json] [--quick]

Encoded texts search synthetic photos (see `benchmarks.lib.synthetic`), 100 candidates, ten hits.

python_calls   calls of Python functions for a query
native_calls   calls of functions in C, those of numpy and FAISS among them
allocated      largest number of bytes that Python and numpy hold for a query besides its answer
steps          processor time in us of each step; the rest is that of checking the search
batch          processor time of a query in batches of so many, over that of a lone query
two_over_one   queries per second of two threads that ask one at a time, over those of one; rounds
               of both alternate, so that other load slows both alike
"""

from __future__ import annotations

import sys
import tempfile
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import numpy as np

import aladin_index.search.searcher as searcher_module
from aladin_index.generations.reader import open_index
from aladin_index.search.searcher import AskedSearch, TwoStageSearcher
from benchmarks.lib.measuring import use_one_thread
from benchmarks.lib.output import figures_parser, print_figures
from benchmarks.lib.synthetic import SyntheticPhotos
from benchmarks.lib.synthetic_sources import find_source
from benchmarks.search.scale import build
from benchmarks.search.searches import CANDIDATES, TextSearches, throughput

_QUERIES = 500
_BATCHES = (1, 8, 16)
# Functions of the searcher's module that are the steps of a search.
_STEPS = ("retrieve", "rerank", "judge", "present")


def measure(root: Path, items: int, queries: int, rounds: int, round_s: float) -> dict[str, Any]:
    """Measure the searches of an index.

    Args:
        root: Folder of the index of synthetic photos.
        items: Number of its photos.
        queries: Number of different queries.
        rounds: Number of rounds of each number of threads.
        round_s: Seconds of a round.
    """
    use_one_thread()
    texts = SyntheticPhotos(find_source(None)).queries(queries, items, seed=1)
    with open_index(root) as index:
        searcher = TwoStageSearcher(index)
        asking = TextSearches(searcher, texts)
        asked = [asking.asked(turn, CANDIDATES) for turn in range(queries)]
        for each in asked:
            searcher.search(*each)  # reads the pages of its items
        figures: dict[str, Any] = {"items": items}
        figures |= _count_calls(searcher, asked)
        figures["allocated"] = _allocated(searcher, asked)
        figures["steps"] = _steps_us(searcher, asked)
        figures["batch"] = _batches(searcher, asked)
        rates = [
            [throughput(asking, threads, round_s) for threads in (1, 2)] for _ in range(rounds)
        ]
        one, two = np.median(rates, axis=0)
        figures |= {"one_per_s": float(one), "two_per_s": float(two)}
        figures["two_over_one"] = float(np.median([pair[1] / pair[0] for pair in rates]))
    return figures


def _count_calls(searcher: TwoStageSearcher, asked: Sequence[AskedSearch]) -> dict[str, float]:
    counts: Counter[str] = Counter()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        del frame, argument
        counts[event] += 1

    for each in asked:
        sys.setprofile(note)
        searcher.search(*each)
        sys.setprofile(None)
    # The last call in C is that of `setprofile` itself.
    return {
        "python_calls": counts["call"] / len(asked),
        "native_calls": counts["c_call"] / len(asked) - 1,
    }


def _allocated(searcher: TwoStageSearcher, asked: Sequence[AskedSearch]) -> int:
    peaks: list[int] = []
    tracemalloc.start()
    try:
        for each in asked:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            searcher.search(*each)
            peaks.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    return int(np.median(peaks))


def _steps_us(searcher: TwoStageSearcher, asked: Sequence[AskedSearch]) -> dict[str, float]:
    """Return the median processor time of each step; what is not in a step is `rest`."""
    taken: dict[str, list[float]] = {step: [] for step in _STEPS}

    def timed(step: str, run: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            started = time.thread_time()
            result = run(*args)
            taken[step].append(time.thread_time() - started)
            return result

        return call

    total: list[float] = []
    with ExitStack() as patched:
        for step in _STEPS:
            run = timed(step, getattr(searcher_module, step))
            patched.enter_context(patch.object(searcher_module, step, run))
        for each in asked:
            started = time.thread_time()
            searcher.search(*each)
            total.append(time.thread_time() - started)
    medians = {step: 1e6 * float(np.median(seconds)) for step, seconds in taken.items()}
    whole = 1e6 * float(np.median(total))
    return {**medians, "rest": whole - sum(medians.values()), "total": whole}


def _batches(searcher: TwoStageSearcher, asked: Sequence[AskedSearch]) -> dict[str, float]:
    """Return the processor time of a query in batches of each size, over that of a lone one."""
    times: dict[int, list[float]] = {size: [] for size in _BATCHES}
    for start in range(0, len(asked) - max(_BATCHES) + 1, max(_BATCHES)):
        for size in _BATCHES:  # in turn, so that other load slows all alike
            began = time.thread_time()
            for first in range(start, start + max(_BATCHES), size):
                searcher.search_all(asked[first : first + size])
            times[size].append(time.thread_time() - began)
    alone = float(np.median(times[1]))
    return {str(size): float(np.median(times[size])) / alone for size in _BATCHES}


def main() -> None:
    """Run the measurements, and print a table or JSON."""
    parser = figures_parser(__doc__, "2,000 photos, a few seconds")
    parser.add_argument("--items", type=int, default=100_000, help="number of photos")
    parser.add_argument("--index", type=Path, help="index of so many photos that `scale` has kept")
    options = parser.parse_args()
    items, queries, rounds, round_s = options.items, _QUERIES, 7, 1.0
    if options.quick:
        items, queries, rounds, round_s = 2000, 32, 2, 0.1
    place = tempfile.TemporaryDirectory() if options.index is None else nullcontext("")
    with place as folder:
        root = options.index or Path(folder) / "index"
        if options.index is None:
            build(root, items, "int8", "auto", None)
        figures = measure(root, items, queries, rounds, round_s)
    print_figures(figures, as_json=options.json)


if __name__ == "__main__":
    main()
