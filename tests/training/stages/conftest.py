"""The small recipe, trained once without an interruption, and processes that train it."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

import aladin_training.loop
import aladin_training.stages.run
from aladin_network.encoders import hf_image, hf_text
from aladin_training.config.recipe import load_recipe
from aladin_training.stages.run import run_recipe


@pytest.fixture(scope="session")
def unbroken(recipe_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The finished run of the small recipe; tests do not write to it."""
    out = tmp_path_factory.mktemp("unbroken") / "run"
    run_recipe(load_recipe(recipe_path), out)
    return out


def _train(recipe_path: Path, out: Path, store: Path | None) -> None:
    aladin_training.loop.SAVE_EVERY_S = 0
    run_recipe(load_recipe(recipe_path), out, shared=store)


@pytest.fixture(scope="session")
def train_elsewhere(recipe_path: Path) -> Callable[..., BaseProcess]:
    """Start a process that trains the recipe: ``train_elsewhere(out, store)``.

    The processes are forks of one that has imported what takes seconds.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        [aladin_training.stages.run.__name__, hf_image.__name__, hf_text.__name__]
    )

    def start(out: Path, store: Path | None = None) -> BaseProcess:
        process = context.Process(target=_train, args=(recipe_path, out, store))
        process.start()
        return process

    return start
