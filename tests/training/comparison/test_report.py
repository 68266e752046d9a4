"""The report says what was done, marks what is missing, and shows the numbers of the runs."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
from collections.abc import Callable

import pytest

from aladin_training.comparison.conditions import conditions
from aladin_training.comparison.plan import ComparisonPlan
from aladin_training.comparison.report import write_report
from aladin_training.comparison.step_time import StepTime
from aladin_training.comparison.summary import Comparison, summarize_plan
from aladin_training.config.recipe import Recipe
from tests.training.comparison.conftest import FinishRun

ALL, HALF = [0] * 8, [0] * 4 + [50] * 4
TIMES = {
    "base": StepTime(ms=2.0, baseline_ms=2.0, ratio=1.0),
    "long": StepTime(ms=3.1, baseline_ms=2.0, ratio=1.55, peak_bytes=12_345_678),
}
QUALITY = {
    "matching_text_to_image_r1": (40.0, 50.0),
    "matching_image_to_text_r1": (50.0, 60.0),
    "matching_mean_difference": (0.3, 0.4),
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


def tables(markdown: str) -> list[list[list[str]]]:
    """Return the cells of every table, row by row, without marks of the baseline."""
    found: list[list[list[str]]] = []
    for block in markdown.split("\n\n"):
        if block.startswith("|"):
            rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in block.splitlines()]
            found.append([[cell.strip(" *") for cell in row] for row in rows])
    return found


def test_the_tables_hold_the_numbers_and_the_page_its_pictures(comparison: Comparison) -> None:
    files = write_report(comparison)
    markdown, html = (file.read_text() for file in files)
    results, differences, scores, cost = tables(markdown)
    for row, of in zip(differences[2:], results[3:], strict=True):
        assert row[:2] == [of[0], of[3]]
        # Wider than alone, around the same difference.
        alone, together = ([float(each) for each in re.findall(r"[+-][\d.]+", c)] for c in row[1:3])
        assert alone[0] == together[0]
        assert together[2] - together[1] >= 0.9 * (alone[2] - alone[1])
    base, long, third = results[2:]
    # The baseline: half of the captions; of the photos half with one seed, all with the other.
    assert base[:4] == ["base", "matching", "375.0 ± 106.1", "-"]
    # Two seeds that differ by 150 points widen the interval by Student's t of one degree.
    assert long[3].startswith("+225.0 (-")
    assert [long[2], *long[4:]] == [
        *("600.0 ± 0.0", "100.0", "100.0", "1.000", "3.5", "2.0", "1,234", "2 of 2")
    ]
    assert (third[2], third[3].split()[0], third[-1]) == ("600.0", "+150.0", "1 of 2, 1 failed")
    assert scores[3][1:3] == ["600.0 ± 0.0", "0.0 ± 0.0"]
    assert cost[3][1:] == ["joint 6, student 1,200", "1,200", "2.0", "5.0", "1.55", "12"]
    assert [cost[2][-2:], cost[4][-2:]] == [["1.00", "-"], ["-", "-"]]
    assert "More than 1.5 times the baseline's step time: long (1.55)." in markdown
    assert r"third seed 0: failed: the loss is nan \| \<not\> a \*number\*" in markdown
    assert "third seed 0: failed: the loss is nan | &lt;not&gt; a *number*" in html
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", markdown)
    assert pictures == [
        f"figures/{name}.png" for name in ("curves", "distributions", "cross_ranks")
    ]
    inside = re.findall(r'"data:image/png;base64,([^"]+)"', html)
    folder = comparison.plan.out
    assert [base64.b64decode(each) for each in inside] == [
        (folder / picture).read_bytes() for picture in pictures
    ]
    assert not re.search(r'(src|href)="(?!data:)', html)  # nothing is loaded from elsewhere


def test_the_head_says_how_it_was_done(comparison: Comparison) -> None:
    split, seeds, start, steps, budget, difference = conditions(comparison)
    assert split.startswith("Split: val (4 photos, 8 captions). The best weights and the fusion")
    assert seeds.startswith("Seeds: 0, 1 ")
    assert "stage joint of the same seed (6 steps; alignment rsum 300.0 ± 0.0" in start
    assert "with new random weights in matching" in start
    assert steps == "Steps of the final stage: 1,200 (long), all others 4."
    assert "takes 4 steps beyond the shared start: 1,200 (long)" in budget
    assert "baseline base with the same seeds" in difference
    assert "draws from 2 seeds only" in difference


def test_what_the_stages_logged_is_drawn_and_tabulated(
    plan: ComparisonPlan, variant: Callable[..., Recipe], finish_run: FinishRun
) -> None:
    tasks = {"matching": {"loss": "triplet"}, "intra_modal": {"loss": "intra_modal", "weight": 2}}
    imc = variant("imc", f"stage.student.tasks={json.dumps(tasks)}")
    plan = dataclasses.replace(plan, recipes=(plan.recipes[0], imc))
    for seed, share in ((0, 0.01), (1, 0.03)):
        shares = {"intra_modal_gradient_share": (share, 0.2)}
        shares["matching_gradient_share"] = (1 - share, 0.8)
        finish_run(plan.run(plan.recipes[0], seed), ALL, ALL[:4], logged=QUALITY)
        finish_run(plan.run(imc, seed), ALL, ALL[:4], logged=QUALITY | shares)
    comparison = summarize_plan(plan, {}, {})
    curve = comparison.summaries[1].gradient_shares()["intra_modal"]
    assert [(point.step, point.mean) for point in curve] == [(2, pytest.approx(0.02)), (4, 0.2)]
    text = write_report(comparison)[0].read_text()
    names = ["curves", "recalls", "separation", "shares", "distributions", "cross_ranks"]
    assert re.findall(r"\((figures/[^)]+)\)", text) == [f"figures/{name}.png" for name in names]
    shown = next(table for table in tables(text) if table[0][1] == "task")
    assert shown[2:] == [
        ["imc", "matching", "1", "98.0", "89.0", "80.0"],
        ["imc", r"intra\_modal", "2", "2.0", "11.0", "20.0"],
    ]


def test_nothing_finished_yet_is_a_report_too(plan: ComparisonPlan) -> None:
    text = write_report(summarize_plan(plan, {}, {}))[0].read_text()
    assert text.count(" seeds 0, 1: not trained and evaluated yet") == 3
    assert "![" not in text
    assert not (plan.out / "figures").exists()
