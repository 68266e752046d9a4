"""Measurements of searches in an index of synthetic photos, in a process that did not build it.

Queries are texts that are already encoded. Results are compared with exact search, and with
exhaustive alignment.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.ann import faiss
from aladin_index.ann.exact_search import largest
from aladin_index.format.manifest import AnnEntry
from aladin_index.generations.reader import open_index
from aladin_index.search.file_collection import StoredCollection
from aladin_index.search.options import AskedSearch, SearchOptions
from aladin_index.search.query import Term
from aladin_index.search.results import SearchAnswer
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.tokens.maxsim import alignment_with_all
from benchmarks.lib.measuring import ratio, time_in_turn, use_one_thread
from benchmarks.lib.processes import peak_rss_bytes, status_bytes
from benchmarks.lib.small_collection import text_encoding
from benchmarks.lib.synthetic import TextQueries

CANDIDATES = 100
TOP = 10

_FIDELITY_WANTED = 0.99
# Steps of about 20 %.
_LADDER = (
    *(10, 20, 30, 50, 70, 85, 100, 120, 150, 170, 200, 220, 250, 300, 350, 400, 500, 600, 700),
    *(850, 1000, 1200, 1500, 1700, 2000, 2500, 3000),
)

_THROUGHPUT_THREADS = (1, 2)
# Scores of exhaustive alignment in memory at a time, of as many queries as that allows.
_SCORES = 2**28
# Vectors of which FAISS's own comparison makes a copy in memory.
_COPIED_BYTES = 2**32


class TextSearches:
    """Searches photos with encoded texts, selected by number."""

    def __init__(self, searcher: TwoStageSearcher, queries: TextQueries) -> None:
        """Create a search with `queries`."""
        self._searcher = searcher
        self.queries = queries
        self.words = queries.words
        self._encodings = [
            text_encoding(embedding, words)
            for embedding, words in zip(queries.embeddings, queries.words, strict=True)
        ]

    def asked(self, turn: int, candidates: int | Literal["exhaustive"]) -> AskedSearch[Term]:
        """Return the search with query number `turn`, starting over after the last query."""
        query = Term(self._encodings[turn % len(self._encodings)], "text")
        return AskedSearch(query, "images", SearchOptions(k=TOP, candidates=candidates, fusion=1.0))

    def search(self, turn: int, candidates: int) -> SearchAnswer:
        """Search with query number `turn`."""
        asked = self.asked(turn, candidates)
        return self._searcher.search(asked.query, asked.target, asked.options)


class ServedFirstStage:
    """What finds the candidates of a search by alignment alone.

    Attributes:
        collection: Collection of the photos.
        asked: (queries, dim) float32, the embedding of each query.
    """

    def __init__(self, collection: StoredCollection, queries: TextQueries) -> None:
        """Search a collection with the queries' embeddings."""
        self.collection, self.asked = collection, queries.embeddings

    def find(self, query: NDArray[np.float32], count: int) -> NDArray[np.int64]:
        """Return candidates for a query's embedding."""
        return self.collection.candidates(query, count)[0]


def measure_recall(stage: ServedFirstStage, count: int) -> float:
    """Return the share of the exact nearest photos that are candidates of up to `count` queries."""
    asked, vectors = stage.asked[:count], stage.collection.embeddings
    # All queries in one pass over the vectors, which may be more than the memory holds.
    wanted = min(CANDIDATES, len(vectors))
    _, nearest = faiss.knn(asked, vectors, wanted, metric=faiss.METRIC_INNER_PRODUCT)
    found = [stage.find(query, CANDIDATES) for query in asked]
    return float(np.mean([np.isin(*each).mean() for each in zip(nearest, found, strict=True)]))


def measure_fidelity(
    collection: StoredCollection, asking: TextSearches, count: int
) -> dict[str, Any]:
    """Find the fewest candidates that preserve the exhaustive top hits, and their fidelity.

    One half of the queries chooses the number, the other is what the fidelity is measured with.

    Args:
        collection: Collection of the photos.
        asking: Searches of the same photos, by alignment alone.
        count: Number of queries.
    """
    together = max(1, _SCORES // collection.entry.count)
    best = [
        largest(of_query, TOP)
        for start in range(0, count, together)
        for of_query in alignment_with_all(
            asking.words[start : min(start + together, count)], "text", collection.tokens
        )
    ]
    half = count // 2
    curve: dict[str, float] = {}
    chosen = collection.entry.count
    for candidates in _LADDER:
        if candidates >= collection.entry.count:
            break
        shares = _kept(asking, best, range(half), candidates)
        curve[str(candidates)] = float(shares.mean())
        # The margin is the standard error of so few queries; without it, the other half would miss
        # the target as often as not.
        if shares.mean() - shares.std() / math.sqrt(half) >= _FIDELITY_WANTED:
            chosen = candidates
            break
    held_out = range(half, count)
    return {
        "candidates": chosen,
        "fidelity": float(_kept(asking, best, held_out, chosen).mean()),
        "fidelity_at_100": float(_kept(asking, best, held_out, CANDIDATES).mean()),
        "fidelity_curve": curve,
        "fidelity_queries": len(held_out),
    }


def _kept(
    asking: TextSearches, best: Sequence[NDArray[np.int64]], queries: range, candidates: int
) -> NDArray[np.float64]:
    """Return the fraction of each query's best photos that are among its hits."""
    shares: list[float] = []
    for number in queries:
        found = {hit.id for hit in asking.search(number, candidates).hits}
        shares.append(len(found & {f"photo-{row}" for row in best[number]}) / len(best[number]))
    return np.array(shares)


class Effort(NamedTuple):
    """Number of repetitions of each measurement.

    Attributes:
        searches: Number of timed searches.
        recall_queries: Number of queries compared with exact search.
        fidelity_queries: Number of queries compared with exhaustive alignment.
        exhaustive_runs: Number of timed runs of exhaustive alignment.
        throughput_s: Seconds of searching for each number of threads.
    """

    searches: int
    recall_queries: int
    fidelity_queries: int
    exhaustive_runs: int
    throughput_s: float


def measure_search(root: Path, queries: TextQueries, effort: Effort) -> dict[str, Any]:
    """Open an index and measure its searches.

    All are text to images, by alignment alone, one at a time unless said.

    Args:
        root: Folder of the index.
        queries: Queries, as many as the largest number in `effort`.
        effort: Repetitions.
    """
    use_one_thread()
    started = time.perf_counter()
    with open_index(root) as index:
        open_ms = 1000 * (time.perf_counter() - started)
        collection = index.collection("images").base
        asking = TextSearches(TwoStageSearcher(index), queries)
        stage = ServedFirstStage(collection, queries)
        figures: dict[str, Any] = {
            "ann": stage.collection.entry.ann.factory,
            "search_width": stage.collection.entry.ann.search_width,
            "open_ms": open_ms,
        }
        figures |= _latency(asking, effort.searches)
        figures["queries_per_s"] = {
            str(threads): throughput(asking, threads, effort.throughput_s)
            for threads in _THROUGHPUT_THREADS
        }
        # The following measurements read data that no search reads, or more at a time than a
        # search.
        figures["search_rss_bytes"] = peak_rss_bytes()
        if (anonymous := status_bytes("self", "RssAnon")) is not None:
            figures["search_anonymous_bytes"] = anonymous
        figures["ann_recall"] = measure_recall(stage, effort.recall_queries)
        figures |= measure_fidelity(collection, asking, effort.fidelity_queries)
        figures |= _at_fidelity(asking, figures["candidates"], effort.searches)
        figures |= _against_faiss(stage, effort.searches)
        figures |= _against_exhaustive(
            stage, asking, figures["candidates"], effort.exhaustive_runs, effort.searches
        )
    return figures


def _latency(asking: TextSearches, searches: int) -> dict[str, float]:
    """Time whole searches and their parts, with all required pages in memory."""

    def once(turn: int) -> tuple[float, float, float]:
        started = time.perf_counter()
        result = asking.search(turn, CANDIDATES)
        total_ms = 1000 * (time.perf_counter() - started)
        return total_ms, result.took_ms.retrieve, result.took_ms.rerank

    first = np.array([once(turn) for turn in range(searches)])
    total, retrieve, rerank = np.array([once(turn) for turn in range(searches)]).T
    return {
        "p50_ms": float(np.quantile(total, 0.5)),
        "p95_ms": float(np.quantile(total, 0.95)),
        "first_pass_p50_ms": float(np.quantile(first[:, 0], 0.5)),
        "first_pass_p95_ms": float(np.quantile(first[:, 0], 0.95)),
        "retrieve_p50_ms": float(np.quantile(retrieve, 0.5)),
        "rerank_p50_ms": float(np.quantile(rerank, 0.5)),
    }


def _at_fidelity(asking: TextSearches, candidates: int, searches: int) -> dict[str, float]:
    """Time the two stages of whole searches that keep the fidelity, once their pages are read."""
    for turn in range(searches):
        asking.search(turn, candidates)
    took = [asking.search(turn, candidates).took_ms for turn in range(searches)]
    return {"stages_p50_ms": float(np.median([each.retrieve + each.rerank for each in took]))}


def throughput(asking: TextSearches, threads: int, seconds: float) -> float:
    """Return the queries per second of several threads, each of which sends one at a time."""
    until = time.perf_counter() + seconds

    def ask(thread: int) -> int:
        turn = thread
        while time.perf_counter() < until:
            asking.search(turn, CANDIDATES)
            turn += threads
        return (turn - thread) // threads

    started = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        answered = sum(pool.map(ask, range(threads)))
    return answered / (time.perf_counter() - started)


def _against_faiss(stage: ServedFirstStage, searches: int) -> dict[str, float]:
    """Time this project's first stage, and FAISS's own with the same parameters.

    An index that does not keep the vectors is asked for more rows, which are compared exactly.
    FAISS's own way to do that is `IndexRefineFlat`, with as large a factor; what it refines alone
    finds less.
    """
    raw, entry, asked = stage.collection.ann.faiss_index, stage.collection.entry.ann, stage.asked
    wanted = min(math.ceil(CANDIDATES * entry.oversample), len(stage.collection.embeddings))
    parameters = raw_parameters(raw, entry, wanted)
    count = min(CANDIDATES, len(stage.collection.embeddings))

    def query(turn: int, share: float) -> NDArray[np.float32]:
        # Never the query that was just searched: its lists would be in the caches.
        return asked[(turn + int(share * len(asked))) % len(asked)][None]

    runs: dict[str, Callable[[int], object]] = {
        "ours": lambda turn: stage.find(query(turn, 0)[0], count),
        "unrefined": lambda turn: raw.search(query(turn, 1 / 3), wanted, params=parameters),
    }
    is_refined = entry.oversample > 1
    if is_refined and stage.collection.embeddings.nbytes <= _COPIED_BYTES:
        vectors = np.ascontiguousarray(stage.collection.embeddings)
        refined = faiss.IndexRefineFlat(raw, faiss.swig_ptr(vectors))
        refining = faiss.IndexRefineSearchParameters(
            k_factor=entry.oversample, base_index_params=parameters
        )
        runs["faiss"] = lambda turn: refined.search(query(turn, 2 / 3), count, params=refining)
    times = time_in_turn(runs, searches)
    figures = {
        "retrieve_ms": float(np.median(times["ours"])),
        "retrieve_over_faiss_unrefined": ratio(times, "ours", "unrefined"),
    }
    if not is_refined:
        times["faiss"] = times["unrefined"]
    if "faiss" in times:
        figures["faiss_ms"] = float(np.median(times["faiss"]))
        figures["retrieve_over_faiss"] = ratio(times, "ours", "faiss")
    return figures


def raw_parameters(raw: Any, entry: AnnEntry, wanted: int) -> Any:
    """Return FAISS's search parameters for a manifest's entry, or None if it needs none."""
    if entry.search_width is None:
        return None
    if isinstance(raw, faiss.IndexHNSW):
        return faiss.SearchParametersHNSW(efSearch=max(entry.search_width, wanted))
    return faiss.SearchParametersIVF(nprobe=entry.search_width)


def _against_exhaustive(
    stage: ServedFirstStage, asking: TextSearches, candidates: int, runs: int, searches: int
) -> dict[str, float]:
    """Time the stages, the first alone and exhaustive alignment in turn, without look-ups."""
    collection = stage.collection

    def exhaustive(turn: int) -> object:
        words = asking.words[turn % len(asking.words)]
        return largest(alignment_with_all([words], "text", collection.tokens)[0], TOP)

    def two_stage(turn: int, count: int) -> object:
        place = turn % len(asking.words)
        rows = stage.find(stage.asked[place], count)
        words = asking.words[place]
        (scores,) = collection.second_stage.align_all([words], "text", [rows])
        return rows[largest(scores, TOP)]

    def matching(turn: int) -> object:
        return stage.find(stage.asked[turn % len(asking.words)], CANDIDATES)

    def repeated(run: Callable[[int], object]) -> Callable[[int], object]:
        return lambda turn: [run(turn * each + place) for place in range(each)]

    # Many repetitions for each exhaustive run, which evicts everything else from the caches.
    each = max(searches // runs, 1)
    times = time_in_turn(
        {
            "exhaustive": exhaustive,
            "two-stage": repeated(lambda turn: two_stage(turn, candidates)),
            "two-stage of 100": repeated(lambda turn: two_stage(turn, CANDIDATES)),
            "matching": repeated(matching),
        },
        runs,
        warm_up=1,
    )
    return {
        "exhaustive_ms": float(np.median(times["exhaustive"])),
        "two_stage_ms": float(np.median(times["two-stage"])) / each,
        "matching_ms": float(np.median(times["matching"])) / each,
        "exhaustive_over_two_stage": ratio(times, "exhaustive", "two-stage") * each,
        "two_stage_over_matching": ratio(times, "two-stage of 100", "matching"),
    }
