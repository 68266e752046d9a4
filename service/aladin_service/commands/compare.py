"""``aladin compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aladin_service.commands.progress import stderr_progress
from aladin_service.failures import JOB_FAILED


def compare(
    recipes: Annotated[
        list[Path],
        typer.Argument(
            metavar="RECIPE...",
            help='Recipes, or folders of recipes (files starting with "_" are ignored).',
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", help="Folder of the comparison; a partial one is continued.")
    ],
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Runs of each recipe.")] = 3,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline", metavar="NAME", help="Recipe to compare with. [default: the first]"
        ),
    ] = None,
    split: Annotated[str, typer.Option("--split", help="Split to evaluate on.")] = "val",
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Runs to train in parallel.")] = 1,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change a value in every recipe; repeatable."
        ),
    ] = None,
    report_only: Annotated[
        bool, typer.Option("--report-only", help="Report the finished runs; train nothing.")
    ] = False,
    no_step_times: Annotated[
        bool, typer.Option("--no-step-times", help="Do not time a training step of each recipe.")
    ] = False,
) -> None:
    """Train recipes with several seeds and report the gain of each.

    In: RECIPEs and the data sets they name. Missing runs are trained in the folder --out, and
    interrupted ones continued; a stage that several runs start with is trained once. Out:
    report.md and report.html in --out, and the path of the former on stdout. A failed run does not
    stop the others: it is named in the report and on stderr, and the exit code is 1.
    """
    from aladin_training.comparison.compare import compare as compare_plan
    from aladin_training.comparison.plan import load_plan

    plan = load_plan(recipes, seeds, out, split, baseline, overrides or [])
    with stderr_progress() as progress:
        result = compare_plan(
            plan,
            jobs=jobs,
            train=not report_only,
            step_times=not no_step_times,
            progress=progress,
        )
    typer.echo(str(result.markdown))
    for label, reason in result.failures.items():
        typer.echo(f"error: {label}: {reason}", err=True)
    if result.failures:
        raise typer.Exit(JOB_FAILED)
