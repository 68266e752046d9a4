"""What a process keeps between runs: equal data sets, and no others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from aladin_network.types import NullProgress
from aladin_training.config.recipe import Recipe, load_recipe
from aladin_training.data import read_records
from aladin_training.stages import preparation
from aladin_training.stages.preparation import PreparedRun, prepare_run
from aladin_training.stages.set_memory import SetMemory


@pytest.fixture
def frozen(recipe_path: Path, tmp_path: Path) -> Callable[..., Recipe]:
    """The small recipe with frozen encoders; each call has some more settings."""
    settings = (
        f"data.cache={tmp_path / 'cache'}",
        "model.image_encoder.frozen=true",
        "model.text_encoder.frozen=true",
    )
    return lambda *more: load_recipe(recipe_path, [*settings, *more])


def sets_of(prepared: PreparedRun) -> list[object]:
    return [prepared.train_set, prepared.selection_set, prepared.validation_set]


def test_a_second_run_of_equal_encoders_has_the_same_sets(frozen: Callable[..., Recipe]) -> None:
    memory = SetMemory()
    first, second = (
        prepare_run(frozen(*each), NullProgress(), memory=memory)
        for each in ((), ("stage.student.lr=0.01", "name=other"))
    )
    for ours, theirs in zip(sets_of(first), sets_of(second), strict=True):
        assert ours is theirs
    assert first.model is not second.model


@pytest.mark.parametrize("changed", ["seed=1", "data.selection=0.25", "precision=bfloat16"])
def test_other_weights_data_or_precision_make_other_sets(
    frozen: Callable[..., Recipe], changed: str
) -> None:
    """The small encoders begin at random, so another seed makes others."""
    memory = SetMemory()
    first, second = (
        prepare_run(frozen(*each), NullProgress(), memory=memory) for each in ((), (changed,))
    )
    for ours, theirs in zip(sets_of(first), sets_of(second), strict=True):
        assert ours is not theirs


def test_files_are_read_once(
    frozen: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, recipe = SetMemory(), frozen()
    prepare_run(recipe, NullProgress(), memory=memory)
    monkeypatch.setattr(preparation, "read_records", None)
    prepared = prepare_run(recipe, NullProgress(), memory=memory)
    records = read_records(Path(recipe.data.source), recipe.data.train_split)
    assert [each.id for each in prepared.train_set.records] == [each.id for each in records]


def test_a_run_without_memory_reads_anew(frozen: Callable[..., Recipe]) -> None:
    runs = [prepare_run(frozen(), NullProgress()) for _ in range(2)]
    assert runs[0].train_set is not runs[1].train_set


def test_the_oldest_is_forgotten() -> None:
    memory = SetMemory()
    made: list[int] = []
    for number in [*range(13), 12, 0]:
        assert memory.recall(str(number), lambda number=number: made.append(number) or number) == (
            number
        )
    assert made == [*range(13), 0]


def test_recipes_that_only_differ_in_their_stages_train_alike_with_and_without_memory(
    frozen: Callable[..., Recipe],
) -> None:
    recipe = frozen()
    memory = SetMemory()
    for name in ("one", "two"):
        prepared = prepare_run(
            dataclasses.replace(recipe, name=name), NullProgress(), memory=memory
        )
    alone = prepare_run(recipe, NullProgress())
    for ours, theirs in zip(
        prepared.model.state_dict().values(), alone.model.state_dict().values(), strict=True
    ):
        assert ours.equal(theirs)
    assert prepared.train_set.digest == alone.train_set.digest
