"""``aladin index fit``."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from aladin_service.commands.options import IndexArgument, JsonOption
from aladin_service.commands.progress import stderr_progress

WordsOption = Annotated[
    Path | None,
    typer.Option(
        "--words",
        metavar="FILE",
        exists=True,
        help="Texts of the kind that will be asked for: lines of text (.txt), or a data set whose "
        "captions to take. [default: the texts of the index]",
    ),
]
DimOption = Annotated[
    int, typer.Option("--dim", min=1, help="Values of a photo's vector that are fitted.")
]


def fit_first_stage(
    index: IndexArgument,
    words: WordsOption = None,
    dim: DimOption = 64,
    as_json: JsonOption = False,
) -> None:
    """Fit the first stage of text queries to the order of the answers.

    In: INDEX with photos, and at least 200 texts. Out: a new generation, live at once, which
    shares all other files with the previous one. The candidates of a text query are then found by
    vectors whose inner product approximates the fused score, in place of the cosine of the
    embeddings; fewer candidates are enough. Photos that are added later are fitted as they are; a
    compaction keeps the fit. A build or a merge does not: run this command again, or train the
    first stage with the model (aladin train first-stage), and builds have it at once.

    The number of candidates is the default again. aladin index tune chooses it.
    """
    from aladin_index.measure.fit_first_stage import fit_first_stage as fit
    from aladin_network.scoring.learned_stage import FIT_TEXTS
    from aladin_service.measure.tune_queries import queries_of

    make_queries = None if words is None else queries_of(words, FIT_TEXTS, texts_only=True)
    with stderr_progress() as progress:
        report = fit(index, dim, make_queries, progress)
    if as_json:
        data = {
            "generation": report.generation,
            "texts": report.texts,
            "first_stage": dataclasses.asdict(report.entry),
        }
        typer.echo(json.dumps(data, indent=2))
        return
    entry = report.entry
    typer.echo(
        f"{index}: generation {report.generation}, photos found by {entry.dim} values fitted to "
        f"{report.texts:,} texts, {entry.ann.factory}, ann_recall {entry.ann.recall:.4f}"
    )
