"""Stages that runs share: equal histories only, trained once, never half."""

from __future__ import annotations

import dataclasses
import multiprocessing
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import aladin_training.stages.run
from aladin_network.encoders import hf_image, hf_text
from aladin_training.config.recipe import Recipe, load_recipe
from aladin_training.stages.run import run_recipe
from aladin_training.stages.sources import StageStore


def weights(out: Path, stage: str) -> dict[str, torch.Tensor]:
    return load_file(out / "stages" / stage / "checkpoint" / "model.safetensors")


def identity(recipe: Recipe, number: int, data: str = "data") -> str:
    return StageStore(Path("store"), recipe, data).identity(number)


def test_identity_holds_all_that_the_weights_depend_on(recipe_path: Path) -> None:
    recipe = load_recipe(recipe_path)
    same = [
        load_recipe(recipe_path, ["name=other"]),
        load_recipe(recipe_path, ["stage.student.lr=0.5"]),  # comes after
    ]
    assert {identity(each, 0) for each in same} == {identity(recipe, 0)}
    others = [
        load_recipe(recipe_path, ["seed=1"]),
        load_recipe(recipe_path, ["stage.joint.lr=0.5"]),
        load_recipe(recipe_path, ["model.alignment.dim=4"]),
        load_recipe(recipe_path, ["data.mirror=false"]),
    ]
    different = [identity(each, 0) for each in others]
    different += [identity(recipe, 1), identity(recipe, 0, "other data")]
    assert len({*different, identity(recipe, 0)}) == len(different) + 1


def test_a_shared_stage_is_trained_once_and_gives_the_same_weights(
    recipe_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = load_recipe(recipe_path)
    other = dataclasses.replace(
        recipe,
        name="other",
        stage=(recipe.stage[0], dataclasses.replace(recipe.stage[1], lr=1e-4)),
    )
    run_recipe(recipe, tmp_path / "alone")
    run_recipe(recipe, tmp_path / "first", shared=tmp_path / "store")
    trained: list[str] = []
    train = aladin_training.stages.run._train_stage

    def count(recipe: Recipe, number: int, *rest: object) -> None:
        trained.append(recipe.stage[number].name)
        train(recipe, number, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(aladin_training.stages.run, "_train_stage", count)
    run_recipe(other, tmp_path / "second", shared=tmp_path / "store")
    assert trained == ["student"]
    for name, value in weights(tmp_path / "alone", "joint").items():
        for out in ("first", "second"):
            assert torch.equal(weights(tmp_path / out, "joint")[name], value)
    assert any(
        not torch.equal(value, weights(tmp_path / "second", "student")[name])
        for name, value in weights(tmp_path / "first", "student").items()
    )


def _train(recipe_path: Path, out: Path, store: Path) -> None:
    run_recipe(load_recipe(recipe_path), out, shared=store)


def test_two_processes_train_a_stage_once(recipe_path: Path, tmp_path: Path) -> None:
    # The processes are forks of one that has imported what takes seconds.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        [aladin_training.stages.run.__name__, hf_image.__name__, hf_text.__name__]
    )
    processes = [
        context.Process(target=_train, args=(recipe_path, tmp_path / name, tmp_path / "store"))
        for name in ("a", "b")
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=120)
        assert process.exitcode == 0
    logs = [
        (tmp_path / name / "stages" / "joint" / "timing.json").read_text() for name in ("a", "b")
    ]
    assert logs[0] == logs[1]  # seconds of one and the same training
