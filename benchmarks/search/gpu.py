"""FAISS and torch alone on a GPU: steps of `python -m benchmarks.card`.

For each kind of index:

built_s, card_bytes    seconds to build and copy it; memory of the GPU that it takes
recall                 share of the exact nearest 10 and 100 that are among as many found
batches                by number of queries at a time: p10_ms, p50_ms, queries_per_s; queries come
                       from, and rows return to, the processor's memory

Without a GPU, the tiny form measures the same on the processor.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from aladin_index.ann import faiss
from aladin_index.ann.ann_index import build_ann
from aladin_index.ann.first_stage_build import ann_options
from aladin_index.devices.card import Card
from aladin_index.devices.search_device import find_card
from aladin_network.types import NullProgress
from benchmarks.lib.steps import Report, Setup, SkippedError
from benchmarks.lib.synthetic import SyntheticPhotos
from benchmarks.lib.synthetic_sources import find_source
from benchmarks.search.ann_factories import draw_embeddings

BATCHES = (1, 16, 64, 256)
_NEAREST = 100
_LISTS_SEARCHED = (8, 32, 128)
QUERIES, QUICK_QUERIES = 1024, 256
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
    count = QUICK_QUERIES if setup.is_quick else QUERIES
    queries = photos.queries(count, setup.items).embeddings
    np.save(setup.folder / "queries.npy", queries)
    started = time.perf_counter()
    find = torch_search(embeddings, device, torch.float32)
    nearest = np.concatenate([find(queries[at : at + 64]) for at in range(0, count, 64)])
    report("exact_s", time.perf_counter() - started)
    np.save(setup.folder / "nearest.npy", nearest)
    report("device", device)


def faiss_alone(setup: Setup, report: Report) -> None:
    """Measure FAISS's flat search in half precision, and its inverted lists of 8 bits."""
    device, drawn = device_of(setup), Drawn.read(setup.folder)
    report("device", device)
    flat, started, before = card_of(device), time.perf_counter(), card_bytes()
    values = flat.copy(drawn.embeddings, flat.dtype)
    figures: dict[str, Any] = {"copied_s": time.perf_counter() - started}
    figures["card_bytes"] = card_bytes() - before
    faiss_card = flat.faiss

    def find_all(queries: NDArray[np.float32]) -> NDArray[np.int64]:
        asked = flat.tensor(queries, flat.dtype)
        if faiss_card is None:
            return faiss.knn(queries, values.numpy(), _NEAREST, faiss.METRIC_INNER_PRODUCT)[1]
        return faiss_card.search_all(values, asked, _NEAREST)

    report("flat", figures | measure_find(find_all, drawn, setup.measuring_s / 2))
    last = ann_options(setup.items, drawn.embeddings.shape[1])[-1]
    lists = [part for part in last.factory.split(",") if part.startswith("IVF")]
    factory, started = f"{(lists or ['IVF32'])[0]},SQ8", time.perf_counter()
    index = build_ann(factory, drawn.embeddings, NullProgress())
    figures = {"factory": factory, "built_s": time.perf_counter() - started, "widths": {}}
    for width in _LISTS_SEARCHED:
        before = card_bytes()
        copy = None if faiss_card is None else faiss_card.copy_lists(index, width)
        index.nprobe = width

        def find(queries: NDArray[np.float32], copy: Any = copy) -> NDArray[np.int64]:
            if faiss_card is None:
                return index.search(queries, _NEAREST)[1]
            return faiss_card.search_lists(copy, queries, _NEAREST)

        figures["card_bytes"] = card_bytes() - before
        seconds = setup.measuring_s / 2 / len(_LISTS_SEARCHED)
        figures["widths"][width] = measure_find(find, drawn, seconds)
        report("inverted lists, 8 bits", figures)
        del copy
    flat.close()


class _Processor(Card):
    """The processor in place of a GPU."""

    def free_bytes(self) -> int:
        return sys.maxsize


def card_of(device: str, *, with_faiss: bool = True) -> Card:
    """Return the GPU; in the tiny form the processor in its place, without FAISS."""
    if device == "cpu":
        return _Processor(torch.device(device), torch.float32)
    card = find_card()
    return card if with_faiss else Card(card.device)


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
    for size in BATCHES:
        starts = range(0, len(queries) - size + 1, size)

        def ask(turn: int, size: int = size, starts: range = starts) -> object:
            start = starts[turn % len(starts)]
            return find(queries[start : start + size])

        batches[size] = batch_figures(times_ms(ask, seconds / len(BATCHES)), size)
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


def card_bytes() -> int:
    """Return how much of the card's memory is in use, by any library."""
    if not torch.cuda.is_available():
        return 0
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return total - free
