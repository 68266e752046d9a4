"""The numbers of a comparison, from evaluations made by hand."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import pytest

from aladin_training.comparison.plan import ComparisonPlan
from aladin_training.comparison.summary import (
    difference,
    mean_curve,
    spread,
    summarize_plan,
)
from aladin_training.config.recipe import Recipe
from tests.training.comparison.conftest import FinishRun

ALL, NONE = [0] * 8, [50] * 8
HALF = [0] * 4 + [50] * 4


@pytest.fixture
def finished(plan: ComparisonPlan, finish_run: FinishRun) -> ComparisonPlan:
    """The baseline reaches 300 and 450, the second recipe 600 twice; the third has one seed."""
    base, long, third = plan.recipes
    finish_run(plan.run(base, 0), HALF, HALF[2:6])
    finish_run(plan.run(base, 1), HALF, ALL[:4])
    finish_run(plan.run(long, 0), ALL, ALL[:4], final_steps=10, final_step_s=120.0)
    finish_run(plan.run(long, 1), ALL, ALL[:4], final_steps=10, final_step_s=240.0)
    finish_run(plan.run(third, 1), NONE, NONE[:4])
    return plan


def test_figures_of_each_recipe_over_its_seeds(finished: ComparisonPlan) -> None:
    comparison = summarize_plan(finished, {"third seed 0": "diverged"}, {})
    base, long, third = comparison.summaries
    assert (base.rsum("matching"), base.rsum("attention")) == (spread([300, 450]), None)
    assert spread([300, 450]).std == pytest.approx(150 / 2**0.5)
    assert (long.rsum("matching"), third.rsum("matching")) == ((600, 0), (0, None))
    recalls = base.recall_at_1("image_to_text"), base.recall_at_1("text_to_image")
    assert (*recalls, base.mean_difference, base.cross_rank) == (75, 50, 1.0, 3.5)
    # A minute of steps, half of batches, of validation; then three minutes and five.
    assert (base.minutes(["student"]), long.minutes(["student"])) == (2, 4)
    assert long.minutes(["joint", "student"]) == 7
    assert (base.parameters, base.steps("student"), long.steps("student")) == (1234, 4, 10)
    assert (base.start_stage, base.final_stage) == ("joint", "student")
    assert base.runs[0].curve == {2: 100.0, 4: 150.0}  # the final stage's own score
    # The third is equal in all stages to the baseline, yet its final stage is its own.
    assert comparison.extra_steps() == {"base": 4, "long": 10, "third": 4}
    assert (base.missing, third.missing, third.failures) == ((), (0,), {0: "diverged"})


def test_difference_is_over_the_seeds_that_both_have(finished: ComparisonPlan) -> None:
    base, long, third = summarize_plan(finished, {}, {}).summaries
    assert base.difference is None
    assert long.difference is not None
    assert long.difference.difference == pytest.approx(600 - 375)
    assert long.difference.low < 225 < long.difference.high
    assert third.difference is not None  # seed 1 alone: 0 against 450
    assert third.difference.difference == pytest.approx(-450)
    runs = {0: long.runs[0].evaluation}, {1: base.runs[1].evaluation}
    assert difference(runs[0], "matching", runs[1], "matching") is None


@pytest.mark.parametrize(
    ("queries", "paired"), [("of other photos", False), ("of four photos", True)]
)
def test_runs_of_as_many_other_photos_are_not_paired(
    queries: str, paired: bool, plan: ComparisonPlan, finish_run: FinishRun
) -> None:
    base, long, _ = plan.recipes
    finish_run(plan.run(base, 0), ALL, ALL[:4])
    finish_run(plan.run(long, 0), ALL, ALL[:4], queries=queries)
    assert (summarize_plan(plan, {}, {}).summaries[1].difference is not None) == paired


def test_another_start_is_not_shared_and_another_recipe_s_run_does_not_count(
    finished: ComparisonPlan, variant: Callable[..., Recipe], finish_run: FinishRun
) -> None:
    other = variant("other", "stage.joint.epochs=9")
    changed = variant("long", "stage.joint.lr=0.5")
    plan = dataclasses.replace(finished, recipes=(finished.recipes[0], changed, other))
    finish_run(plan.run(other, 0), ALL, ALL[:4])
    comparison = summarize_plan(plan, {}, {})
    assert comparison.extra_steps() == {"base": 6 + 4, "other": 6 + 4}
    assert comparison.summaries[1].runs == {}


def test_curves_of_several_seeds_have_their_mean_at_every_point(
    plan: ComparisonPlan, variant: Callable[..., Recipe], finish_run: FinishRun
) -> None:
    curves = [{2: 100.0, 4: 200.0, 6: 300.0}, {2: 200.0, 4: 200.0}]
    assert mean_curve(curves) == [(2, 150.0, pytest.approx(100 / 2**0.5)), (4, 200.0, 0.0)]
    tasks = {"matching": {"loss": "triplet"}, "intra_modal": {"loss": "intra_modal"}}
    imc = variant("imc", f"stage.student.tasks={json.dumps(tasks)}")
    plan = dataclasses.replace(plan, recipes=(plan.recipes[0], imc))
    for seed, share in ((0, 0.01), (1, 0.03)):
        shares = {"intra_modal_gradient_share": (share, 0.2)}
        shares["matching_gradient_share"] = (1 - share, 0.8)
        finish_run(plan.run(imc, seed), ALL, ALL[:4], logged=shares)
    curve = summarize_plan(plan, {}, {}).summaries[1].gradient_shares()["intra_modal"]
    assert [(point.step, point.mean) for point in curve] == [(2, pytest.approx(0.02)), (4, 0.2)]
