"""A run on tars, from recipe to checkpoint; interrupted and resumed it ends the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import aladin_training.loop
from aladin_network.errors import DataError
from aladin_network.types import NullProgress
from aladin_training.config.recipe import Recipe, load_recipe
from aladin_training.stages.preparation import prepare_run
from aladin_training.stages.run import run_recipe
from tests.training.runs import InterruptAfter, InterruptionError, assert_same_weights


@pytest.fixture
def tars(data_set: Path, write_tar: Callable[..., Path]) -> Path:
    """The training pictures of `data_set` in three tars, one of them img2dataset's."""
    entries = [json.loads(line) for line in data_set.read_text().splitlines()]
    train = [each for each in entries if each["split"] == "train"]
    for shard, first in enumerate((0, 5, 8)):
        members: list[tuple[str, bytes]] = []
        for each in train[first : (5, 8, 12)[shard]]:
            key = Path(each["image"]).stem.zfill(9)
            members.append((f"{key}.png", (data_set.parent / each["image"]).read_bytes()))
            members.append((f"{key}.txt", "\n".join(each["captions"]).encode()))
        path = write_tar(f"tars/{shard:05d}.tar", members)
    (path.parent / "00001_stats.json").write_text(json.dumps({"count": 4, "successes": 3}))
    return path.parent


def streamed(recipe_path: Path, data_set: Path, tars: Path, *overrides: str) -> Recipe:
    return load_recipe(
        recipe_path,
        [
            f"data.source={tars}",
            "data.train_split=null",
            f"data.validation_source={data_set}",
            "data.stream.shuffle=10",
            "stage.joint.epochs=2",
            "stage.joint.batch_size=4",
            "stage.student.epochs=1",
            *overrides,
        ],
    )


def test_resume_inside_an_epoch_ends_with_the_same_weights(
    recipe_path: Path,
    data_set: Path,
    tars: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aladin_training.loop, "SAVE_EVERY_S", 0.0)
    # One encoder is trained; the other is frozen, and encodes what is shown all the same.
    recipe = streamed(recipe_path, data_set, tars, "model.image_encoder.frozen=false")
    run_recipe(recipe, tmp_path / "unbroken")
    for steps in (1, 4):  # an epoch has three
        with pytest.raises(InterruptionError):
            run_recipe(recipe, tmp_path / "broken", resume=True, progress=InterruptAfter(steps))
    run_recipe(recipe, tmp_path / "broken", resume=True)
    assert_same_weights(tmp_path / "broken", tmp_path / "unbroken")


def test_a_split_that_the_tars_lack_is_refused(
    recipe_path: Path, data_set: Path, tars: Path
) -> None:
    with pytest.raises(DataError, match="holds no photo of split 'train' with a caption"):
        prepare_run(streamed(recipe_path, data_set, tars, "data.train_split=train"), NullProgress())
