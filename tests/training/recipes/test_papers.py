"""The recipes of the papers' tables: what each line changes, and that each kind of them trains."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
import torch
from safetensors.torch import load_file

from aladin_network.checkpoint import load_checkpoint
from aladin_network.types import NullProgress
from aladin_training.comparison.claims import read_claims
from aladin_training.comparison.evaluate import evaluate_run
from aladin_training.comparison.grid import parse_grid
from aladin_training.comparison.measures import MEASURES
from aladin_training.comparison.plan import (
    ComparisonPlan,
    PlannedRun,
    find_recipes,
    load_plan,
)
from aladin_training.comparison.tables import SCORES
from aladin_training.config.recipe import Recipe, load_recipe
from aladin_training.config.shipped import recipes_folder
from aladin_training.config.toml_files import variants_of
from aladin_training.data import read_records
from aladin_training.evaluation import evaluate_checkpoint
from aladin_training.losses.gradient import PairWeight, TripletWeight
from aladin_training.mining.miner import mine_file
from aladin_training.stages.run import run_recipe

PAPERS = recipes_folder() / "papers"
# One line of each kind: a loss, a scenario, a start or a source that no other recipe has.
KINDS = {
    "aladin-warm-up": ["without"],
    "aoq": ["online-quin", "without-offline-adap", "own-start"],
    "aoq-attention": ["eq-5"],
    "dbl-2": ["oas-dr", "oas-rkd", "oss-dml", "mss-dino-star"],
    "dbl-3": ["cmpm", "mpl-dbl"],
    "dbl-4": ["rm-am-soft"],
    "dbl-anchors": ["half"],
    "dbl-branches": ["3-dml"],
    "goal": ["con-lin-ms"],
    "goal-vsepp": ["cir-sig-ms"],
    "imc": ["cos", "none"],
}
LINES = [(file, variant) for file, variants in KINDS.items() for variant in variants]


@pytest.mark.parametrize(("file", "variant"), LINES, ids=lambda part: part)
def test_a_line_of_each_kind_trains(
    file: str, variant: str, tiny: Callable[..., Recipe], shared: Path, tmp_path: Path
) -> None:
    recipe = tiny(PAPERS / f"{file}.toml", f"variant={variant}")
    result = run_recipe(recipe, tmp_path / "run", shared=shared / "stages")
    assert recipe.own_score in result.validation[recipe.final_stage.name]
    stages = tmp_path / "run" / "stages"
    before = recipe.final_stage.start or recipe.stage[-2].name
    start, end = (
        load_file(stages / name / "checkpoint" / "model.safetensors")
        for name in (before, recipe.final_stage.name)
    )
    assert any(not torch.equal(start[name], value) for name, value in end.items())


def test_negatives_mined_by_another_network_s_run(
    tiny: Callable[..., Recipe], scenes: Path, shared: Path, tmp_path: Path
) -> None:
    """AOQ's cheap miner, by the two commands that the recipe names."""
    cheap = tiny(recipes_folder() / "compare" / "mh.toml")
    miner = run_recipe(cheap, tmp_path / "mh", shared=shared / "stages").checkpoint
    file = tmp_path / "negatives.safetensors"
    mine_file(
        miner,
        scenes,
        "train",
        file,
        cache=shared / "cache",
        num_texts=5,
        num_images=3,
        progress=NullProgress(),
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
    both = evaluate_checkpoint(
        load_checkpoint(tmp_path / "run" / "checkpoint"),
        records,
        ensemble=[load_checkpoint(vsepp)],
    )
    ranks, expected = evaluation.ranks["ensemble"], both.ranks["matching"]
    # Features of frozen encoders pass through the cache in half precision.
    assert (ranks.text_to_image - expected.text_to_image).abs().sum() <= 1


def test_goal_has_all_fifteen_combinations() -> None:
    for file in ("goal", "goal-vsepp"):
        path = PAPERS / f"{file}.toml"
        found: set[tuple[str, str]] = set()
        for variant in variants_of(path)[:15]:
            recipe = load_recipe(path, [f"variant={variant}"])
            options = recipe.final_stage.tasks["matching"].options
            pair = (options["triplet_weight"], options["pair_weight"])
            assert variant == "-".join(pair).replace("_", "-")
            found.add(pair)
        assert found == {(t, p) for t in get_args(TripletWeight) for p in get_args(PairWeight)}


def test_imc_has_its_four_distances_and_a_range_of_lambda() -> None:
    path = PAPERS / "imc.toml"
    recipes = [load_recipe(path, [f"variant={variant}"]) for variant in variants_of(path)]
    options = [
        recipe.final_stage.tasks["intra_modal"].options
        for recipe in recipes
        if "intra_modal" in recipe.final_stage.tasks
    ]
    assert {each["distance"] for each in options} == {"l1", "l2", "msd", "cos"}
    weights = [each["weight"] for each in options if "weight" in each]
    assert weights == sorted(weights)
    assert min(weights) < 1 < max(weights)
    for recipe in recipes:
        assert recipe.data.mirror
        assert recipe.data.crops


def experiments() -> list[list[str]]:
    """Return the lines of the table of experiments: paper, experiment, command, remark."""
    text = (Path(__file__).parents[3] / "training" / "PAPERS.md").read_text(encoding="utf-8")
    _, _, section = text.partition("### 3.7 ")
    table = section.partition("## 4. ")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_most_experiments_have_a_command_and_all_others_a_reason() -> None:
    lines = experiments()
    assert {paper for paper, *_ in lines} == {"ALADIN", "DBL", "AOQ", "GOAL", "IMC"}
    without = [line for line in lines if line[2] == "none"]
    assert len(without) <= 0.2 * len(lines)
    assert all(remark for *_, remark in without)


def plan_of(shell: str, out: Path) -> ComparisonPlan | None:
    """Return the plan of a command of the table; None of `aladin train`, whose recipe is read."""
    words = shlex.split(shell)[1:]
    root = recipes_folder().parents[1]
    recipes = [root / word for word in words if word.startswith("training/recipes/")]
    settings = [words[n + 1] for n, word in enumerate(words) if word == "--set"]
    grid = [words[n + 1] for n, word in enumerate(words) if word == "--grid"]
    if words[0] == "train":
        assert load_recipe(recipes[0], settings).stage, shell
        return None
    baseline = words[words.index("--baseline") + 1] if "--baseline" in words else None
    return load_plan(recipes, 1, out, "val", baseline, settings, parse_grid(grid), "selection")


def commands() -> list[str]:
    return [
        shell
        for _, _, command, remark in experiments()
        for shell in re.findall(r"`(aladin (?:train|compare) [^`]*)`", f"{command} {remark}")
    ]


def test_the_recipes_of_every_command_make_a_run_or_a_comparison(tmp_path: Path) -> None:
    named: set[Path] = set()
    for shell in commands():
        plan = plan_of(shell, tmp_path)
        assert plan is None or plan.runs(), shell
        root = recipes_folder().parents[1]
        named.update(root / word for word in shlex.split(shell) if word.endswith(".toml"))
    assert set(find_recipes([PAPERS])) <= named


def test_every_claim_is_judged_by_a_comparison_of_the_table(tmp_path: Path) -> None:
    suite = "aladin compare training/recipes/compare --baseline mh --out runs/compare"
    plans = [plan for shell in (*commands(), suite) if (plan := plan_of(shell, tmp_path))]
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
        if claim.measure in ("md", "margin"):  # scores of two heads have no common unit
            assert own[claim.better] == own[claim.than], claim
