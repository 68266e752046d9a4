"""The report says what was done, marks what is missing, and shows the numbers of the runs."""

from __future__ import annotations

import base64
import dataclasses
import re

import pytest

from aladin_training.comparison.conditions import conditions
from aladin_training.comparison.plan import ComparisonPlan
from aladin_training.comparison.report import write_report
from aladin_training.comparison.step_time import StepTime
from aladin_training.comparison.summary import Comparison, summarize_plan
from aladin_training.config.recipe import StartConfig
from tests.training.comparison.conftest import FinishRun

ALL, HALF = [0] * 8, [0] * 4 + [50] * 4
TIMES = {
    "base": StepTime(ms=2.0, baseline_ms=2.0, ratio=1.0),
    "long": StepTime(ms=3.1, baseline_ms=2.0, ratio=1.55, peak_bytes=12_345_678),
}


@pytest.fixture
def comparison(plan: ComparisonPlan, finish_run: FinishRun) -> Comparison:
    """The baseline and a longer recipe are finished; of the third, one seed failed."""
    base, long, third = plan.recipes
    for seed in (0, 1):
        finish_run(plan.run(base, seed), HALF, HALF[2 - 2 * seed : 6 - 2 * seed])
        finish_run(plan.run(long, seed), ALL, ALL[:4], final_steps=1200, curve=(200, 300, 250))
    finish_run(plan.run(third, 1), ALL, ALL[:4])
    return summarize_plan(plan, {"third seed 0": "the loss is nan | <not> a *number*"}, TIMES)


def test_the_report_holds_the_numbers_and_the_reasons_and_loads_nothing(
    comparison: Comparison,
) -> None:
    markdown, html = (file.read_text() for file in write_report(comparison))
    # The baseline: half of the captions; of the photos half with one seed, all with the other.
    for number in ("375.0 ± 106.1", "600.0 ± 0.0", "+225.0 (-", "1 of 2, 1 failed", "1,200"):
        assert number in markdown
    assert (
        "Budget: the baseline's stages take joint 6, student 4 steps, 4 of them beyond the stages "
        "with which all recipes begin. More: 1,200 (long)."
    ) in markdown
    assert "with new random weights in matching; it goes back to random weights." in markdown
    assert "More than 1.5 times the baseline's step time: long (1.55)." in markdown
    assert r"third seed 0: failed: the loss is nan \| \<not\> a \*number\*" in markdown
    assert "third seed 0: failed: the loss is nan | &lt;not&gt; a *number*" in html
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", markdown)
    inside = re.findall(r'"data:image/png;base64,([^"]+)"', html)
    assert pictures
    assert [base64.b64decode(each) for each in inside] == [
        (comparison.plan.out / picture).read_bytes() for picture in pictures
    ]
    assert not re.search(r'(src|href)="(?!data:)', html)


def test_the_start_is_the_checkpoint_that_a_recipe_names(
    plan: ComparisonPlan, finish_run: FinishRun
) -> None:
    for recipe in plan.recipes[:2]:
        finish_run(plan.run(recipe, 0), ALL, ALL[:4])
    start = StartConfig(checkpoint="models/vinvl")
    comparison = summarize_plan(dataclasses.replace(plan, recipes=plan.recipes[:2]), {}, {})
    base, long = (
        dataclasses.replace(each, recipe=dataclasses.replace(each.recipe, model=None, start=start))
        for each in comparison.summaries
    )
    alone = dataclasses.replace(long.recipe, stage=long.recipe.stage[1:])
    summaries = (base, dataclasses.replace(long, recipe=alone))
    lines = conditions(dataclasses.replace(comparison, summaries=summaries))
    both = [line for line in lines if line.startswith("Start of the final stage of ")]
    assert both[0].endswith("in matching; it goes back to the network of models/vinvl.")
    assert both[1].endswith("of models/vinvl, with new random weights in matching.")


def test_nothing_finished_yet_is_a_report_too(plan: ComparisonPlan) -> None:
    assert (
        "not trained and evaluated yet" in write_report(summarize_plan(plan, {}, {}))[0].read_text()
    )
