"""Times the exhaustive alignment of photos with a text: all bytes, and by bounds.

    python -m benchmarks.search.exhaustive [--json] [--quick] [--items 10000 100000]
        [--queries 1000] [--repetitions 100] [--tokens int8] [--source INDEX]
        [--peers-up-to 10000]

Synthetic photos of 49 regions of 128 values (see `benchmarks.lib.synthetic`), in memory; the ten
best photos for encoded texts, by the alignment alone, one text at a time, one thread. All are timed
in turn, repetition by repetition. Times are medians; `..._least_ms` is the smallest, which other
load on the machine inflates least.

all_ms          every token of every photo is scored
bounded_ms      bounds of all photos, then the scores of those that can be among the ten best
bound_ms        the bounds alone, a part of `bounded_ms`
overlap         share of the ten best of all bytes that the bounds leave, over `--queries` texts
same_scores     share of these texts whose ten scores are the same to the last bit
scored          photos scored in full: mean, median and largest number over the texts
bytes_all       bytes of tokens that `all_ms` reads
bytes_bounded   bytes that `bounded_ms` reads: of the short tokens, and of the photos scored
build_s         seconds in which the short tokens are computed, once an index
open_s          seconds in which they are mapped where the index stores them, and the bounds of the
                first text are computed

The ten best of the 1,000 candidates that are nearest by their embeddings, which lie scattered:

read_ms               their stored bytes are copied into one array, by torch
rerank_ms             all are scored
rerank_bounded_ms     bounds of all, then the scores of those that can be among the ten best
rerank_overlap        share of texts whose ten rows and scores are the same
rerank_scored         candidates scored in full: mean

Installed packages beside it, on the same decoded tokens in float32, which they quantise themselves:

colbandit       estimates the ten best, as published (`alpha_ef` 0.2) and at its conservative end
                (1): milliseconds, and the share of the ten best by all bytes
lateweave       scores every photo in float32
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aladin_index.ann.exact_search import largest
from aladin_index.tokens.bound_files import open_bounds, write_bounds
from aladin_index.tokens.bounds import TokenBounds, score_best
from aladin_index.tokens.codec import PackedTokens
from aladin_index.tokens.maxsim import alignment_with_all, alignment_with_candidates
from aladin_index.tokens.store import TokenStore, codec_for
from aladin_network.types import TOKEN_DTYPES, NullProgress, TokenDtype
from benchmarks.lib.measuring import one_thread, ratio, time_in_turn
from benchmarks.lib.output import figures_parser, print_json, print_rows
from benchmarks.lib.synthetic import SyntheticPhotos
from benchmarks.lib.synthetic_sources import REGIONS, TOKEN_DIM, find_source

TOP = 10
# Texts that the bounds are fitted to; others than those that are asked.
_KNOWN_TEXTS = 1000
CANDIDATES = 1000
# Texts whose candidates are prepared.
_CANDIDATE_TEXTS = 64
# Texts that the peers, which are slower, are compared on.
_PEER_TEXTS = 100

Rows = NDArray[np.int64]


class Exhaustive:
    """The ten best photos for texts, with and without bounds."""

    def __init__(
        self,
        store: TokenStore,
        bounds: TokenBounds,
        words: list[NDArray[np.float32]],
        candidates: list[Rows],
    ) -> None:
        """Search `store` for the texts of some words.

        Args:
            store: Tokens of the photos.
            bounds: Bounds of their scores.
            words: Words of each text, (words, dim).
            candidates: Candidates of each of the first texts.
        """
        self.store = store
        self.bounds = bounds
        self.texts = words
        self.candidates = candidates
        photos = torch.from_numpy(store.stored.values.view(np.uint8).reshape(store.count, -1))
        self._photos, self._read = photos, torch.empty(CANDIDATES, photos.shape[1]).byte()

    def text(self, turn: int) -> NDArray[np.float32]:
        """Return a text by any number."""
        return self.texts[turn % len(self.texts)]

    def by_all(self, turn: int) -> tuple[Rows, NDArray[np.float32]]:
        """Score everything."""
        scores = alignment_with_all([self.text(turn)], "text", self.store)[0]
        best = largest(scores, TOP)
        return best, scores[best]

    def by_bounds(self, turn: int) -> tuple[Rows, NDArray[np.float32], int]:
        """Score what can be among the best; the last number is how many were scored."""
        return self._by_bounds(self.text(turn), None)

    def rerank(self, turn: int) -> tuple[Rows, NDArray[np.float32]]:
        """Score all candidates."""
        rows = self.candidates[turn % len(self.candidates)]
        text = self.text(turn % len(self.candidates))
        scores = alignment_with_candidates(text, "text", self.store, rows)
        best = largest(scores, TOP)
        return rows[best], scores[best]

    def rerank_by_bounds(self, turn: int) -> tuple[Rows, NDArray[np.float32], int]:
        """Score the candidates that can be among the best."""
        place = turn % len(self.candidates)
        return self._by_bounds(self.text(place), self.candidates[place])

    def read(self, turn: int) -> object:
        """Copy the stored bytes of the candidates."""
        rows = torch.from_numpy(self.candidates[turn % len(self.candidates)])
        read = self._read[: len(rows)]
        return torch.index_select(self._photos, 0, rows, out=read)

    def _by_bounds(
        self, text: NDArray[np.float32], rows: Rows | None
    ) -> tuple[Rows, NDArray[np.float32], int]:
        def score(places: Rows) -> NDArray[np.float32]:
            chosen = places if rows is None else rows[places]
            return alignment_with_candidates(text, "text", self.store, chosen)

        found = score_best(self.bounds.upper(text, "text", rows), score, TOP)
        best = np.lexsort((found.rows, -found.keys))[:TOP]
        places = found.rows[best]
        return places if rows is None else rows[places], found.keys[best], len(found.rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the measurements and print the results."""
    parser = figures_parser(__doc__, "2,000 photos, few texts")
    parser.add_argument("--items", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--queries", type=int, default=1000, help="texts for the overlap")
    parser.add_argument("--repetitions", type=int, default=100, help="timed repetitions")
    parser.add_argument("--tokens", choices=TOKEN_DTYPES, default="int8")
    parser.add_argument("--source", type=Path, metavar="INDEX", help="index of real photos")
    parser.add_argument(
        "--peers-up-to", type=int, default=10_000, help="photos up to which packages are compared"
    )
    options = parser.parse_args(arguments)
    if options.quick:
        options.items, options.queries, options.repetitions = [2000], 20, 3
    photos = SyntheticPhotos(find_source(options.source))
    report: dict[str, Any] = {"source": photos.source.name, "tokens": options.tokens, "photos": {}}
    with one_thread():
        for items in options.items:
            searching = prepare(photos, items, options.tokens, options.queries)
            figures = measure(searching, options.queries, options.repetitions)
            if items <= options.peers_up_to:
                figures |= peers(searching, min(options.queries, _PEER_TEXTS), options.repetitions)
            report["photos"][str(items)] = figures
    if options.json:
        print_json(report)
    else:
        print_table(report)


def prepare(photos: SyntheticPhotos, items: int, dtype: TokenDtype, queries: int) -> dict[str, Any]:
    """Draw and pack photos, compute the bounds, and draw the texts."""
    known = photos.queries(_KNOWN_TEXTS, items, seed=1).words
    first = next(iter(photos.photos(min(items, 1024)))).tokens.reshape(-1, TOKEN_DIM)
    codec = codec_for(dtype, [first], known)
    parts: list[PackedTokens] = []
    embeddings: list[NDArray[np.float32]] = []
    for part in photos.photos(items):
        parts.append(codec.pack(part.tokens.reshape(-1, TOKEN_DIM)))
        embeddings.append(part.embeddings)
    store = TokenStore.from_arrays(codec, PackedTokens.concatenate(parts), [REGIONS] * items)
    started = time.perf_counter()
    bounds = TokenBounds.build(store, np.concatenate(known), are_texts=False)
    built_s = time.perf_counter() - started
    texts = photos.queries(queries, items)
    with TemporaryDirectory() as folder:
        entry = write_bounds(
            Path(folder), store, np.concatenate(known), NullProgress(), are_texts=False
        )
        started = time.perf_counter()
        open_bounds(Path(folder), entry, store).upper(texts.words[0], "text")
        opened_s = time.perf_counter() - started
    matching = np.concatenate(embeddings)
    candidates = [
        largest(matching @ each, CANDIDATES) for each in texts.embeddings[:_CANDIDATE_TEXTS]
    ]
    search = Exhaustive(store, bounds, texts.words, candidates)
    return {"search": search, "build_s": built_s, "open_s": opened_s}


def measure(prepared: dict[str, Any], queries: int, repetitions: int) -> dict[str, Any]:
    """Time the searches, and compare their results."""
    search: Exhaustive = prepared["search"]
    times = time_in_turn(
        {
            "all": search.by_all,
            "bounded": search.by_bounds,
            "bound": lambda turn: search.bounds.upper(search.text(turn), "text"),
        },
        repetitions,
    )
    overlaps, same, counts = np.empty(queries), np.empty(queries), np.empty(queries)
    for turn in range(queries):
        rows, scores = search.by_all(turn)
        found, keys, counts[turn] = search.by_bounds(turn)
        overlaps[turn] = len(np.intersect1d(rows, found)) / len(rows)
        same[turn] = np.array_equal(scores, keys) and np.array_equal(rows, found)
    reranked = time_in_turn(
        {
            "read": search.read,
            "rerank": search.rerank,
            "rerank_bounded": search.rerank_by_bounds,
        },
        5 * repetitions,
    )
    equal, scored = np.empty(len(search.candidates)), np.empty(len(search.candidates))
    for turn in range(len(search.candidates)):
        rows, scores = search.rerank(turn)
        found, keys, scored[turn] = search.rerank_by_bounds(turn)
        equal[turn] = np.array_equal(scores, keys) and np.array_equal(rows, found)
    short = search.bounds.short
    token_bytes = search.store.codec.token_bytes
    short_bytes = short.values.nbytes + short.scales.nbytes + short.reach.nbytes
    return {
        **_milliseconds(times),
        "all_over_bounded": round(ratio(times, "all", "bounded"), 2),
        "overlap": float(overlaps.mean()),
        "same_scores": float(same.mean()),
        "queries": queries,
        "scored": [float(counts.mean()), float(np.median(counts)), float(counts.max())],
        "bytes_all": search.store.stored.count * token_bytes,
        "bytes_bounded": int(short_bytes + counts.mean() * REGIONS * token_bytes),
        "build_s": round(prepared["build_s"], 2),
        "open_s": round(prepared["open_s"], 4),
        **_milliseconds(reranked),
        "rerank_over_read": round(ratio(reranked, "rerank", "read"), 2),
        "rerank_bounded_over_read": round(ratio(reranked, "rerank_bounded", "read"), 2),
        "rerank_overlap": float(equal.mean()),
        "rerank_scored": float(scored.mean()),
    }


def peers(prepared: dict[str, Any], queries: int, repetitions: int) -> dict[str, Any]:
    """Time the installed packages, and compare their ten best with those of all bytes."""
    search: Exhaustive = prepared["search"]
    runs: dict[str, Callable[[int], list[int]]] = {}
    tokens = search.store.codec.unpack(search.store.stored)
    colbandit, lateweave = _installed("colbandit"), _installed("lateweave")
    if colbandit is not None:
        photos = list(tokens.reshape(search.store.count, REGIONS, TOKEN_DIM))
        for alpha in (0.2, 1.0):
            index = colbandit.ColBandit(alpha_ef=alpha).index(photos)
            runs[f"colbandit_{alpha:g}"] = lambda turn, index=index: index.search(
                search.text(turn), k=TOP
            )[0]
    if lateweave is not None:
        lengths = np.full(search.store.count, REGIONS)
        score = lateweave.maxsim_scores_packed

        def by_lateweave(turn: int) -> list[int]:
            scores = score(search.text(turn), tokens, lengths, threads=1)
            return largest(np.asarray(scores, dtype=np.float32), TOP).tolist()

        runs["lateweave"] = by_lateweave
    if not runs:
        return {}
    figures: dict[str, Any] = _milliseconds(time_in_turn(runs, max(repetitions // 5, 3), 1))
    for name, run in runs.items():
        shares = [
            len(np.intersect1d(search.by_all(turn)[0], run(turn))) / TOP for turn in range(queries)
        ]
        figures[f"{name}_overlap"] = round(float(np.mean(shares)), 4)
    return figures


def _installed(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _milliseconds(times: dict[str, NDArray[np.float64]]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for name, each in times.items():
        figures[f"{name}_ms"] = round(float(np.median(each)), 3)
        figures[f"{name}_least_ms"] = round(float(each.min()), 3)
    return figures


def print_table(report: dict[str, Any]) -> None:
    """Print one line for each figure, in Markdown."""
    print(f"{report['source']}, {report['tokens']} tokens")
    columns = report["photos"]
    names = list(dict.fromkeys(name for figures in columns.values() for name in figures))
    rows = [[name, *(figures.get(name, "") for figures in columns.values())] for name in names]
    print_rows(["", *(f"{int(items):,} photos" for items in columns)], rows)


if __name__ == "__main__":
    main()
