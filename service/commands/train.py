"""``aladin train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.progress import stderr_progress


def train(
    recipe: Annotated[
        Path, typer.Argument(metavar="RECIPE", help="A recipe in TOML: data, network, stages.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder of the run; made if it is missing.")],
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change a value of the recipe; may be repeated."
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the interrupted run in --out.")
    ] = False,
) -> None:
    """Train a network by a recipe.

    In: RECIPE, and the data set and encoders that it names. Out: in the folder --out, for every
    stage the best and the last checkpoint, TensorBoard logs and a plot; on stdout, the path
    of the final checkpoint.
    """
    from training.recipe import load_recipe
    from training.run import run_recipe

    with stderr_progress() as progress:
        result = run_recipe(
            load_recipe(recipe, overrides or []), out, resume=resume, progress=progress
        )
    typer.echo(str(result.checkpoint))
