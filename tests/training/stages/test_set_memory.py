"""What a process keeps between runs: equal data sets, and no others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from aladin_network.types import NullProgress
from aladin_training.config.recipe import Recipe, load_recipe
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


@pytest.mark.parametrize(
    ("settings", "same"),
    [
        (["stage.student.lr=0.01", "name=other"], True),
        (["seed=1"], False),  # the small encoders begin at random
        (["data.selection=0.25"], False),
        (["precision=bfloat16"], False),
    ],
)
def test_runs_of_equal_encoders_data_and_precision_have_the_same_sets(
    frozen: Callable[..., Recipe], settings: list[str], same: bool
) -> None:
    memory = SetMemory()
    first, second = (
        prepare_run(frozen(*each), NullProgress(), memory=memory) for each in ([], settings)
    )
    for ours, theirs in zip(sets_of(first), sets_of(second), strict=True):
        assert (ours is theirs) == same
    assert first.model is not second.model


def test_files_are_read_once_with_a_memory_and_anew_without(
    frozen: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, recipe = SetMemory(), frozen()
    alone = prepare_run(recipe, NullProgress())
    first = prepare_run(recipe, NullProgress(), memory=memory)
    assert first.train_set is not alone.train_set
    monkeypatch.setattr(preparation, "read_part", None)
    again = prepare_run(dataclasses.replace(recipe, name="two"), NullProgress(), memory=memory)
    assert again.train_set.digest == alone.train_set.digest
    ours, theirs = (each.model.state_dict().values() for each in (again, alone))
    assert all(value.equal(other) for value, other in zip(ours, theirs, strict=True))


def test_the_oldest_is_forgotten() -> None:
    memory = SetMemory()
    made: list[int] = []
    for number in [*range(13), 12, 0]:
        assert memory.recall(str(number), lambda number=number: made.append(number) or number) == (
            number
        )
    assert made == [*range(13), 0]
