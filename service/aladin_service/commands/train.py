"""``aladin train``."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from aladin_network.errors import ReportedElsewhereError
from aladin_network.types import NullProgress, Progress
from aladin_service.commands.progress import stderr_progress
from aladin_service.failures import exit_code


def _print_recipes(wanted: bool) -> None:
    """Print the shipped recipes, and end the command."""
    if not wanted:
        return
    from aladin_training.config.shipped import shipped_recipes

    recipes = shipped_recipes()
    width = max(len(each.name) for each in recipes)
    for each in recipes:
        typer.echo(f"{each.name:{width}}  {each.summary}")
    raise typer.Exit


ListOption = Annotated[
    bool,
    typer.Option(
        "--list",
        is_eager=True,
        callback=_print_recipes,
        help="List the recipes of this package, and exit.",
    ),
]


def train(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help="A recipe in TOML (data, network, stages), or the name of one from --list.",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", help="Folder of the run; created if it does not exist.")
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change a value in the recipe; repeatable."
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the interrupted run in --out.")
    ] = False,
    list_recipes: ListOption = False,  # noqa: ARG001  its callback lists them
) -> None:
    """Train a network from a recipe.

    In: RECIPE, and the data set and encoders it names. Out: in the folder --out, the best and the
    last checkpoint, TensorBoard logs and a plot of every stage; the path of the final checkpoint
    is printed on stdout.

    On several GPUs, or in several processes that share each step and see the same files:
    torchrun --nproc-per-node N -m aladin_service train RECIPE --out DIR
    """
    from aladin_training.config.shipped import find_recipe

    path = find_recipe(recipe)
    from aladin_training.config.recipe import load_recipe
    from aladin_training.parallel.distributed import distributed_job, is_main_process
    from aladin_training.stages.run import run_recipe

    try:
        with distributed_job(), stderr_progress() if is_main_process() else silence() as progress:
            result = run_recipe(
                load_recipe(path, overrides or []), out, resume=resume, progress=progress
            )
            if is_main_process():
                typer.echo(str(result.checkpoint))
    except ReportedElsewhereError as error:
        raise typer.Exit(exit_code(error)) from None


@contextmanager
def silence() -> Generator[Progress]:
    """Silence this process: another process of the job reports."""
    logging.disable(logging.WARNING)
    try:
        yield NullProgress()
    finally:
        logging.disable(logging.NOTSET)
