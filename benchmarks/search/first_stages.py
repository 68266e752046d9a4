"""Candidates that different first stages need for the top 10 of exhaustive alignment.

    python -m benchmarks.search.first_stages --items 10000 [--source INDEX] [--real] [--json]

Photos are drawn from real ones (`benchmarks.lib.synthetic`), or are those of INDEX themselves with
--real. Of the captions of each photo, the first three are those that a first stage may be fitted
to, and the others are asked for. All first stages are compared exactly with every photo, so that no
approximate search interferes.

embedding      the embedding of the index
learned N      vectors of N values fitted to the alignment (`aladin_index.learned`)
both N         embedding and learned vector, each divided by the spread of its scores
muvera N       fixed dimensional encodings of N values (MUVERA, arXiv 2405.19504) by the package
               muvera-rs; skipped without it, and above --muvera-items. "centred": the mean region
               is subtracted from all regions first, which changes no photo's place by alignment

candidates            fewest candidates that contain 0.99 of the top 10 by exhaustive alignment
candidates_served     the same for the top 10 by the sum of both scores, each divided by its spread,
                      which is the served order but for the weights
bytes_per_photo       memory of the vectors as compared here, in float32
scan_ms               time to find the nearest 100 of all photos, one thread, without encoding
query_ms              time to make the query's vector from its words
fit_s                 time to fit all photos, without the alignment of the sample
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aladin_index.ann.first_stage import largest
from aladin_network.scoring.learned_stage import BANK_WORDS, LearnedStage, fit_learned_stage
from aladin_network.scoring.token_rows import TokenRows
from benchmarks.lib.measuring import quiet_median_s, quiet_time, use_one_thread
from benchmarks.lib.output import figures_parser, print_json, print_rows
from benchmarks.lib.synthetic import SyntheticPhotos
from benchmarks.lib.synthetic_sources import Caption, Photos, Source, find_source

_TOP, _FIDELITY, _NEAREST = 10, 0.99, 100
_PHOTOS_A_BATCH = 2048
_SAMPLE, _SCANS = 3000, 30
# Repetitions, hyperplanes and projected values of a fixed dimensional encoding, as in the paper's
# own settings: their product is the number of values.
_MUVERA = {2560: (20, 4, 8), 10240: (20, 5, 16)}
_QUICK_ITEMS, _QUICK_QUERIES, _QUICK_TEXTS = 300, 20, 300


@dataclass(frozen=True)
class Task:
    """What is searched for what.

    Attributes:
        photos: Yields all photos in batches, always the same.
        count: Number of photos.
        fitted_to: Captions that a first stage may be fitted to.
        asked: Captions that are searched with.
        name: Name to be printed.
    """

    photos: Callable[[], Iterator[Photos]]
    count: int
    fitted_to: list[Caption]
    asked: list[Caption]
    name: str


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = figures_parser(__doc__, "300 photos and few captions, without MUVERA")
    parser.add_argument("--items", type=int, default=10_000, help="number of photos")
    parser.add_argument("--queries", type=int, default=500, help="number of captions")
    parser.add_argument("--source", type=Path, metavar="INDEX", help="index of real photos")
    parser.add_argument("--real", action="store_true", help="search the photos of INDEX themselves")
    parser.add_argument(
        "--dims", type=int, nargs="+", default=[64, 128, 256], help="sizes of learned vectors"
    )
    parser.add_argument(
        "--bank", type=int, default=BANK_WORDS, help="words that photos are fitted to"
    )
    parser.add_argument(
        "--muvera-items", type=int, default=10_000, help="most photos to encode with MUVERA"
    )
    options = parser.parse_args(arguments)
    use_one_thread()
    items = _QUICK_ITEMS if options.quick else options.items
    queries = _QUICK_QUERIES if options.quick else options.queries
    task = make_task(find_source(options.source), items, queries, real=options.real)
    if options.quick:
        task = replace(task, fitted_to=task.fitted_to[:_QUICK_TEXTS])
    muvera_items = 0 if options.quick else options.muvera_items
    lines = measure(task, options.dims, options.bank, muvera_items)
    figures = {"source": task.name, "photos": task.count, "queries": len(task.asked)}
    if options.json:
        print_json({**figures, "first_stages": lines})
        return
    print(", ".join(f"{name} {value}" for name, value in figures.items()))
    names = list(next(iter(lines.values())))
    rows = [[stage, *(_shown(line.get(name)) for name in names)] for stage, line in lines.items()]
    print_rows(["first stage", *names], rows)


def make_task(source: Source, items: int, queries: int, *, real: bool) -> Task:
    """Divide the captions, and draw the photos and the queries."""
    stored, asking = source.divided()
    fitted_to = [each for of_photo in stored.captions for each in of_photo]
    if real:
        batches = _batches(source.photos)
        asked = [each for of_photo in asking.captions for each in of_photo]
        chosen = np.random.default_rng(0).permutation(len(asked))[:queries]
        return Task(
            batches,
            len(asking.captions),
            fitted_to,
            [asked[place] for place in chosen],
            source.name,
        )
    synthetic = SyntheticPhotos(asking)
    drawn = synthetic.queries(queries, items, seed=1)
    asked = [Caption(*each) for each in zip(drawn.embeddings, drawn.words, strict=True)]
    return Task(
        lambda: synthetic.photos(items, _PHOTOS_A_BATCH), items, fitted_to, asked, source.name
    )


def measure(
    task: Task, dims: Sequence[int], bank: int, muvera_items: int
) -> dict[str, dict[str, Any]]:
    """Measure all first stages.

    Args:
        task: Photos and captions.
        dims: Sizes of learned vectors.
        bank: Number of words that photos are fitted to.
        muvera_items: Largest number of photos to encode with MUVERA.
    """
    stages = _fit(task, dims, bank)
    seconds = dict.fromkeys(dims, 0.0)
    words = _rows([each.words for each in task.asked])
    vectors: dict[int, list[NDArray[np.float32]]] = {dim: [] for dim in dims}
    embeddings: list[NDArray[np.float32]] = []
    alignment: list[NDArray[np.float32]] = []
    for batch in task.photos():
        tokens = TokenRows(
            batch.tokens.reshape(-1, batch.tokens.shape[2]),
            np.full(len(batch.tokens), batch.tokens.shape[1], dtype=np.int64),
        )
        embeddings.append(batch.embeddings)
        alignment.append(_alignment(words, batch.tokens))
        for dim, stage in stages.items():
            with quiet_time() as taken:
                vectors[dim].append(stage.photo_vectors(tokens))
            seconds[dim] += taken.seconds
    align = np.concatenate(alignment, axis=1)  # (queries, photos)
    asked = np.stack([each.embedding for each in task.asked])
    match_items = np.concatenate(embeddings)
    match_spread = float(np.std(asked[:100] @ match_items[:10_000].T))
    align_spread = float(np.std(align[:100, :10_000]))
    truth = _Truth(align, asked / match_spread, match_items, align_spread)
    lines = {"embedding": truth.line(asked, match_items)}
    for dim, stage in stages.items():
        items = np.concatenate(vectors.pop(dim))
        queries = stage.query_vectors(words)
        one = TokenRows(task.asked[0].words, words.lengths[:1])
        made_s = quiet_median_s(lambda _, stage=stage, one=one: stage.query_vectors(one), 50)
        cost = {"query_ms": 1000 * made_s, "fit_s": seconds[dim]}
        lines[f"learned {dim}"] = truth.line(queries, items) | cost
        queries = np.concatenate([asked / match_spread, queries / align_spread], axis=1)
        items = np.concatenate([match_items, items], axis=1)
        lines[f"both {dim}"] = truth.line(queries, items) | cost
    for size in _MUVERA:
        lines[f"muvera {size}"] = _muvera(task, size, truth, muvera_items)
        lines[f"muvera {size} centred"] = _muvera(task, size, truth, muvera_items, centred=True)
    return lines


class _Truth:
    """The best photos of each query by exhaustive scores, and what a first stage keeps of them."""

    def __init__(
        self,
        align: NDArray[np.float32],
        asked: NDArray[np.float32],
        embeddings: NDArray[np.float32],
        align_spread: float,
    ) -> None:
        self._align = [largest(scores, _TOP) for scores in align]
        self._served = [
            largest(scores / align_spread + embeddings @ query, _TOP)
            for scores, query in zip(align, asked, strict=True)
        ]

    def line(
        self, queries: NDArray[np.float32], items: NDArray[np.float32]
    ) -> dict[str, float | int]:
        """Measure a first stage that is an inner product."""
        scores = (items @ query for query in queries)

        def scan(turn: int) -> object:
            return largest(items @ queries[turn % len(queries)], _NEAREST)

        return self.needed(scores) | {
            "bytes_per_photo": 4 * items.shape[1],
            "scan_ms": 1000 * quiet_median_s(scan, _SCANS),
        }

    def needed(self, scores: Iterator[NDArray[np.float32]]) -> dict[str, float | int]:
        """Return the fewest candidates by the scores of each query in turn."""
        align: list[NDArray[np.int64]] = []
        served: list[NDArray[np.int64]] = []
        for row, of_query in enumerate(scores):
            align.append(_ranks(of_query, self._align[row]))
            served.append(_ranks(of_query, self._served[row]))
        return {"candidates": _quantile(align), "candidates_served": _quantile(served)}


def _ranks(scores: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the ranks of some rows, from 1."""
    return np.array([int(np.count_nonzero(scores >= scores[row])) for row in rows])


def _quantile(ranks: list[NDArray[np.int64]]) -> int:
    """Return the rank up to which the wanted share of all lies."""
    ordered = np.sort(np.concatenate(ranks))
    return int(ordered[math.ceil(_FIDELITY * len(ordered)) - 1])


def _fit(task: Task, dims: Sequence[int], bank: int) -> dict[int, LearnedStage]:
    sample = next(task.photos()).tokens
    photos = TokenRows(
        sample.reshape(-1, sample.shape[2]),
        np.full(len(sample), sample.shape[1], dtype=np.int64),
    )
    texts = _rows([each.words for each in task.fitted_to])
    return {dim: fit_learned_stage(photos, texts, dim, bank=bank) for dim in dims}


def _rows(parts: Sequence[NDArray[np.float32]]) -> TokenRows:
    lengths = np.array([len(each) for each in parts], dtype=np.int64)
    return TokenRows(np.concatenate(parts), lengths)


def _batches(photos: Photos) -> Callable[[], Iterator[Photos]]:
    def batches() -> Iterator[Photos]:
        for start in range(0, len(photos.embeddings), _SAMPLE):
            part = slice(start, start + _SAMPLE)
            yield Photos(photos.embeddings[part], photos.tokens[part])

    return batches


def _alignment(words: TokenRows, tokens: NDArray[np.float32]) -> NDArray[np.float32]:
    """Score all texts against some photos, (texts, photos)."""
    flat = torch.from_numpy(tokens).flatten(0, 1).T.contiguous()
    starts = np.cumsum(words.lengths) - words.lengths
    best = [
        (part @ flat).view(len(part), *tokens.shape[:2]).amax(dim=2)
        for part in torch.from_numpy(words.values).split(256)
    ]
    return np.add.reduceat(torch.cat(best).numpy(), starts, axis=0)


def _muvera(
    task: Task, size: int, truth: _Truth, most: int, *, centred: bool = False
) -> dict[str, Any]:
    """Measure MUVERA's encodings, of regions less their mean if `centred`, or say why not."""
    if task.count > most:
        return {"skipped": f"more than {most} photos"}
    try:
        muvera: Any = importlib.import_module("muvera")
    except ModuleNotFoundError:
        return {"skipped": "the package muvera-rs is not installed"}
    repetitions, planes, projected = _MUVERA[size]
    retriever: Any = muvera.MuveraRetriever(
        dimensions=task.asked[0].words.shape[1],
        max_points=task.count,
        d_proj=projected,
        d_final=size,
        k_sim=planes,
        r_reps=repetitions,
        seed=0,
    )
    sample = next(task.photos()).tokens
    mean = sample.mean(axis=(0, 1)) if centred else 0.0
    started = time.process_time()
    number = 0  # of a photo; its documents are numbered from 1
    for batch in task.photos():
        for tokens in batch.tokens - mean:
            number += 1
            if number == 1:
                retriever.index_dataset([tokens.tolist()], [number])
            else:
                retriever.add_document(tokens.tolist(), number)
    fit_s = time.process_time() - started

    def scores(caption: Caption) -> NDArray[np.float32]:
        # It returns an order; a score that falls with the place has the same one.
        found = retriever.get_top_k(caption.words.tolist(), task.count)
        result = np.full(task.count, -float(task.count), dtype=np.float32)
        for place, each in enumerate(found):
            number = each[0] if isinstance(each, tuple) else each
            result[int(number) - 1] = -place
        return result

    def scan(turn: int) -> object:
        return retriever.get_top_k(task.asked[turn % len(task.asked)].words.tolist(), _NEAREST)

    return truth.needed(scores(each) for each in task.asked) | {
        "bytes_per_photo": 4 * size,
        "scan_ms": 1000 * quiet_median_s(scan, _SCANS),
        "fit_s": fit_s,
    }


def _shown(value: object) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
