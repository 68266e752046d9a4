"""The tables of a comparison's report."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aladin_network.scoring.bootstrap import Interval, SimultaneousInterval
from aladin_training.comparison.claims import JudgedClaim
from aladin_training.comparison.measures import TITLES, decimals
from aladin_training.comparison.summary import Comparison, RecipeSummary, mean_and_std

# Headers of the scores' columns, in their order.
SCORES = {
    "matching": "matching",
    "alignment": "alignment",
    "attention": "attention",
    "fused": "fused",
    "two_stage": "two-stage",
    "two_stage_alignment": "two-stage, fusion 1",
    "ensemble": "ensemble",
    "corrected_matching": "matching, corrected",
    "corrected_alignment": "alignment, corrected",
    "corrected_fused": "fused, corrected",
}
_NO_VALUE = "-"


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table whose first column holds words and whose other columns hold numbers."""

    header: list[str]
    rows: list[list[str]]
    marked: frozenset[int] = frozenset()


def results_table(comparison: Comparison) -> Table:
    """Each recipe's own score compared with the baseline's."""
    rows: list[list[str]] = []
    for summary in comparison.summaries:
        cells = [_NO_VALUE] * 8
        if summary.runs:
            cells = [
                _number(summary, summary.score),
                _difference(summary.difference),
                f"{summary.recall_at_1('text_to_image'):.1f}",
                f"{summary.recall_at_1('image_to_text'):.1f}",
                f"{summary.mean_difference:.3f}",
                f"{summary.cross_rank:.1f}",
                f"{summary.minutes([summary.final_stage]):.1f}",
                f"{summary.parameters:,}",
            ]
        finished = _finished_runs(summary, len(comparison.plan.seeds))
        rows.append([summary.recipe.name, summary.score, *cells, finished])
    return Table(
        header=[
            "recipe",
            "own score",
            "rsum",
            f"difference to {comparison.plan.baseline}",
            "R@1 text to image",
            "R@1 image to text",
            "MD",
            "cross rank",
            "minutes",
            "parameters",
            "runs",
        ],
        rows=rows,
        marked=_baseline_row(comparison),
    )


def differences_table(comparison: Comparison) -> Table:
    """Each difference to the baseline, by itself and together with all others."""
    rows = [
        [
            each.recipe.name,
            _difference(each.difference),
            _difference(each.together.interval),
            f"{each.together.smallest_effect:.1f}",
        ]
        for each in comparison.summaries
        if each.together is not None
    ]
    header = ["recipe", "difference", "simultaneous interval", "smallest effect"]
    return Table(header=header, rows=rows)


def claims_table(judged: Sequence[JudgedClaim]) -> Table:
    """What the papers claim, and what was found."""
    rows: list[list[str]] = []
    for each in judged:
        claim = each.claim
        than = each.than if each.than == claim.than else f"{each.than}, for {claim.than}"
        digits = decimals(claim.measure)
        rows.append(
            [
                f"{claim.paper}, {claim.source}: {claim.text}",
                _side(claim.better, claim.score),
                _side(than, claim.than_score),
                TITLES[claim.measure],
                _NO_VALUE if claim.size is None else f"{claim.size:+.{digits}f}",
                str(each.runs),
                _NO_VALUE if each.steps is None else " : ".join(f"{n:,}" for n in each.steps),
                _together(each.found, digits),
                each.describe(),
                _difference(each.without_control, digits),
            ]
        )
    return Table(
        header=[
            "claim",
            "better",
            "than",
            "by",
            "paper",
            "runs",
            "steps",
            "simultaneous interval",
            "verdict",
            "without the control",
        ],
        rows=rows,
    )


def differences_on_each(comparisons: Mapping[str, Comparison]) -> Table:
    """Each difference to the baseline, on each of several data sets by name."""
    found = {
        name: {each.recipe.name: each.together for each in comparison.summaries}
        for name, comparison in comparisons.items()
    }
    recipes = dict.fromkeys(recipe for each in found.values() for recipe in each)
    baselines = {each.plan.baseline for each in comparisons.values()}
    rows = [
        [recipe, *(_together(each.get(recipe)) for each in found.values())]
        for recipe in recipes
        if recipe not in baselines
    ]
    return Table(header=["recipe", *found], rows=rows)


def claims_on_each(judged: Mapping[str, Sequence[JudgedClaim]]) -> Table:
    """The verdict on each claim, on each of several data sets by name."""
    found = {name: {each.claim: each.describe() for each in on} for name, on in judged.items()}
    claims = dict.fromkeys(claim for each in found.values() for claim in each)
    rows = [
        [
            f"{claim.paper}, {claim.source}: {claim.text}",
            _side(claim.better, claim.score),
            _side(claim.than, claim.than_score),
            TITLES[claim.measure],
            *(each.get(claim, _NO_VALUE) for each in found.values()),
        ]
        for claim in claims
    ]
    return Table(header=["claim", "better", "than", "by", *found], rows=rows)


def _together(found: SimultaneousInterval | None, digits: int = 1) -> str:
    return _difference(None if found is None else found.interval, digits)


def _side(recipe: str, score: str | None) -> str:
    return recipe if score is None else f"{recipe} by {SCORES.get(score, score)}"


def corrections_table(comparison: Comparison) -> Table:
    """What the hubness correction gains for each recipe."""
    rows = [
        [
            each.recipe.name,
            _number(each, "fused"),
            _number(each, "corrected_fused"),
            _difference(each.correction),
        ]
        for each in comparison.summaries
        if each.correction is not None
    ]
    return Table(header=["recipe", "fused", "fused, corrected", "difference"], rows=rows)


def choices_table(comparison: Comparison) -> Table:
    """What was tried for each recipe, and what was chosen."""
    rows: list[list[str]] = []
    for choice in comparison.choices:
        tried = "; ".join(f"{label}: {each.rsum:.1f}" for label, each in choice.metrics.items())
        cells = (choice.chosen, ", ".join(choice.at_edge), tried)
        fold = [str(choice.fold)] if comparison.plan.cross > 1 else []
        rows.append([choice.recipe, *fold, *(cell or _NO_VALUE for cell in cells)])
    folds = ["fold"] if comparison.plan.cross > 1 else []
    header = ["recipe", *folds, "chosen", "at the edge", "rsum of all combinations"]
    return Table(header=header, rows=rows)


def scores_table(comparison: Comparison) -> Table:
    """The rsum of every score."""
    known = [
        score
        for score in SCORES
        if any(summary.rsum(score) is not None for summary in comparison.summaries)
    ]
    return Table(
        header=["recipe", *(SCORES[score] for score in known)],
        rows=[
            [summary.recipe.name, *(_number(summary, score) for score in known)]
            for summary in comparison.summaries
        ],
        marked=_baseline_row(comparison),
    )


def cost_table(comparison: Comparison) -> Table:
    """Steps and minutes, and the time and memory of a step."""
    rows: list[list[str]] = []
    beyond = comparison.extra_steps()
    for summary in comparison.summaries:
        name = summary.recipe.name
        step = comparison.step_times.get(name)
        cells = [_NO_VALUE] * 4
        if summary.runs:
            stages = [stage.name for stage in summary.recipe.stage]
            cells = [
                ", ".join(f"{stage} {summary.steps(stage):,}" for stage in stages),
                f"{beyond[name]:,}",
                f"{summary.minutes([summary.final_stage]):.1f}",
                f"{summary.minutes(stages):.1f}",
            ]
        time = _NO_VALUE if step is None else f"{step.ratio:.2f}"
        peak = None if step is None else step.peak_bytes
        memory = _NO_VALUE if peak is None else f"{peak / 1e6:,.0f}"
        rows.append([name, *cells, time, memory])
    return Table(
        header=[
            "recipe",
            "stages (steps)",
            "steps beyond the shared start",
            "minutes, final stage",
            "minutes, whole chain",
            "step time",
            "step memory, MB",
        ],
        rows=rows,
        marked=_baseline_row(comparison),
    )


def shares_table(comparison: Comparison) -> Table:
    """The share of each task in the gradient of a recipe with several tasks, in percent."""
    rows = [
        [
            summary.recipe.name,
            task,
            f"{summary.recipe.final_stage.tasks[task].weight:g}",
            *(
                f"{100 * share:.1f}"
                for share in (
                    curve[0].mean,
                    statistics.fmean(point.mean for point in curve),
                    curve[-1].mean,
                )
            ),
        ]
        for summary in comparison.summaries
        if summary.runs
        for task, curve in summary.gradient_shares().items()
    ]
    return Table(header=["recipe", "task", "weight", "first", "mean", "last"], rows=rows)


def _number(summary: RecipeSummary, score: str) -> str:
    rsum = summary.rsum(score)
    return _NO_VALUE if rsum is None else mean_and_std(rsum)


def _difference(value: Interval | None, digits: int = 1) -> str:
    if value is None:
        return _NO_VALUE
    difference, low, high = (f"{each:+z.{digits}f}" for each in value)
    return f"{difference} ({low} to {high})"


def _finished_runs(summary: RecipeSummary, planned: int) -> str:
    text = f"{len(summary.runs)} of {planned}"
    if summary.failures:
        text += f", {len(summary.failures)} failed"
    return text


def _baseline_row(comparison: Comparison) -> frozenset[int]:
    names = [summary.recipe.name for summary in comparison.summaries]
    return frozenset({names.index(comparison.plan.baseline)})
