"""``aladin train``."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from aladin_network.errors import ToldElsewhereError
from aladin_network.types import NullProgress, Progress
from aladin_service.commands.progress import stderr_progress
from aladin_service.failures import exit_code


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

    On several GPUs, or in several processes, which take each step together and see the same
    files: torchrun --nproc-per-node N -m aladin_service train RECIPE --out DIR
    """
    from aladin_training.config.recipe import load_recipe
    from aladin_training.parallel.distributed import distributed_job, is_main_process
    from aladin_training.stages.run import run_recipe

    try:
        with distributed_job(), stderr_progress() if is_main_process() else silence() as progress:
            result = run_recipe(
                load_recipe(recipe, overrides or []), out, resume=resume, progress=progress
            )
            if is_main_process():
                typer.echo(str(result.checkpoint))
    except ToldElsewhereError as error:
        raise typer.Exit(exit_code(error)) from None


@contextmanager
def silence() -> Generator[Progress]:
    """Keep this process from talking: another one of its job does."""
    logging.disable(logging.WARNING)
    try:
        yield NullProgress()
    finally:
        logging.disable(logging.NOTSET)
