"""Searches on a card beside the processor: the steps of `python -m benchmarks.card`.

Of FAISS and torch alone, for each kind of index:

built_s, card_bytes    seconds to build and copy it; memory of the card that it takes
recall                 share of the exact nearest 10 and 100 that are among as many found
batches                by number of queries at a time: p10_ms, p50_ms, queries_per_s; queries come
                       from, and rows return to, the processor's memory

Of the product's two stages, for each engine:

start_s, card_bytes    seconds to open the index, with its copy on the card and a search that
                       verifies it; memory of the card that it takes
retrieve, rerank, search    p10_ms and p50_ms of one query at a time: the first stage, 100
                       candidates; the second; both with the look-up of the hits
batches                the same queries by `search_all`
ann_recall             share of the exact nearest 100 that is found
same_hits              share of the processor's top 10 that is found

processor     FAISS and the kernel on one thread, as the service answers a query
torch         exact search and re-ranking on the card
faiss         a copy of the first stage on the card; re-ranking on the processor

Without a card, the tiny form measures the same on the processor.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from aladin_index.ann.ann_index import AnnIndex, build_ann
from aladin_index.ann.first_stage_build import ann_options
from aladin_index.devices.faiss_card import FaissCard
from aladin_index.devices.search_device import SearchDevice
from aladin_index.generations.reader import open_index
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.types import FirstStageName, NullProgress
from benchmarks.lib.measuring import use_one_thread
from benchmarks.lib.steps import Report, Setup, SkippedError
from benchmarks.lib.synthetic import SyntheticPhotos, TextQueries
from benchmarks.lib.synthetic_sources import find_source
from benchmarks.search.ann_factories import draw_embeddings
from benchmarks.search.scale import build
from benchmarks.search.searches import CANDIDATES, ServedFirstStage, TextSearches, measure_recall

_BATCHES = (1, 16, 64, 256)
_NEAREST = 100
_LISTS_SEARCHED = (8, 32, 128)
_QUERIES, _QUICK_QUERIES = 1024, 256
_RECALL_QUERIES, _COMPARED_QUERIES = 50, 50
# Repetitions of a call: at least the former, at most the latter.
_LEAST, _MOST = 3, 300
# Scores of so many rows and 256 queries take 512 MiB in half precision.
_ROWS_AT_A_TIME = 2**20

# Finds the nearest 100 rows of each query; (queries, 256) float32 in, (queries, 100) int64 out.
Find = Callable[[NDArray[np.float32]], NDArray[np.int64]]


class Drawn(NamedTuple):
    """What `draw` has written.

    Attributes:
        embeddings: (photos, 256) float32, L2-normalised; mapped.
        queries: (queries, 256) float32, L2-normalised.
        nearest: (queries, 100) rows of the exact nearest photos, best first.
    """

    embeddings: NDArray[np.float32]
    queries: NDArray[np.float32]
    nearest: NDArray[np.int64]

    @classmethod
    def read(cls, folder: Path) -> Drawn:
        """Read the files of the step `draw`."""
        if not (folder / "nearest.npy").exists():
            raise SkippedError("the photos were not drawn: see the step before")
        names = ("embeddings", "queries", "nearest")
        return cls(*(np.load(folder / f"{name}.npy", mmap_mode="r") for name in names))


def device_of(setup: Setup) -> str:
    """Return the device to measure on: the card, or in the tiny form also the processor.

    Raises:
        SkippedError: If there is no card.
    """
    if torch.cuda.is_available():
        return "cuda:0"
    if setup.is_quick:
        return "cpu"
    raise SkippedError("torch finds no CUDA device")


def draw(setup: Setup, report: Report) -> None:
    """Draw photos and queries, and find the exact neighbours in float32."""
    device = device_of(setup)
    photos = SyntheticPhotos(find_source().divided()[0])
    started = time.perf_counter()
    embeddings = draw_embeddings(setup.folder / "embeddings.npy", photos, setup.items)
    report("photos", setup.items)
    report("draw_s", time.perf_counter() - started)
    count = _QUICK_QUERIES if setup.is_quick else _QUERIES
    queries = photos.queries(count, setup.items).embeddings
    np.save(setup.folder / "queries.npy", queries)
    started = time.perf_counter()
    find = torch_search(embeddings, device, torch.float32)
    nearest = np.concatenate([find(queries[at : at + 64]) for at in range(0, count, 64)])
    report("exact_s", time.perf_counter() - started)
    np.save(setup.folder / "nearest.npy", nearest)
    report("device", device)


def faiss_alone(setup: Setup, report: Report) -> None:
    """Measure FAISS's flat index in half precision, and its inverted lists of 8 bits."""
    device, drawn = device_of(setup), Drawn.read(setup.folder)
    card = None
    if device != "cpu":
        try:
            card = FaissCard()
        except RuntimeError as error:
            raise SkippedError(str(error)) from error
    report("device", device)
    last = ann_options(setup.items, drawn.embeddings.shape[1])[-1]
    lists = [part for part in last.factory.split(",") if part.startswith("IVF")]
    # The card's copy of plain vectors is in half precision.
    flat = "SQfp16" if card is None else "Flat"
    kinds: dict[str, tuple[str, tuple[int, ...]]] = {"flat, half precision": (flat, (1,))}
    kinds["inverted lists, 8 bits"] = (f"{(lists or ['IVF32'])[0]},SQ8", _LISTS_SEARCHED)
    for name, (factory, widths) in kinds.items():
        started, before = time.perf_counter(), card_bytes()
        index = build_ann(factory, drawn.embeddings, NullProgress())
        built_s = time.perf_counter() - started
        on_device = index if card is None else card.copy(AnnIndex(index, 1), drawn.embeddings)
        figures: dict[str, Any] = {"factory": factory, "built_s": built_s}
        figures |= {"copied_s": time.perf_counter() - started - built_s}
        figures |= {"card_bytes": card_bytes() - before, "widths": {}}
        for width in widths:
            if len(widths) > 1:
                on_device.nprobe = width

            def find(queries: NDArray[np.float32], index: Any = on_device) -> NDArray[np.int64]:
                if card is None:
                    return index.search(queries, _NEAREST)[1]
                return card.owner.run(lambda: index.search(queries, _NEAREST))[1]

            seconds = setup.measuring_s / len(kinds) / len(widths)
            figures["widths"][width] = measure_find(find, drawn, seconds)
            report(name, figures)
        del on_device


def torch_alone(setup: Setup, report: Report) -> None:
    """Measure torch's product with all vectors, in half and in single precision."""
    device, drawn = device_of(setup), Drawn.read(setup.folder)
    report("device", device)
    for name, dtype in (("half precision", torch.float16), ("single precision", torch.float32)):
        started, before = time.perf_counter(), card_bytes()
        find = torch_search(drawn.embeddings, device, dtype)
        figures: dict[str, Any] = {"copied_s": time.perf_counter() - started}
        figures["card_bytes"] = card_bytes() - before
        figures |= measure_find(find, drawn, setup.measuring_s / 2)
        report(f"flat, {name}", figures)


def torch_search(embeddings: NDArray[np.float32], device: str, dtype: torch.dtype) -> Find:
    """Return an exhaustive search of a copy of the embeddings, for any number of queries."""
    vectors = torch.empty(embeddings.shape, dtype=dtype, device=device)
    for start in range(0, len(embeddings), _ROWS_AT_A_TIME):
        part = np.array(embeddings[start : start + _ROWS_AT_A_TIME])
        vectors[start : start + len(part)] = torch.from_numpy(part).to(dtype)

    def find(queries: NDArray[np.float32]) -> NDArray[np.int64]:
        asked = torch.from_numpy(np.array(queries)).to(device, dtype)
        scores, rows = [], []
        with torch.inference_mode():
            for start in range(0, len(vectors), _ROWS_AT_A_TIME):
                part = asked @ vectors[start : start + _ROWS_AT_A_TIME].T  # (queries, rows)
                best = part.topk(min(_NEAREST, part.shape[1]))
                scores.append(best.values)
                rows.append(best.indices + start)
            best = torch.cat(scores, dim=1).topk(min(_NEAREST, len(vectors)))
            return torch.cat(rows, dim=1).gather(1, best.indices).cpu().numpy()

    return find


def measure_find(find: Find, drawn: Drawn, seconds: float) -> dict[str, Any]:
    """Measure the recall of a search, and its time by number of queries.

    Args:
        find: The search.
        drawn: Photos, queries and their exact neighbours.
        seconds: Time to take at most, but that each size of a batch is timed three times.
    """
    queries = np.ascontiguousarray(drawn.queries)
    parts = [find(queries[start : start + 64]) for start in range(0, len(queries), 64)]
    found = np.concatenate(parts)
    recall = {
        f"recall_at_{count}": float(
            np.mean([
                len(np.intersect1d(ours[:count], exact[:count])) / count
                for ours, exact in zip(found, drawn.nearest, strict=True)
            ])
        )
        for count in (10, _NEAREST)
    }  # fmt: skip
    batches: dict[int, dict[str, float]] = {}
    for size in _BATCHES:
        starts = range(0, len(queries) - size + 1, size)

        def ask(turn: int, size: int = size, starts: range = starts) -> object:
            start = starts[turn % len(starts)]
            return find(queries[start : start + size])

        batches[size] = batch_figures(times_ms(ask, seconds / len(_BATCHES)), size)
    return recall | {"batches": batches}


def times_ms(run: Callable[[int], object], seconds: float) -> NDArray[np.float64]:
    """Time a function, called with the number of the repetition, for some seconds."""
    for turn in range(3):
        run(turn)
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < _LEAST or (len(times) < _MOST and time.perf_counter() < end):
        started = time.perf_counter()
        run(len(times))
        times.append(1000 * (time.perf_counter() - started))
    return np.array(times)


def batch_figures(times: NDArray[np.float64], size: int) -> dict[str, float]:
    """Return figures of calls with `size` queries each."""
    p10, p50 = np.quantile(times, (0.1, 0.5))
    return {"p10_ms": float(p10), "p50_ms": float(p50), "queries_per_s": float(1000 * size / p50)}


def two_stages(setup: Setup, report: Report) -> None:
    """Build an index, and search it with every engine of this machine."""
    device = device_of(setup)
    root = setup.folder / f"index-{setup.items}"
    report("build", build(root, setup.items, "int8", "auto", None))
    count = _QUICK_QUERIES if setup.is_quick else _QUERIES
    # Captions that are not in the index.
    queries = SyntheticPhotos(find_source().divided()[1]).queries(count, setup.items, seed=1)
    use_one_thread()
    engines: dict[str, tuple[str, FirstStageName]] = {
        "processor": ("cpu", "faiss"),
        f"torch on {device}": (device, "torch"),
    }
    if device != "cpu":
        engines[f"faiss on {device}"] = (device, "faiss")
    expected: list[set[str]] = []
    for name, where in engines.items():
        engine = SearchDevice(*where)
        try:
            figures, hits = _measure_engine(root, engine, queries, setup.measuring_s / 6)
        finally:
            engine.close()
        if figures is None:
            report(name, {"refused": "failed its verification, see the warning"})
            continue
        expected = expected or hits
        shares = [
            len(ours & first) / len(first) for ours, first in zip(hits, expected, strict=True)
        ]
        report(name, figures | {"same_hits": float(np.mean(shares))})
    shutil.rmtree(root)


def _measure_engine(
    root: Path, engine: SearchDevice, queries: TextQueries, seconds: float
) -> tuple[dict[str, Any] | None, list[set[str]]]:
    """Return the figures of an engine and the ids that it finds, or None if it was refused."""
    before, started = card_bytes(), time.perf_counter()
    with open_index(root, device=engine) as index:
        figures: dict[str, Any] = {"start_s": time.perf_counter() - started}
        figures["card_bytes"] = card_bytes() - before
        if not engine.is_good:  # it could not be verified: the processor searches the stored ANN
            return None, []
        searcher = TwoStageSearcher(index)
        asking = TextSearches(searcher, queries)
        taken: list[tuple[float, float]] = []

        def ask(turn: int) -> None:
            took_ms = asking.search(turn, CANDIDATES).took_ms
            taken.append((took_ms.retrieve, took_ms.rerank))

        whole = times_ms(ask, seconds)
        timed = np.array(taken[-len(whole) :])
        for name, times in {
            "retrieve": timed[:, 0],
            "rerank": timed[:, 1],
            "search": whole,
        }.items():
            figures[name] = batch_figures(times, 1)
        batches: dict[int, dict[str, float]] = {}
        for size in _BATCHES[1:]:

            def ask_all(turn: int, size: int = size) -> object:
                places = range(turn * size, (turn + 1) * size)
                return searcher.search_all([asking.asked(each, CANDIDATES) for each in places])

            batches[size] = batch_figures(times_ms(ask_all, seconds / len(_BATCHES)), size)
        figures["batches"] = batches
        figures["ann_recall"] = measure_recall(
            ServedFirstStage(index.collection("images").base, queries), _RECALL_QUERIES
        )
        hits = [
            {hit.id for hit in asking.search(turn, CANDIDATES).hits}
            for turn in range(_COMPARED_QUERIES)
        ]
    return figures, hits


def card_bytes() -> int:
    """Return how much of the card's memory is in use, by any library."""
    if not torch.cuda.is_available():
        return 0
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return total - free
