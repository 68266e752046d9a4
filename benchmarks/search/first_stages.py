"""Candidates that different first stages need for the top 10 of exhaustive alignment.

    python -m benchmarks.search.first_stages --items 10000 [--source INDEX] [--real] [--json]
    python -m benchmarks.search.first_stages --real --source INDEX --unseen DATA --trained RUN ...

Photos are drawn from real ones (`benchmarks.lib.synthetic`), or are those of INDEX themselves with
--real. Of the captions of each photo, the first three are those that a first stage may be fitted
to, and the others are asked for. With --unseen, nothing is fitted to the photos of the split "val"
of DATA, and all captions of these, and no others, are asked for. All first stages are compared
exactly with every photo, so that no approximate search interferes.

embedding      the embedding of the index
learned N      vectors of N values fitted to the alignment (`aladin_network.scoring.learned_stage`)
trained N      the same by the head of the checkpoint in a RUN of `aladin train first-stage` from
               the network of INDEX; with --unseen, a run on the other photos alone
both N         embedding and learned vector, each divided by the spread of its scores
muvera N       fixed dimensional encodings of N values (MUVERA, arXiv 2405.19504) by the package
               muvera-rs; skipped without it, and above --muvera-items. "centred": the mean region
               is subtracted from all regions first, which changes no photo's place by alignment

candidates            fewest candidates that contain 0.99 of the top 10 by exhaustive alignment
candidates_unseen     the same among the photos of --unseen alone
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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aladin_index.ann.first_stage import largest
from aladin_network.checkpoint_files import read_first_stage
from aladin_network.errors import ConfigError
from aladin_network.scoring.learned_stage import BANK_WORDS, LearnedStage, fit_learned_stage
from aladin_network.scoring.token_rows import TokenRows
from benchmarks.lib.measuring import quiet_median_s, quiet_time, use_one_thread
from benchmarks.lib.output import figures_parser, print_json, print_rows
from benchmarks.lib.synthetic_sources import Caption, find_source, index_source
from benchmarks.search.first_stage_task import Task, held_out_task, make_task

_TOP, _FIDELITY, _NEAREST = 10, 0.99, 100
_SCANS = 30
# Repetitions, hyperplanes and projected values of a fixed dimensional encoding, as in the paper's
# own settings: their product is the number of values.
_MUVERA = {2560: (20, 4, 8), 10240: (20, 5, 16)}
_QUICK_ITEMS, _QUICK_QUERIES, _QUICK_TEXTS = 300, 20, 300


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
    parser.add_argument(
        "--unseen", type=Path, metavar="DATA", help="data set whose validation photos are held out"
    )
    parser.add_argument(
        "--trained", type=Path, nargs="+", default=[], metavar="RUN", help="runs with trained heads"
    )
    options = parser.parse_args(arguments)
    if (options.unseen or options.trained) and not (options.real and options.source):
        parser.error("--unseen and --trained: expected --real and --source as well")
    use_one_thread()
    items = _QUICK_ITEMS if options.quick else options.items
    queries = _QUICK_QUERIES if options.quick else options.queries
    if options.real and options.source:
        source = index_source(options.source, as_stored=True)
    else:
        source = find_source(options.source)
    if options.unseen:
        task = held_out_task(source, options.unseen, queries)
    else:
        task = make_task(source, items, queries, real=options.real)
    if options.quick:
        task = replace(task, fitted_to=task.fitted_to[:_QUICK_TEXTS])
    muvera_items = 0 if options.quick else options.muvera_items
    stages = _fit(task, options.dims, options.bank) | _trained(options.trained)
    lines = measure(task, stages, muvera_items)
    figures = {"source": task.name, "photos": task.count, "queries": len(task.asked)}
    if options.json:
        print_json({**figures, "first_stages": lines})
        return
    print(", ".join(f"{name} {value}" for name, value in figures.items()))
    names = list(next(iter(lines.values())))
    rows = [[stage, *(_shown(line.get(name)) for name in names)] for stage, line in lines.items()]
    print_rows(["first stage", *names], rows)


def measure(
    task: Task, stages: Mapping[str, LearnedStage], muvera_items: int
) -> dict[str, dict[str, Any]]:
    """Measure all first stages.

    Args:
        task: Photos and captions.
        stages: First stages that approximate the alignment, by names such as "learned 64".
        muvera_items: Largest number of photos to encode with MUVERA.
    """
    seconds = dict.fromkeys(stages, 0.0)
    words = _rows([each.words for each in task.asked])
    vectors: dict[str, list[NDArray[np.float32]]] = {name: [] for name in stages}
    embeddings: list[NDArray[np.float32]] = []
    alignment: list[NDArray[np.float32]] = []
    for batch in task.photos():
        tokens = TokenRows(
            batch.tokens.reshape(-1, batch.tokens.shape[2]),
            np.full(len(batch.tokens), batch.tokens.shape[1], dtype=np.int64),
        )
        embeddings.append(batch.embeddings)
        alignment.append(_alignment(words, batch.tokens))
        for name, stage in stages.items():
            with quiet_time() as taken:
                vectors[name].append(stage.photo_vectors(tokens))
            seconds[name] += taken.seconds
    align = np.concatenate(alignment, axis=1)  # (queries, photos)
    asked = np.stack([each.embedding for each in task.asked])
    match_items = np.concatenate(embeddings)
    match_spread = float(np.std(asked[:100] @ match_items[:10_000].T))
    align_spread = float(np.std(align[:100, :10_000]))
    truth = _Truth(align, asked / match_spread, match_items, align_spread, task.unseen)
    lines = {"embedding": truth.line(asked, match_items)}
    for name, stage in stages.items():
        items = np.concatenate(vectors.pop(name))
        queries = stage.query_vectors(words)
        one = TokenRows(task.asked[0].words, words.lengths[:1])
        made_s = quiet_median_s(lambda _, stage=stage, one=one: stage.query_vectors(one), 50)
        cost = {"query_ms": 1000 * made_s, "fit_s": seconds[name]}
        lines[name] = truth.line(queries, items) | cost
        queries = np.concatenate([asked / match_spread, queries / align_spread], axis=1)
        items = np.concatenate([match_items, items], axis=1)
        lines[f"both {name.removeprefix('learned ')}"] = truth.line(queries, items) | cost
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
        unseen: NDArray[np.int64] | None,
    ) -> None:
        self._align = [largest(scores, _TOP) for scores in align]
        self._unseen = np.arange(0) if unseen is None else unseen
        self._among_unseen = [largest(scores, _TOP) for scores in align[:, self._unseen]]
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
        unseen: list[NDArray[np.int64]] = []
        for row, of_query in enumerate(scores):
            unseen.append(_ranks(of_query[self._unseen], self._among_unseen[row]))
            align.append(_ranks(of_query, self._align[row]))
            served.append(_ranks(of_query, self._served[row]))
        needed: dict[str, float | int] = {
            "candidates": _quantile(align),
            "candidates_served": _quantile(served),
        }
        return needed | ({"candidates_unseen": _quantile(unseen)} if len(self._unseen) else {})


def _ranks(scores: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the ranks of some rows, from 1."""
    return np.array([int(np.count_nonzero(scores >= scores[row])) for row in rows])


def _quantile(ranks: list[NDArray[np.int64]]) -> int:
    """Return the rank up to which the wanted share of all lies."""
    ordered = np.sort(np.concatenate(ranks))
    return int(ordered[math.ceil(_FIDELITY * len(ordered)) - 1])


def _fit(task: Task, dims: Sequence[int], bank: int) -> dict[str, LearnedStage]:
    count, regions, size = task.sample.shape
    photos = TokenRows(task.sample.reshape(-1, size), np.full(count, regions, dtype=np.int64))
    texts = _rows([each.words for each in task.fitted_to])
    return {f"learned {dim}": fit_learned_stage(photos, texts, dim, bank=bank) for dim in dims}


def _trained(runs: Sequence[Path]) -> dict[str, LearnedStage]:
    """Read the heads of runs, which differ in their sizes."""
    stages: dict[str, LearnedStage] = {}
    for run in runs:
        stage = read_first_stage(run / "checkpoint")
        if stage is None:
            raise ConfigError(f"{run}: expected a checkpoint with a trained first-stage head")
        stages[f"trained {stage.dim}"] = stage
    return stages


def _rows(parts: Sequence[NDArray[np.float32]]) -> TokenRows:
    lengths = np.array([len(each) for each in parts], dtype=np.int64)
    return TokenRows(np.concatenate(parts), lengths)


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
    mean = task.sample.mean(axis=(0, 1)) if centred else 0.0
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
