"""The recipes of the papers' tables: what each line changes, and what they train beside others."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from aladin_network.checkpoint import load_checkpoint
from aladin_network.scoring.metrics import retrieval_ranks
from aladin_network.types import NullProgress
from aladin_training.comparison.budget import (
    TrainingSize,
    as_long,
    steps_of,
    with_controls,
)
from aladin_training.comparison.claims import read_claims
from aladin_training.comparison.evaluate import evaluate_run
from aladin_training.comparison.grid import parse_grid
from aladin_training.comparison.measures import MEASURES
from aladin_training.comparison.plan import (
    Choices,
    ComparisonPlan,
    PlannedRun,
    Reported,
    find_recipes,
    load_plan,
)
from aladin_training.comparison.tables import SCORES
from aladin_training.config.defaults import Lists
from aladin_training.config.recipe import Recipe, load_recipe
from aladin_training.config.shipped import recipes_folder, shipped_recipes
from aladin_training.config.stage import StageConfig
from aladin_training.data import read_records
from aladin_training.evaluation import evaluate_checkpoint
from aladin_training.mining.miner import mine_file
from aladin_training.stages.run import run_recipe
from tests.training.recipes.experiments import PAPERS, commands, experiments, recipes_in


def test_negatives_mined_by_another_network_s_run(
    tiny: Callable[..., Recipe], scenes: Path, shared: Path, tmp_path: Path
) -> None:
    """AOQ's cheap miner, by the two commands that the recipe names."""
    cheap = tiny(recipes_folder() / "compare" / "mh.toml")
    miner = run_recipe(cheap, tmp_path / "mh", shared=shared / "stages").checkpoint
    file = tmp_path / "negatives.safetensors"
    mine_file(
        load_checkpoint(miner),
        read_records(scenes, "train"),
        file,
        cache=shared / "cache",
        lists=Lists("matching", 5, 3),
    )
    offline = {"file": str(file), "miner": str(miner), "num_texts": 5, "num_images": 3}
    student = tiny(
        PAPERS / "aoq-attention.toml", "variant=mined-file", f"final.offline={json.dumps(offline)}"
    )
    result = run_recipe(student, tmp_path / "student", shared=shared / "stages")
    assert "attention" in load_checkpoint(result.checkpoint).model.score_names


def test_an_anchor_of_another_network(
    tiny: Callable[..., Recipe], scenes: Path, shared: Path, tmp_path: Path
) -> None:
    """DBL's poor anchor: VSE++ with its own encoders and vocabulary boosts the suite's network."""
    vsepp = run_recipe(tiny(recipes_folder() / "vsepp.toml"), tmp_path / "vsepp").checkpoint
    anchors = {"scenario": "offline", "checkpoints": [str(vsepp)]}
    target = tiny(
        PAPERS / "dbl-anchors.toml", "variant=vsepp", f"final.anchors={json.dumps(anchors)}"
    )
    run_recipe(target, tmp_path / "run", shared=shared / "stages")
    evaluation = evaluate_run(PlannedRun(target, tmp_path / "run"), "val", NullProgress())
    records = read_records(scenes, "val")
    networks = [load_checkpoint(each) for each in (tmp_path / "run" / "checkpoint", vsepp)]
    alone = [evaluate_checkpoint(each, records) for each in networks]
    mean = (alone[0].scores["matching"] + alone[1].scores["matching"]) / 2
    expected = retrieval_ranks(mean, alone[0].image_of_text)
    ranks = evaluation.ranks["ensemble"]
    # Features of frozen encoders pass through the cache in half precision.
    assert (ranks.text_to_image - expected.text_to_image).abs().sum() <= 1


def test_an_online_anchor_has_a_start_of_its_own(
    tiny: Callable[..., Recipe], shared: Path, tmp_path: Path
) -> None:
    """DBL's own network: other words, trunks and attention than the target's, as long trained."""
    recipe = tiny(PAPERS / "dbl-2.toml", "variant=oss-rm")
    assert recipe.final_stage.anchors is not None
    assert recipe.final_stage.anchors.stages == ("second-all-negatives",)
    run_recipe(recipe, tmp_path / "run", shared=shared / "stages")
    first, second = (
        load_file(tmp_path / "run" / "stages" / name / "checkpoint" / "model.safetensors")
        for name in ("all-negatives", "second-all-negatives")
    )
    for name in (
        "text.encoder.embedding.weight",
        "text.encoder.network.weight_hh_l0",
        "attention.comparison.weight",
    ):
        ours, theirs = first[name].flatten(), second[name].flatten()
        assert float(torch.corrcoef(torch.stack([ours, theirs]))[0, 1]) < 0.3, name
        assert float(theirs.std() / ours.std()) == pytest.approx(1, abs=0.1), name
    frozen = [name for name in first if name.startswith("image.encoder.")]
    assert all(torch.equal(first[name], second[name]) for name in frozen)


def test_at_least_four_fifths_of_the_experiments_have_a_command_and_the_others_a_reason() -> None:
    lines = experiments()
    assert {each.paper for each in lines} == {"ALADIN", "DBL", "AOQ", "GOAL", "IMC", "all"}
    assert len({(each.paper, each.name) for each in lines}) == len(lines)
    without = [each for each in lines if each.command is None]
    assert len(without) <= 0.2 * len(lines)
    assert all(each.remark for each in without)


def plan_of(shell: str, out: Path) -> ComparisonPlan | None:
    """Return the plan of a command of the table; None of `aladin train`, whose recipe is read."""
    words, recipes = shlex.split(shell)[1:], recipes_in(shell)
    settings = [words[n + 1] for n, word in enumerate(words) if word == "--set"]
    grid = [words[n + 1] for n, word in enumerate(words) if word == "--grid"]
    if words[0] == "train":
        assert load_recipe(recipes[0], settings).stage, shell
        return None
    baseline = words[words.index("--baseline") + 1] if "--baseline" in words else None
    cross = int(words[words.index("--cross") + 1]) if "--cross" in words else 1
    choices = Choices(parse_grid(grid), "selection")
    return load_plan(recipes, 1, out, Reported(cross=cross), baseline, settings, choices)


def test_the_recipes_of_every_command_make_a_run_or_a_comparison(tmp_path: Path) -> None:
    named: set[Path] = set()
    for shell in commands():
        plan = plan_of(shell, tmp_path)
        assert plan is None or plan.runs(), shell
        named.update(path for path in recipes_in(shell) if path.suffix == ".toml")
    assert set(find_recipes([PAPERS])) <= named


FLICKR8K = TrainingSize(photos=6000, captions=30_000)
SUITE = "aladin compare training/recipes/compare --baseline mh --out runs/compare"


def test_every_claim_is_judged_by_a_comparison_of_the_table(tmp_path: Path) -> None:
    plans = [plan for shell in (*commands(), SUITE) if (plan := plan_of(shell, tmp_path))]
    names = [{recipe.name for recipe in plan.recipes} for plan in plans]
    own = {recipe.name: recipe.own_score for plan in plans for recipe in plan.recipes}
    claims = read_claims()
    assert {claim.paper for claim in claims} == {"ALADIN", "DBL", "AOQ", "GOAL", "IMC"}
    distinct = {(each.better, each.than, each.score, each.measure) for each in claims}
    assert len(distinct) == len(claims)
    assert {claim.measure for claim in claims} == set(MEASURES)
    for claim in claims:
        assert any({claim.better, claim.than} <= some for some in names), claim
        assert {claim.score, claim.than_score} <= {None, *SCORES}, claim
        if claim.measure == "md":  # scores of two heads have no common unit
            assert own[claim.better] == own[claim.than], claim
    crossed = [some for plan, some in zip(plans, names, strict=True) if plan.cross > 1]
    primary = [claim for claim in claims if claim.primary]
    assert len(primary) == 7
    assert all({claim.better, claim.than} <= crossed[0] for claim in primary)


def steps_on_flickr8k(_: Recipe, stage: StageConfig) -> int:
    return steps_of(stage, FLICKR8K)


def test_no_claim_is_left_with_unequal_steps_and_no_control(tmp_path: Path) -> None:
    """By the steps that the recipes take on Flickr8k, in each command that has both of a claim."""
    claims = read_claims()
    unequal: list[tuple[str, str, str]] = []
    controlled: set[str] = set()
    for shell in commands():
        plan = plan_of(shell, tmp_path)
        if plan is None:
            continue
        if "--controls" in shell:
            sizes = dict.fromkeys((each.name for each in plan.recipes), FLICKR8K)
            plan = with_controls(plan, sizes, [(each.better, each.than) for each in claims])
        recipes = {recipe.name: recipe for recipe in plan.recipes}
        for claim in claims:
            if not {claim.better, claim.than} <= recipes.keys():
                continue
            if plan.cross > 1 and not claim.primary:
                continue
            controls = [recipes[name] for name, of in plan.controls.items() if of == claim.than]
            found = as_long(recipes[claim.better], recipes[claim.than], controls, steps_on_flickr8k)
            if found is None:
                unequal.append((claim.better, claim.than, shell))
            elif found.name != claim.than:
                controlled.add(claim.better)
    assert unequal == []
    # Those that need one: anchors and miners of their own, and stages that go on from another.
    assert {"primary-oas-am", "primary-oss-am", "primary-aoq-adaptive"} <= controlled
    assert {"aladin-a-ft-d-ft", "aladin-warm-up-from-a-ft", "aoq-attention-eq-5"} <= controlled


def test_every_shipped_recipe_and_variant_has_a_name_of_its_own() -> None:
    """A claim is about recipes by their names, and a run's folder is named after its recipe."""
    names = [
        load_recipe(each.path, [f"variant={variant}"] if variant else []).name
        for each in shipped_recipes()
        for variant in each.variants or ("",)
    ]
    assert len(set(names)) == len(names)
