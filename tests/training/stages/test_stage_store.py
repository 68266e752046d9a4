"""Stages that runs share: equal histories only, trained once, never half."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch

import aladin_training.stages.run
from aladin_training.config.recipe import Recipe, load_recipe
from aladin_training.stages.run import run_recipe
from aladin_training.stages.sources import StageStore
from tests.training.runs import assert_same_weights, weights


def identity(recipe: Recipe, number: int, data: str = "data") -> str:
    return StageStore(Path("store"), recipe, data).identity(number)


def test_identity_holds_all_that_the_weights_depend_on(recipe_path: Path) -> None:
    recipe = load_recipe(recipe_path)
    for same in ("name=other", "stage.student.lr=0.5"):  # the latter comes after
        assert identity(load_recipe(recipe_path, [same]), 0) == identity(recipe, 0)
    changes = ["seed=1", "stage.joint.lr=0.5", "model.alignment.dim=4", "data.mirror=false"]
    different = [identity(load_recipe(recipe_path, [change]), 0) for change in changes]
    different += [identity(recipe, 1), identity(recipe, 0, "other data")]
    assert len({*different, identity(recipe, 0)}) == len(different) + 1


def test_two_processes_train_a_shared_stage_once_and_others_take_it(
    recipe_path: Path,
    unbroken: Path,
    tmp_path: Path,
    train_elsewhere: Callable[..., BaseProcess],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = tmp_path / "store"
    processes = [train_elsewhere(tmp_path / name, store) for name in ("a", "b")]
    for process in processes:
        process.join(timeout=300)
        assert process.exitcode == 0
    seconds = [
        (tmp_path / name / "stages" / "joint" / "timing.json").read_text() for name in ("a", "b")
    ]
    assert seconds[0] == seconds[1]  # of one and the same training
    trained: list[str] = []
    train = aladin_training.stages.run._train_stage

    def count(recipe: Recipe, number: int, *rest: object) -> None:
        trained.append(recipe.stage[number].name)
        train(recipe, number, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(aladin_training.stages.run, "_train_stage", count)
    recipe = load_recipe(recipe_path)
    student = dataclasses.replace(recipe.stage[1], lr=1e-4)
    other = dataclasses.replace(recipe, name="other", stage=(recipe.stage[0], student))
    run_recipe(other, tmp_path / "other", shared=store)
    assert trained == ["student"]
    for name in ("a", "b", "other"):
        assert_same_weights(tmp_path / name, unbroken, "joint")
    ours, theirs = weights(tmp_path / "other"), weights(unbroken)
    assert any(not torch.equal(value, theirs[name]) for name, value in ours.items())
