"""Runs with anchors and mined negatives: each resumes exactly, and refuses what does not fit."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import aladin_training.loop
from aladin_network.checkpoint import load_checkpoint
from aladin_network.config import dump_config
from aladin_network.errors import ConfigError, StaleNegativesError
from aladin_network.scoring.metrics import retrieval_ranks
from aladin_network.types import NullProgress
from aladin_training.batches.offline_negatives import MinedFrom, OfflineNegatives, save_negatives
from aladin_training.batches.plan import BatchRows
from aladin_training.comparison.evaluate import evaluate_run
from aladin_training.comparison.plan import PlannedRun
from aladin_training.config.recipe import Recipe, load_recipe
from aladin_training.data import read_records
from aladin_training.evaluation import evaluate_checkpoint
from aladin_training.stage_files import branch_checkpoints
from aladin_training.stages.preparation import prepare_run, with_recorded_ids
from aladin_training.stages.run import is_run_of, run_recipe
from aladin_training.stages.setup import set_up_stage
from aladin_training.stages.sources import StageStore
from aladin_training.tasks.joint import OnlineBranches
from tests.training.runs import (
    Earlier,
    InterruptAfter,
    InterruptionError,
    assert_same_weights,
    weights,
)

SHORT = ["stage.joint.epochs=1", "stage.student.epochs=1"]
STAGES = {
    "offline": """
start = "joint"
[stage.tasks.matching_boosting]
loss = "boosting"
[stage.anchors]
scenario = "offline"
stages = ["joint", "student"]
""",
    "online": """
[stage.tasks.matching_boosting]
loss = "boosting"
[stage.anchors]
scenario = "online"
stages = ["random", "joint"]
""",
    "momentum": """
[stage.tasks.matching_boosting]
loss = "boosting"
options = { form = "absolute", soft = true }
[stage.anchors]
scenario = "momentum"
decays = [0.5, 0.9]
""",
    "mutual": """
[stage.tasks.matching_imitation]
loss = "listnet"
options = { temperature = 10, teacher_scale = 10 }
[stage.anchors]
scenario = "online"
stages = ["joint"]
mutual = true
""",
    "quintuplet": """
[stage.offline]
stage = "joint"
score = "alignment"
num_texts = 5
num_images = 3
[stage.tasks.matching_quintuplet]
loss = "offline_quintuplet"
options = { form = "adaptive" }
""",
}


def recipe_with(recipe_path: Path, folder: Path, kind: str) -> Recipe:
    path = folder / f"{kind}.toml"
    stage = STAGES[kind] + "[stage.tasks.matching]\nloss = 'triplet'\n"
    path.write_text(
        recipe_path.read_text()
        + '\n[[stage]]\nname = "last"\nepochs = 2\nbatch_size = 8\nclip_norm = 0.5\n'
        + stage
    )
    return load_recipe(path, SHORT)


@pytest.fixture(scope="module")
def early(recipe_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that has the stages before the last one, which are those of all these recipes."""
    folder = tmp_path_factory.mktemp("early")
    recipe = load_recipe(recipe_path, SHORT)
    run_recipe(recipe, folder / "run", shared=folder / "store")
    return folder / "store"


@pytest.fixture(scope="module")
def finished(
    recipe_path: Path, tmp_path_factory: pytest.TempPathFactory, early: Path
) -> Callable[[str], tuple[Recipe, Path]]:
    """A recipe of one of the kinds, and its run, which is trained once."""

    @functools.cache
    def train(kind: str) -> tuple[Recipe, Path]:
        folder = tmp_path_factory.mktemp(kind)
        recipe = recipe_with(recipe_path, folder, kind)
        # A store of its own, so that a broken run trains its last stage itself.
        run_recipe(recipe, folder / "run", shared=shutil.copytree(early, folder / "store"))
        return recipe, folder / "run"

    return train


Finished = Callable[[str], tuple[Recipe, Path]]


@pytest.mark.parametrize("kind", STAGES)
def test_an_interrupted_stage_ends_with_the_same_weights(
    kind: str, finished: Finished, tmp_path: Path, early: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aladin_training.loop, "SAVE_EVERY_S", 0.0)
    recipe, unbroken = finished(kind)
    store = shutil.copytree(early, tmp_path / "store")
    with pytest.raises(InterruptionError):
        run_recipe(recipe, tmp_path / "broken", progress=InterruptAfter(3), shared=store)
    run_recipe(recipe, tmp_path / "broken", resume=True)
    assert_same_weights(tmp_path / "broken", unbroken)
    start = weights(unbroken, "joint")
    assert any(not torch.equal(start[name], value) for name, value in weights(unbroken).items())


def test_mined_lists_of_a_file_are_used_if_their_network_is_the_miner(
    finished: Finished, recipe_path: Path, tmp_path: Path, early: Path
) -> None:
    _, mined = finished("quintuplet")
    lists = mined / "stages" / "last" / "negatives.safetensors"
    recipe_with(recipe_path, tmp_path, "quintuplet")

    def run(out: str, *more: str) -> None:
        overrides = [*SHORT, "stage.last.offline.stage=null", f"stage.last.offline.file={lists}"]
        recipe = load_recipe(tmp_path / "quintuplet.toml", [*overrides, *more])
        run_recipe(recipe, tmp_path / out, shared=shutil.copytree(early, tmp_path / f"{out}-store"))

    miner = f"stage.last.offline.miner={mined}"
    run("used", f"{miner}/stages/joint/checkpoint")
    assert_same_weights(tmp_path / "used", mined)
    with pytest.raises(StaleNegativesError, match="the model"):
        run("other-miner", f"{miner}/checkpoint")
    with pytest.raises(StaleNegativesError, match="5"):
        run("stale", "stage.last.offline.num_texts=4")
    # Those that lie in a run, too.
    (tmp_path / "theirs" / "stages" / "last").mkdir(parents=True)
    shutil.copy(lists, tmp_path / "theirs" / "stages" / "last")
    theirs = load_recipe(tmp_path / "quintuplet.toml", ["seed=1", *SHORT])
    with pytest.raises(StaleNegativesError, match="the model"):
        run_recipe(theirs, tmp_path / "theirs")


def test_an_anchor_may_be_the_checkpoint_of_another_run(
    finished: Finished, recipe_path: Path, tmp_path: Path, early: Path
) -> None:
    _, own = finished("offline")
    recipe_with(recipe_path, tmp_path, "offline")
    anchors = [
        str(shutil.copytree(own / "stages" / name / "checkpoint", tmp_path / name))
        for name in ("joint", "student")
    ]
    given = [
        "stage.last.anchors.stages=[]",
        f"stage.last.anchors.checkpoints={json.dumps(anchors)}",
    ]
    foreign = load_recipe(tmp_path / "offline.toml", [*SHORT, *given])
    run_recipe(foreign, tmp_path / "run", shared=shutil.copytree(early, tmp_path / "store"))
    assert_same_weights(tmp_path / "run", own)
    assert is_run_of(tmp_path / "run", foreign)
    # Other weights in that folder make another recipe of it.
    Path(anchors[0]).rename(tmp_path / "old")
    shutil.copytree(anchors[1], anchors[0])
    assert not is_run_of(tmp_path / "run", foreign)
    given.append(f"stage.last.anchors.model_ids={json.dumps(['0' * 64] * 2)}")
    with pytest.raises(ConfigError, match=r"anchors: .* expected 000000000000"):
        run_recipe(load_recipe(tmp_path / "offline.toml", [*SHORT, *given]), tmp_path / "refused")


def test_online_anchors_start_from_new_weights_or_from_a_stage(
    recipe_path: Path, tmp_path: Path, early: Path
) -> None:
    recipe = recipe_with(recipe_path, tmp_path, "online")
    earlier = load_checkpoint(early.parent / "run" / "stages" / "joint" / "checkpoint")
    prepared = prepare_run(recipe, NullProgress())

    trainer = set_up_stage(
        recipe,
        recipe.final_stage,
        prepared,
        tmp_path / "x",
        Earlier(joint=earlier),
        NullProgress(),
    )
    assert isinstance(trainer.task, OnlineBranches)
    random, from_stage, target = (branch.model for branch in trainer.task.branches)
    for name, value in earlier.model.named_parameters():
        assert torch.equal(from_stage.get_parameter(name), value), name
    assert target is prepared.model
    for name, value in random.named_parameters():
        same = torch.equal(value, dict(target.named_parameters())[name])
        # Norms and biases start alike everywhere; frozen encoders are what they were.
        assert not (value.ndim > 1 and same and value.requires_grad), name


def test_online_anchors_leave_checkpoints_and_make_an_ensemble(finished: Finished) -> None:
    recipe, folder = finished("mutual")
    (branch,) = branch_checkpoints(folder / "stages" / "last")
    target, peer = load_checkpoint(folder / "checkpoint"), load_checkpoint(branch)
    assert target.model_id != peer.model_id
    records = read_records(Path(recipe.data.source), "val")
    one, other = evaluate_checkpoint(target, records), evaluate_checkpoint(peer, records)
    mean = (one.scores["matching"] + other.scores["matching"]) / 2
    expected = retrieval_ranks(mean, one.image_of_text)
    evaluation = evaluate_run(PlannedRun(recipe, folder), "val", NullProgress())
    ranks = evaluation.ranks["ensemble"]
    # Features of frozen encoders pass through the cache in half precision.
    assert (ranks.text_to_image - expected.text_to_image).abs().sum() <= 1
    assert (ranks.image_to_text - expected.image_to_text).abs().sum() <= 1
    assert set(evaluation.ranks) == set(one.ranks) | {"two_stage_alignment", "ensemble"}


def test_only_the_diagonal_is_excluded_on_demand(recipe_path: Path) -> None:
    train_set = prepare_run(load_recipe(recipe_path), NullProgress()).train_set
    rows = BatchRows(photos=[2, 2, 5], captions=[3, 4, 9], views=[0, 0, 0])
    by_image = train_set.batch(rows).negatives
    diagonal = train_set.batch(rows, "diagonal").negatives
    assert by_image.tolist() == [[False, False, True], [False, False, True], [True, True, False]]
    assert diagonal.tolist() == (~torch.eye(3, dtype=torch.bool)).tolist()


def test_other_lists_in_the_same_file_make_another_run(recipe_path: Path, tmp_path: Path) -> None:
    mined = recipe_with(recipe_path, tmp_path, "quintuplet")
    file = tmp_path / "lists.safetensors"
    settings = ["stage.last.offline.stage=null", f"stage.last.offline.file={file}"]
    recipe = load_recipe(tmp_path / "quintuplet.toml", settings)

    def write(first: int) -> Recipe:
        rows = torch.arange(first, first + 2, dtype=torch.int32).unsqueeze(1)
        save_negatives(
            file,
            OfflineNegatives(
                rows,
                rows.clone(),
                MinedFrom(
                    data="data", model_id="model", score="alignment", num_texts=5, num_images=3
                ),
            ),
        )
        return with_recorded_ids(recipe)

    known = write(1)
    (tmp_path / "recipe.json").write_text(json.dumps(dump_config(known)))
    assert with_recorded_ids(known) == known == write(1)
    assert is_run_of(tmp_path, recipe)
    other = write(2)
    assert not is_run_of(tmp_path, recipe)
    stores = [StageStore(tmp_path, each, "data") for each in (known, other)]
    assert stores[0].identity(2) != stores[1].identity(2)
    assert stores[0].identity(1) == stores[1].identity(1)
    with pytest.raises(ConfigError, match=r"holds the lists [0-9a-f]{12}, expected [0-9a-f]{12}"):
        with_recorded_ids(known)
    assert with_recorded_ids(mined) == mined
