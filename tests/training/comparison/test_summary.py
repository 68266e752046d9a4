"""The numbers of a comparison, from evaluations made by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from aladin_training.comparison.evaluation import RunEvaluation
from aladin_training.comparison.plan import ComparisonPlan
from aladin_training.comparison.summary import difference, spread, summarize_plan
from aladin_training.config.recipe import Recipe

FinishRun = Callable[..., RunEvaluation]

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


def test_mean_and_deviation_over_seeds(finished: ComparisonPlan) -> None:
    base, long, third = summarize_plan(finished, {}, {}).summaries
    assert base.rsum("matching") == spread([300, 450])
    assert spread([300, 450]).std == pytest.approx(150 / 2**0.5)
    assert long.rsum("matching") == (600, 0)
    assert third.rsum("matching") == (0, None)
    assert base.rsum("attention") is None
    assert base.recall_at_1("image_to_text") == 75
    assert base.recall_at_1("text_to_image") == 50
    assert base.mean_difference == 1.0
    assert base.cross_rank == 3.5


def test_difference_is_over_the_seeds_that_both_have(finished: ComparisonPlan) -> None:
    base, long, third = summarize_plan(finished, {}, {}).summaries
    assert base.difference is None
    assert long.difference is not None
    assert long.difference.difference == pytest.approx(600 - 375)
    assert long.difference.low < 225 < long.difference.high
    assert third.difference is not None  # seed 1 alone: 0 against 450
    assert third.difference.difference == pytest.approx(-450)


def test_no_difference_without_a_common_seed_or_the_same_queries(
    finished: ComparisonPlan,
) -> None:
    base, long, _ = summarize_plan(finished, {}, {}).summaries
    assert difference({0: long.runs[0]}, "matching", {1: base.runs[1]}, "matching") is None
    evaluation = long.runs[0].evaluation
    other = dataclasses.replace(evaluation, queries="of other photos")
    elsewhere = dataclasses.replace(long.runs[0], evaluation=other)
    assert difference({0: elsewhere}, "matching", {0: base.runs[0]}, "matching") is None


def test_time_steps_and_parameters_come_from_the_stages(finished: ComparisonPlan) -> None:
    comparison = summarize_plan(finished, {}, {})
    base, long, _ = comparison.summaries
    assert base.minutes(["student"]) == 2  # a minute of steps, half of batches, of validation
    assert long.minutes(["student"]) == 4  # three minutes and five
    assert long.minutes(["joint", "student"]) == 7
    assert base.parameters == 1234
    assert (base.steps("student"), long.steps("student")) == (4, 10)
    assert (base.start_stage, base.final_stage) == ("joint", "student")


def test_steps_beyond_the_shared_start(finished: ComparisonPlan) -> None:
    comparison = summarize_plan(finished, {}, {})
    base, long, third = comparison.summaries
    assert comparison.extra_steps(base) == 4
    assert comparison.extra_steps(long) == 10
    # Equal in all stages to the baseline, yet its final stage is its own.
    assert comparison.extra_steps(third) == 4


def test_another_start_is_not_shared(
    finished: ComparisonPlan, variant: Callable[..., Recipe], finish_run: FinishRun
) -> None:
    other = variant("other", "stage.joint.epochs=9")
    plan = dataclasses.replace(finished, recipes=(*finished.recipes, other))
    finish_run(plan.run(plan.recipes[-1], 0), ALL, ALL[:4])
    comparison = summarize_plan(plan, {}, {})
    assert comparison.extra_steps(comparison.summaries[-1]) == 6 + 4


def test_missing_and_failed_runs_are_known(finished: ComparisonPlan) -> None:
    failures = {"third seed 0": "diverged"}
    base, _, third = summarize_plan(finished, failures, {}).summaries
    assert base.missing == ()
    assert third.missing == (0,)
    assert third.failures == {0: "diverged"}


def test_a_run_of_another_recipe_does_not_count(
    finished: ComparisonPlan, variant: Callable[..., Recipe]
) -> None:
    changed = variant("base", "stage.joint.lr=0.5")
    plan = dataclasses.replace(finished, recipes=(changed, *finished.recipes[1:]))
    assert summarize_plan(plan, {}, {}).summaries[0].runs == {}


def test_a_curve_is_the_final_stage_s_own_score(finished: ComparisonPlan) -> None:
    base = summarize_plan(finished, {}, {}).summaries[0]
    assert base.runs[0].curve == {2: 100.0, 4: 150.0}


def test_a_curve_begins_with_the_start_if_that_had_the_score(
    plan: ComparisonPlan, variant: Callable[..., Recipe], finish_run: FinishRun
) -> None:
    going_on = variant("going-on", "stage.student.reset=[]")
    new_score = variant(
        "new-score",
        "stage.student.reset=[]",
        'stage.joint.tasks={"alignment": {"loss": "triplet"}}',
    )
    plan = dataclasses.replace(plan, recipes=(going_on, new_score), baseline="going-on")
    for recipe in plan.recipes:
        finish_run(plan.run(recipe, 0), ALL, ALL[:4])
    summaries = summarize_plan(plan, {}, {}).summaries
    curves = [summary.runs[0].curve for summary in summaries]
    assert curves == [{0: 300.0, 2: 100.0, 4: 150.0}, {2: 100.0, 4: 150.0}]


def test_a_curve_has_points_of_one_split(
    plan: ComparisonPlan, variant: Callable[..., Recipe], finish_run: FinishRun
) -> None:
    """The start's result is that of the validation split, the log's that of the selection split."""
    recipe = variant("going-on", "stage.student.reset=[]", "data.selection=0.4")
    plan = dataclasses.replace(plan, recipes=(recipe,), baseline="going-on")
    finish_run(plan.run(recipe, 0), ALL, ALL[:4])
    (summary,) = summarize_plan(plan, {}, {}).summaries
    assert summary.runs[0].curve == {2: 100.0, 4: 150.0}


@pytest.mark.parametrize(
    ("queries", "paired"), [("of other photos", False), ("of four photos", True)]
)
def test_runs_of_other_photos_are_not_paired(
    queries: str, paired: bool, plan: ComparisonPlan, finish_run: FinishRun
) -> None:
    """As many photos and captions are not the same."""
    base, long, _ = plan.recipes
    finish_run(plan.run(base, 0), ALL, ALL[:4])
    finish_run(plan.run(long, 0), ALL, ALL[:4], queries=queries)
    assert (summarize_plan(plan, {}, {}).summaries[1].difference is not None) == paired
