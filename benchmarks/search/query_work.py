"""Counts the work of a query: calls, allocations and time of each step, and what threads gain.

    python -m benchmarks.search.query_work [--items 100000] [--index INDEX] [--json] [--quick]

Encoded texts search synthetic photos (see `benchmarks.lib.synthetic`), 100 candidates, ten hits.

python_calls   calls of Python functions for a query
native_calls   calls of functions in C, those of numpy and FAISS among them
allocated      largest number of bytes that Python and numpy hold for a query besides its answer
steps          processor time in us of each step; the rest is that of checking the search
batch          processor time of a query in batches of so many, over that of a lone query
per_s          by size of the batches: queries per second of one thread, and of two; rounds of both
               alternate, so that other load slows both alike
two_over_one   by size of the batches: those of two threads over those of one
cpu_us         by size of the batches: processor time in us of a query on one thread, and on two
processes_per_s  by size of the batches: queries per second of two processes (not with --quick)
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple
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
from benchmarks.search.searches import CANDIDATES, TextSearches

_QUERIES = 500
_SPAWN = multiprocessing.get_context("spawn")
_BATCHES = (1, 8, 16)
# Functions of the searcher's module that are the steps of a search.
_STEPS = ("retrieve", "rerank", "judge", "present")


def measure(
    root: Path, items: int, queries: int, rounds: int, round_s: float, *, processes: bool = False
) -> dict[str, Any]:
    """Measure the searches of an index.

    Args:
        root: Folder of the index of synthetic photos.
        items: Number of its photos.
        queries: Number of different queries.
        rounds: Number of rounds of each number of threads.
        round_s: Seconds of a round.
        processes: Whether to measure two processes as well.
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
        figures |= _rates(searcher, asked, rounds, round_s)
    if processes:
        figures["processes_per_s"] = _processes_per_s(root, asked, rounds, round_s)
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


class _Rate(NamedTuple):
    """Queries per second, and the processor time of a query in us."""

    per_s: float
    cpu_us: float


def _rates(
    searcher: TwoStageSearcher, asked: Sequence[AskedSearch], rounds: int, round_s: float
) -> dict[str, Any]:
    """Measure one thread and two threads, with each size of the batches."""
    figures: dict[str, Any] = {name: {} for name in ("per_s", "two_over_one", "cpu_us")}
    for size in _BATCHES:
        rates = [
            [_rate(searcher, asked, threads, size, round_s) for threads in (1, 2)]
            for _ in range(rounds)
        ]
        one, two = np.median(rates, axis=0)  # (2,) each
        figures["per_s"][str(size)] = [float(one[0]), float(two[0])]
        figures["two_over_one"][str(size)] = float(two[0] / one[0])
        figures["cpu_us"][str(size)] = [float(one[1]), float(two[1])]
    return figures


def _processes_per_s(
    root: Path, asked: Sequence[AskedSearch], rounds: int, round_s: float
) -> dict[str, float]:
    """Return the queries per second of two processes, by size of the batches."""
    pipes = [_SPAWN.Pipe() for _ in range(2)]
    children = [_SPAWN.Process(target=_search, args=(root, asked, pipe[1])) for pipe in pipes]
    for child in children:
        child.start()
    connections = [ours for ours, _ in pipes]
    for each in connections:
        each.recv()  # it is ready
    per_s: dict[str, float] = {}
    for size in _BATCHES:
        sums: list[float] = []
        for _ in range(rounds):
            for each in connections:
                each.send((size, round_s))
            sums.append(sum(each.recv() for each in connections))
        per_s[str(size)] = float(np.median(sums))
    for each, child in zip(connections, children, strict=True):
        each.send(None)
        child.join()
    return per_s


def _search(root: Path, asked: Sequence[AskedSearch], told: Connection) -> None:
    use_one_thread()
    with open_index(root) as index:
        searcher = TwoStageSearcher(index)
        searcher.search_all(asked)  # reads the pages of its items
        told.send(None)
        while (order := told.recv()) is not None:
            told.send(_rate(searcher, asked, 1, *order).per_s)


def _rate(
    searcher: TwoStageSearcher,
    asked: Sequence[AskedSearch],
    threads: int,
    size: int,
    seconds: float,
) -> _Rate:
    """Measure threads that each send a batch after the other."""
    batches = [asked[start : start + size] for start in range(0, len(asked) - size + 1, size)]
    until = time.perf_counter() + seconds

    def ask(thread: int) -> tuple[int, float]:
        turn, began = thread, time.thread_time()
        while turn == thread or time.perf_counter() < until:
            searcher.search_all(batches[turn % len(batches)])
            turn += threads
        return (turn - thread) // threads * size, time.thread_time() - began

    started = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        counts, times = zip(*pool.map(ask, range(threads)), strict=True)
    elapsed = time.perf_counter() - started
    return _Rate(sum(counts) / elapsed, 1e6 * sum(times) / sum(counts))


def main() -> None:
    """Run the measurements, and print a table or JSON."""
    parser = figures_parser(__doc__, "2,000 photos, a few seconds")
    parser.add_argument("--items", type=int, default=100_000, help="number of photos")
    parser.add_argument("--index", type=Path, help="index of so many photos that `scale` has kept")
    options = parser.parse_args()
    items, queries, rounds, round_s = options.items, _QUERIES, 5, 0.5
    if options.quick:
        items, queries, rounds, round_s = 2000, 32, 2, 0.1
    place = tempfile.TemporaryDirectory() if options.index is None else nullcontext("")
    with place as folder:
        root = options.index or Path(folder) / "index"
        if options.index is None:
            build(root, items, "int8", "auto", None)
        figures = measure(root, items, queries, rounds, round_s, processes=not options.quick)
    print_figures(figures, as_json=options.json)


if __name__ == "__main__":
    main()
