"""The report of a comparison, as Markdown and as one HTML file with its pictures inside."""

from __future__ import annotations

import base64
import os
import re
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from aladin_network.files import atomic_file
from aladin_network.scoring.bootstrap import Interval
from aladin_training.comparison.conditions import (
    conditions,
)
from aladin_training.comparison.figures import draw_distributions, draw_learning_curves
from aladin_training.comparison.summary import Comparison, RecipeSummary, mean_and_std

# Highest ratio of step times for an objective that encodes no more than the baseline does.
STEP_TIME_BOUND = 1.5

_SCORES = ("matching", "alignment", "attention", "fused", "two_stage")
_NO_VALUE = "-"

_RESULTS_NOTE = (
    "rsum: sum of the six recalls of the recipe's own score, mean ± standard deviation over the "
    "seeds. R@1 in percent. MD: mean score of positive pairs minus mean score of negative pairs; "
    "scores of different heads have different scales. Cross rank: median over positive pairs of "
    "max(5 r_i - 4, r_t), where r_i is the rank among photos and r_t the rank among captions. "
    "Minutes: time of the final stage, on this machine and under its load. Parameters: number of "
    "parameters that the final stage trains."
)
_DIFFERENCES_NOTE = (
    "Difference: as above, with the interval of this comparison alone. Simultaneous: intervals "
    "that all hold together in 95 % of experiments (largest deviation over all recipes); only one "
    "that leaves out 0 shows a difference. Smallest effect: a true difference of this size would "
    "be shown in 80 % of experiments; no smaller one can be excluded by this design."
)
_CHOICES_NOTE = (
    "rsum of the own score on the split of the choice, one run of each combination with the first "
    "seed; the best one is trained with all seeds. At the edge: the chosen value is the first or "
    "the last of the key's values, so that a better one may lie beyond."
)
_SCORES_NOTE = (
    "rsum of every score of the same networks, mean ± standard deviation over the seeds. Fused: "
    "matching and alignment together. Two-stage: the 100 best by matching, re-ranked by the fused "
    "score. A head that no stage trained has random weights, and its score is meaningless."
)
_COST_NOTE = (
    "Beyond the shared start: steps of all stages except those with which the recipe and the "
    "baseline both begin. Step time: time of the final stage's training step relative to the "
    "baseline's, measured alternately in one process. A stage that several runs share was trained "
    "once, but counts in the chain of each."
)
_CURVES_NOTE = (
    "Validation rsum of each recipe's own score while its final stage trains: mean over the seeds, "
    "with a band of one standard deviation on each side. Step 0 is the start, if the starting "
    "stage trained the same score."
)
_DISTRIBUTIONS_NOTE = (
    "Each recipe's own score over positive and negative pairs, both scaled to the same area; "
    "first finished seed. MD is the distance between the two means."
)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table whose first column holds words and whose other columns hold numbers.

    Attributes:
        header: One cell for each column.
        rows: Rows with as many cells.
        marked: Positions of highlighted rows, such as the baseline's.
    """

    header: list[str]
    rows: list[list[str]]
    marked: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of a report.

    Attributes:
        title: Heading.
        lines: Bullet points.
        table: Table, explained by `note`, or None.
        picture: PNG file, captioned by `note`, or None.
        note: Explanation of the table or the picture.
    """

    title: str
    lines: tuple[str, ...] = ()
    table: Table | None = None
    picture: Path | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Content of a report, rendered by the templates beside this module."""

    title: str
    conditions: list[str]
    sections: list[Section]


def write_report(comparison: Comparison) -> tuple[Path, Path]:
    """Draw the pictures and write the report.

    Args:
        comparison: Comparison to report; runs that are missing are listed.

    Returns:
        The Markdown file and the HTML file.
    """
    out = comparison.plan.out
    report = Report(
        title=f"{len(comparison.summaries)} recipes compared",
        conditions=conditions(comparison),
        sections=[*_tables(comparison), *_pictures(comparison, out / "figures")],
    )
    markdown, html = out / "report.md", out / "report.html"
    for file in (markdown, html):
        with atomic_file(file) as partial:
            partial.write_text(_render(report, f"{file.name}.jinja", out), encoding="utf-8")
    return markdown, html


def _tables(comparison: Comparison) -> list[Section]:
    unfinished = _unfinished(comparison)
    differences = Section(
        title="Differences", table=_differences_table(comparison), note=_DIFFERENCES_NOTE
    )
    choices = Section(title="Chosen settings", table=_choices_table(comparison), note=_CHOICES_NOTE)
    return [
        Section(title="Results", table=_results_table(comparison), note=_RESULTS_NOTE),
        *([Section(title="Not finished", lines=tuple(unfinished))] if unfinished else []),
        *([differences] if any(each.together for each in comparison.summaries) else []),
        *([choices] if comparison.choices else []),
        Section(title="All scores", table=_scores_table(comparison), note=_SCORES_NOTE),
        Section(
            title="Cost",
            table=_cost_table(comparison),
            note=" ".join([_COST_NOTE, *_slow_steps(comparison)]),
        ),
    ]


def _results_table(comparison: Comparison) -> Table:
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


def _differences_table(comparison: Comparison) -> Table:
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


def _choices_table(comparison: Comparison) -> Table:
    """What was tried for each recipe, and what was chosen."""
    rows: list[list[str]] = []
    for choice in comparison.choices:
        tried = "; ".join(f"{label}: {rsum:.1f}" for label, rsum in choice.rsums.items())
        cells = (choice.chosen, ", ".join(choice.at_edge), tried)
        rows.append([choice.recipe, *(cell or _NO_VALUE for cell in cells)])
    header = ["recipe", "chosen", "at the edge", "rsum of all combinations"]
    return Table(header=header, rows=rows)


def _scores_table(comparison: Comparison) -> Table:
    """The rsum of every score."""
    known = [
        score
        for score in _SCORES
        if any(summary.rsum(score) is not None for summary in comparison.summaries)
    ]
    return Table(
        header=["recipe", *(score.replace("_", "-") for score in known)],
        rows=[
            [summary.recipe.name, *(_number(summary, score) for score in known)]
            for summary in comparison.summaries
        ],
        marked=_baseline_row(comparison),
    )


def _cost_table(comparison: Comparison) -> Table:
    """Steps, minutes and step time."""
    rows: list[list[str]] = []
    for summary in comparison.summaries:
        name = summary.recipe.name
        ratio = comparison.step_ratios.get(name)
        cells = [_NO_VALUE] * 4
        if summary.runs:
            stages = [stage.name for stage in summary.recipe.stage]
            extra = comparison.extra_steps(summary) if comparison.baseline.runs else None
            cells = [
                ", ".join(f"{stage} {summary.steps(stage):,}" for stage in stages),
                _NO_VALUE if extra is None else f"{extra:,}",
                f"{summary.minutes([summary.final_stage]):.1f}",
                f"{summary.minutes(stages):.1f}",
            ]
        rows.append([name, *cells, _NO_VALUE if ratio is None else f"{ratio:.2f}"])
    return Table(
        header=[
            "recipe",
            "stages (steps)",
            "steps beyond the shared start",
            "minutes, final stage",
            "minutes, whole chain",
            "step time",
        ],
        rows=rows,
        marked=_baseline_row(comparison),
    )


def _number(summary: RecipeSummary, score: str) -> str:
    rsum = summary.rsum(score)
    return _NO_VALUE if rsum is None else mean_and_std(rsum)


def _difference(value: Interval | None) -> str:
    if value is None:
        return _NO_VALUE
    return f"{value.difference:+.1f} ({value.low:+.1f} to {value.high:+.1f})"


def _finished_runs(summary: RecipeSummary, planned: int) -> str:
    text = f"{len(summary.runs)} of {planned}"
    if summary.failures:
        text += f", {len(summary.failures)} failed"
    return text


def _baseline_row(comparison: Comparison) -> frozenset[int]:
    names = [summary.recipe.name for summary in comparison.summaries]
    return frozenset({names.index(comparison.plan.baseline)})


def _unfinished(comparison: Comparison) -> list[str]:
    """List the runs that failed, with the reason, and those that are missing."""
    lines: list[str] = []
    for summary in comparison.summaries:
        for seed in summary.missing:
            reason = summary.failures.get(seed)
            state = "not trained and evaluated yet" if reason is None else f"failed: {reason}"
            lines.append(f"{summary.recipe.name} seed {seed}: {state}")
    return lines


def _slow_steps(comparison: Comparison) -> list[str]:
    """Name the recipes whose steps take much longer, if step times are known."""
    if not comparison.step_ratios:
        return []
    slow = [
        f"{name} ({ratio:.2f})"
        for name, ratio in comparison.step_ratios.items()
        if ratio > STEP_TIME_BOUND
    ]
    names = ", ".join(slow) if slow else "none"
    return [f"More than {STEP_TIME_BOUND} times the baseline's step time: {names}."]


def _pictures(comparison: Comparison, folder: Path) -> list[Section]:
    if not any(summary.runs for summary in comparison.summaries):
        return []
    curves, distributions = folder / "curves.png", folder / "distributions.png"
    draw_learning_curves(comparison, curves)
    draw_distributions(comparison, distributions)
    return [
        Section(title="Learning curves", picture=curves, note=_CURVES_NOTE),
        Section(title="Score distributions", picture=distributions, note=_DISTRIBUTIONS_NOTE),
    ]


def _render(report: Report, template: str, folder: Path) -> str:
    """Render a template; links to pictures are relative to `folder`."""
    environment = Environment(
        loader=PackageLoader("aladin_training.comparison"),
        autoescape=select_autoescape(enabled_extensions=("html.jinja",)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["markdown"] = _escape_markdown

    def link(file: Path) -> str:
        return Path(os.path.relpath(file, folder)).as_posix()

    environment.filters["link"] = link
    environment.filters["data_url"] = _data_url
    return environment.get_template(template).render(report=report)


def _escape_markdown(text: str) -> str:
    """Escape what Markdown would take for markup, and join lines."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))


def _data_url(file: Path) -> str:
    return "data:image/png;base64," + base64.b64encode(file.read_bytes()).decode("ascii")
