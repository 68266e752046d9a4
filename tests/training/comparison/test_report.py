"""The report says what was done, marks what is missing, and holds together as a document."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from aladin_training.comparison.conditions import conditions
from aladin_training.comparison.evaluation import RunEvaluation
from aladin_training.comparison.plan import ComparisonPlan
from aladin_training.comparison.report import write_report
from aladin_training.comparison.step_time import StepTime
from aladin_training.comparison.summary import Comparison, summarize_plan
from aladin_training.config.recipe import Recipe

ALL, HALF = [0] * 8, [0] * 4 + [50] * 4
VOID = {"meta", "img"}
BASE_STEP = StepTime(ms=2.0, baseline_ms=2.0, ratio=1.0)
LONG_STEP = StepTime(ms=3.1, baseline_ms=2.0, ratio=1.55, peak_bytes=12_345_678)


@pytest.fixture
def comparison(plan: ComparisonPlan, finish_run: Callable[..., RunEvaluation]) -> Comparison:
    """The baseline and a longer recipe are finished; of the third, one seed failed."""
    base, long, third = plan.recipes
    for seed in (0, 1):
        finish_run(plan.run(base, seed), HALF, HALF[2 - 2 * seed : 6 - 2 * seed])
        finish_run(plan.run(long, seed), ALL, ALL[:4], final_steps=1200, curve=(200, 300, 250))
    finish_run(plan.run(third, 1), ALL, ALL[:4])
    failures = {"third seed 0": "the loss is nan | <not> a *number*"}
    return summarize_plan(plan, failures, {"base": BASE_STEP, "long": LONG_STEP})


def tables(markdown: str) -> list[list[list[str]]]:
    """Return the cells of every table, row by row."""
    found: list[list[list[str]]] = []
    for block in markdown.split("\n\n"):
        if block.startswith("|"):
            rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in block.splitlines()]
            found.append([[cell.strip() for cell in row] for row in rows])
    return found


def test_the_tables_hold_the_numbers(comparison: Comparison) -> None:
    markdown, _ = write_report(comparison)
    results, differences, scores, cost = tables(markdown.read_text())
    assert differences[0][2:] == ["simultaneous interval", "smallest effect"]
    assert [row[:2] for row in differences[2:]] == [[row[0], row[3]] for row in results[3:]]
    for row in differences[2:]:  # wider than alone, around the same difference
        alone, together = ([float(each) for each in re.findall(r"[+-][\d.]+", c)] for c in row[1:3])
        assert alone[0] == together[0]
        assert together[2] - together[1] >= 0.9 * (alone[2] - alone[1])
    for table in (results, scores, cost):
        assert {len(row) for row in table} == {len(table[0])}
        assert set(table[1][1:]) == {"---:"}
        assert [row[0].strip("*") for row in table[2:]] == ["base", "long", "third"]
    base, long, third = results[2:]
    # The baseline: half of the captions; of the photos half with one seed, all with the other.
    assert base[1:4] == ["**matching**", "**375.0 ± 106.1**", "**-**"]
    assert long[2] == "600.0 ± 0.0"
    # Two seeds that differ by 150 points widen the interval by Student's t of one degree.
    assert long[3].startswith("+225.0 (-")
    assert long[4:] == ["100.0", "100.0", "1.000", "3.5", "2.0", "1,234", "2 of 2"]
    assert third[2] == "600.0"
    assert third[3].startswith("+150.0")
    assert third[-1] == "1 of 2, 1 failed"
    assert scores[0] == ["recipe", "matching", "alignment", "fused", "two-stage"]
    assert scores[3][1:3] == ["600.0 ± 0.0", "0.0 ± 0.0"]
    assert cost[3][1:] == ["joint 6, student 1,200", "1,200", "2.0", "5.0", "1.55", "12"]
    assert cost[2][-2:] == ["**1.00**", "**-**"]
    assert cost[4][-2:] == ["-", "-"]


def test_the_head_says_how_it_was_done(comparison: Comparison) -> None:
    lines = conditions(comparison)
    assert lines[0].startswith("Split: val (4 photos, 8 captions). The best weights and the fusion")
    assert lines[1] == "Seeds: 0, 1 (for weights, batches and dropout)."
    assert "stage joint of the same seed (6 steps; alignment rsum 300.0 ± 0.0" in lines[2]
    assert "with new random weights in matching" in lines[2]
    assert lines[3] == "Steps of the final stage: 1,200 (long), all others 4."
    assert "takes 4 steps beyond the shared start: 1,200 (long)" in lines[4]
    assert "baseline base with the same seeds" in lines[5]
    assert "draws from 2 seeds only" in lines[5]


def test_an_even_budget_and_an_unseen_split_are_said_so(
    plan: ComparisonPlan, finish_run: Callable[..., RunEvaluation]
) -> None:
    even = dataclasses.replace(plan, split="test", recipes=(plan.recipes[0], plan.recipes[2]))
    for run in even.runs():
        finish_run(run, ALL, ALL[:4], split="test")
    lines = conditions(summarize_plan(even, {}, {}))
    assert lines[0] == "Split: test (4 photos, 8 captions)."
    assert lines[3] == "Steps of every recipe's final stage: 4."
    assert lines[4].startswith("Budget: ")
    assert "no recipe takes more steps than the baseline's 4" in lines[4]


def test_what_was_chosen_on_a_selection_split_is_not_said_of_the_validation_split(
    plan: ComparisonPlan, variant: Callable[..., Recipe], finish_run: Callable[..., RunEvaluation]
) -> None:
    careful = variant("careful", "data.selection=0.4")
    mixed = dataclasses.replace(plan, recipes=(plan.recipes[0], careful), seeds=(0,))
    for run in mixed.runs():
        finish_run(run, ALL, ALL[:4])
    assert "fusion of the runs of base were chosen" in conditions(summarize_plan(mixed, {}, {}))[0]
    only = dataclasses.replace(mixed, recipes=(careful,), baseline="careful")
    assert conditions(summarize_plan(only, {}, {}))[0] == "Split: val (4 photos, 8 captions)."


def test_different_starts_are_told_apart(
    comparison: Comparison, variant: Callable[..., Recipe], finish_run: Callable[..., RunEvaluation]
) -> None:
    other = variant("other", "stage.joint.lr=0.5")
    plan = dataclasses.replace(
        comparison.plan, recipes=(*comparison.plan.recipes, other), seeds=(1,)
    )
    finish_run(plan.run(other, 1), ALL, ALL[:4])
    lines = conditions(summarize_plan(plan, {}, {}))
    assert lines[2].startswith("Start of the final stage of other: stage joint")
    assert lines[3].startswith("Start of the final stage of all others: stage joint")


def test_what_failed_is_listed_with_its_reason(comparison: Comparison) -> None:
    markdown, html = write_report(comparison)
    reason = r"third seed 0: failed: the loss is nan \| \<not\> a \*number\*"
    assert f"* {reason}" in markdown.read_text()
    assert "third seed 0: failed: the loss is nan | &lt;not&gt; a *number*" in html.read_text()


def test_long_steps_are_named(comparison: Comparison) -> None:
    markdown, _ = write_report(comparison)
    assert "More than 1.5 times the baseline's step time: long (1.55)." in markdown.read_text()


def test_pictures_of_the_markdown_exist(comparison: Comparison) -> None:
    markdown, _ = write_report(comparison)
    links = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", markdown.read_text())
    names = ("curves", "distributions", "cross_ranks")
    assert links == [f"figures/{name}.png" for name in names]
    for link in links:
        assert (markdown.parent / link).read_bytes().startswith(b"\x89PNG")


def test_what_the_stages_logged_is_drawn_and_tabulated(
    plan: ComparisonPlan, variant: Callable[..., Recipe], finish_run: Callable[..., RunEvaluation]
) -> None:
    tasks = {"matching": {"loss": "triplet"}, "intra_modal": {"loss": "intra_modal", "weight": 2}}
    imc = variant("imc", f"stage.student.tasks={json.dumps(tasks)}")
    plan = dataclasses.replace(plan, recipes=(plan.recipes[0], imc))
    quality = {
        "matching_text_to_image_r1": (40.0, 50.0),
        "matching_image_to_text_r1": (50.0, 60.0),
        "matching_mean_difference": (0.3, 0.4),
    }
    for seed, share in ((0, 0.01), (1, 0.03)):
        shares = {"intra_modal_gradient_share": (share, 0.2)}
        shares["matching_gradient_share"] = (1 - share, 0.8)
        finish_run(plan.run(plan.recipes[0], seed), ALL, ALL[:4], logged=quality)
        finish_run(plan.run(imc, seed), ALL, ALL[:4], logged=quality | shares)
    comparison = summarize_plan(plan, {}, {})
    curve = comparison.summaries[1].gradient_shares()["intra_modal"]
    assert [(point.step, point.mean) for point in curve] == [(2, pytest.approx(0.02)), (4, 0.2)]
    markdown, _ = write_report(comparison)
    text = markdown.read_text()
    names = ["curves", "recalls", "separation", "shares", "distributions", "cross_ranks"]
    assert re.findall(r"\((figures/[^)]+)\)", text) == [f"figures/{name}.png" for name in names]
    assert all((markdown.parent / "figures" / f"{name}.png").exists() for name in names)
    shown = next(table for table in tables(text) if table[0][1] == "task")
    assert shown[0] == ["recipe", "task", "weight", "first", "mean", "last"]
    assert shown[2:] == [
        ["imc", "matching", "1", "98.0", "89.0", "80.0"],
        ["imc", r"intra\_modal", "2", "2.0", "11.0", "20.0"],
    ]


class Page(HTMLParser):
    """Checks that tags close in order, and collects what the page shows and loads."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sources: list[str] = []
        self.cells: list[int] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open a tag."""
        if tag not in VOID:
            self.open.append(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag == "tr":
            self.cells.append(0)
        elif tag in ("td", "th"):
            self.cells[-1] += 1

    def handle_endtag(self, tag: str) -> None:
        """Close the tag that was opened last."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Collect text."""
        self.text.append(data)


def test_the_page_is_whole_and_needs_nothing_else(comparison: Comparison) -> None:
    _, html = write_report(comparison)
    page = Page()
    page.feed(html.read_text())
    assert page.open == []
    pictures = [source.removeprefix("data:image/png;base64,") for source in page.sources]
    names = ("curves", "distributions", "cross_ranks")
    files = [comparison.plan.out / "figures" / f"{name}.png" for name in names]
    assert [base64.b64decode(each) for each in pictures] == [file.read_bytes() for file in files]
    assert page.cells == [11] * 4 + [4] * 3 + [5] * 4 + [7] * 4
    assert "600.0 ± 0.0" in page.text


def test_nothing_finished_yet_is_a_report_too(plan: ComparisonPlan) -> None:
    markdown, html = write_report(summarize_plan(plan, {}, {}))
    text = markdown.read_text()
    assert text.count(" seeds 0, 1: not trained and evaluated yet") == 3
    assert "![" not in text
    assert "<img" not in html.read_text()
    assert not Path(plan.out / "figures").exists()
