"""The report of a comparison, as Markdown and as one HTML file with its pictures inside."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from aladin_network.files import atomic_file
from aladin_training.comparison.claims import (
    LEAST_RUNS,
    JudgedClaim,
    judge,
    read_claims,
    sides_of,
)
from aladin_training.comparison.conditions import conditions
from aladin_training.comparison.figures import (
    draw_cross_ranks,
    draw_distributions,
    draw_gradient_shares,
    draw_learning_curves,
    draw_loss_and_recall,
    draw_separation,
    draw_settings,
)
from aladin_training.comparison.kept import keep
from aladin_training.comparison.summary import Comparison
from aladin_training.comparison.tables import (
    Table,
    choices_table,
    claims_table,
    corrections_table,
    cost_table,
    differences_table,
    results_table,
    scores_table,
    shares_table,
)

# Highest ratio of step times for an objective that encodes no more than the baseline does.
STEP_TIME_BOUND = 1.5

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
    "be shown in 80 % of experiments; no smaller one can be excluded by this design. Seeds: where "
    "the runs of a recipe happen to vary less than those of the others on average, this average "
    "counts; few seeds widen intervals by Student's t."
)
_CLAIMS_NOTE = (
    "Difference of what the paper claims it of, with intervals that hold for all claims of this "
    "table together in 95 % of experiments; seeds and MD: as above. R@1: mean of both directions. "
    "Paper: by how much in the paper, on its data and network, in the same unit; -: not known. "
    "Confirmed: the whole interval is above 0. Refuted: it is below 0. Excludes the paper's size: "
    "it holds 0, and lies below what the paper found. Not shown: it holds 0, which does not say "
    "that both are equal: a true difference of the smallest effect would be shown in 80 % of "
    f"experiments. Open: fewer than {LEAST_RUNS} runs are finished on both sides. Steps: those of "
    "both sides beyond the stages with which both begin, networks that only help included. Where "
    "the other recipe takes fewer, its control of as many stands in for it, and the last column "
    "has the difference to itself, which is that at equal steps of the target if anchors or a "
    "miner take the rest; without a control, the claim is not judged. Kept, so that the verdicts "
    "can be computed again: claims.json and ranks.npz."
)
_CHOICES_NOTE = (
    "rsum of the own score on the split of the choice, one run of each combination with the first "
    "seed; the best one is trained with all seeds. At the edge: the chosen value is the first or "
    "the last of the key's values, so that a better one may lie beyond."
)
_CORRECTIONS_NOTE = (
    "rsum of the fused score of all pairs, without and with the hubness correction (aladin "
    "correct), and the difference with its 95 % interval over photos and seeds. Banks and "
    "constants are of the training photos."
)
_SCORES_NOTE = (
    "rsum of every score of the same networks, mean ± standard deviation over the seeds. Fused: "
    "matching and alignment together. Two-stage: the 100 best by matching, re-ranked by the fused "
    "score; with fusion 1 by the alignment alone, as the papers do. Ensemble: the own score, "
    "averaged over the target and its anchors. A head that no stage trained has random weights, "
    "and its score is meaningless."
)
_COST_NOTE = (
    "Beyond the shared start: steps of all stages except those with which all recipes "
    "begin. Step time: time of the final stage's training step relative to the "
    "baseline's, measured alternately in one process. Step memory: what one step allocates at its "
    "most, beyond weights, optimizer state and batch. A stage that several runs share was "
    "trained once, but counts in the chain of each."
)
_CURVES_NOTE = (
    "rsum of each recipe's own score while its final stage trains, on the split that chooses its "
    "weights (the selection split, if the recipe has one): mean over the seeds, with a band of one "
    "standard deviation on each side. Step 0 is the start, if the starting stage trained the same "
    "score and was evaluated on the same split."
)
_RECALLS_NOTE = (
    "Training loss of the final stage (left scale, each recipe's own) and R@1 of its own score on "
    "the split that chooses its weights (right scale, the same for all): mean over the seeds, with "
    "a band of one standard deviation on each side."
)
_SEPARATION_NOTE = (
    "MD of each recipe's own score while its final stage trains, on the split of the curves above."
)
_SHARES_TABLE_NOTE = (
    "Shares of a stage's tasks in the gradient, in percent, mean over the seeds: at the first and "
    "the last logged step, and on average. The share of a task is the norm of the gradient of its "
    "weighted loss at the encodings (embeddings and tokens of the batch), over the sum of these "
    "norms of all tasks."
)
_SHARES_NOTE = "Shares of a stage's tasks in the gradient, as in the table, against the step."
_SETTINGS_NOTE = (
    "R@1 of the own score on the split of the choice against each setting, one run of the first "
    "seed (and fold); of several combinations with a value the best by rsum. Dotted: the chosen "
    "value."
)
_DISTRIBUTIONS_NOTE = (
    "Each recipe's own score over positive pairs, over negative pairs, and over the hardest "
    "negative of each query of either direction, all scaled to the same area; first finished seed. "
    "MD is the distance between the means of the first two."
)
_CROSS_RANKS_NOTE = (
    "Share of the positive pairs by cross-retrieval rank, as above, by each recipe's own score; "
    "first finished seed. Bars reach from a rank to its double: 1, 2 to 3, 4 to 7, and so on. "
    "Dashed: the baseline."
)


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of a report."""

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
    """Draw the pictures and write the report."""
    out = comparison.plan.out
    sides = sides_of(read_claims(), comparison)
    judged = judge(sides)
    if judged:
        keep(out, sides, judged)
    report = Report(
        title=f"{len(comparison.summaries)} recipes compared",
        conditions=conditions(comparison),
        sections=[*_tables(comparison, judged), *_pictures(comparison, out / "figures")],
    )
    return write_files(report, out)


def write_files(report: Report, out: Path) -> tuple[Path, Path]:
    """Write a report as ``report.md`` and ``report.html``, and return both files."""
    markdown, html = out / "report.md", out / "report.html"
    for file in (markdown, html):
        with atomic_file(file) as partial:
            partial.write_text(_render(report, f"{file.name}.jinja", out), encoding="utf-8")
    return markdown, html


def _tables(comparison: Comparison, judged: Sequence[JudgedClaim]) -> list[Section]:
    unfinished = _unfinished(comparison)
    differences = Section(
        title="Differences", table=differences_table(comparison), note=_DIFFERENCES_NOTE
    )
    claims = Section(title="Claims of the papers", table=claims_table(judged), note=_CLAIMS_NOTE)
    choices = Section(title="Chosen settings", table=choices_table(comparison), note=_CHOICES_NOTE)
    corrections = Section(
        title="Hubness correction", table=corrections_table(comparison), note=_CORRECTIONS_NOTE
    )
    shares = Section(
        title="Shares of the gradient", table=shares_table(comparison), note=_SHARES_TABLE_NOTE
    )
    return [
        Section(title="Results", table=results_table(comparison), note=_RESULTS_NOTE),
        *([Section(title="Not finished", lines=tuple(unfinished))] if unfinished else []),
        *([differences] if any(each.together for each in comparison.summaries) else []),
        *([claims] if judged else []),
        *([choices] if comparison.choices else []),
        *([shares] if shares.table and shares.table.rows else []),
        Section(title="All scores", table=scores_table(comparison), note=_SCORES_NOTE),
        *([corrections] if any(each.correction for each in comparison.summaries) else []),
        Section(
            title="Cost",
            table=cost_table(comparison),
            note=" ".join([_COST_NOTE, *_slow_steps(comparison)]),
        ),
    ]


def _unfinished(comparison: Comparison) -> list[str]:
    """List the runs that failed, with the reason, and those that are missing."""
    lines: list[str] = []
    for summary in comparison.summaries:
        seeds_of: dict[str | None, list[str]] = {}
        for seed in summary.missing:
            seeds_of.setdefault(summary.failures.get(seed), []).append(str(seed))
        for reason, seeds in seeds_of.items():
            state = "not trained and evaluated yet" if reason is None else f"failed: {reason}"
            runs = f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}"
            lines.append(f"{summary.recipe.name} {runs}: {state}")
    return lines


def _slow_steps(comparison: Comparison) -> list[str]:
    """Name the recipes whose steps take much longer, if step times are known."""
    if not comparison.step_times:
        return []
    slow = [
        f"{name} ({step.ratio:.2f})"
        for name, step in comparison.step_times.items()
        if step.ratio > STEP_TIME_BOUND
    ]
    names = ", ".join(slow) if slow else "none"
    return [f"More than {STEP_TIME_BOUND} times the baseline's step time: {names}."]


class _Picture(NamedTuple):
    """A picture of a report; `draw` writes a file and says whether there was anything to draw."""

    file: str
    title: str
    note: str
    draw: Callable[[Comparison, Path], bool]


_PICTURES = (
    _Picture("curves.png", "Learning curves", _CURVES_NOTE, draw_learning_curves),
    _Picture("recalls.png", "Loss and recall", _RECALLS_NOTE, draw_loss_and_recall),
    _Picture("separation.png", "Separation of pairs", _SEPARATION_NOTE, draw_separation),
    _Picture("shares.png", "Shares of the gradient by step", _SHARES_NOTE, draw_gradient_shares),
    _Picture("settings.png", "Recall by setting", _SETTINGS_NOTE, draw_settings),
    _Picture("distributions.png", "Score distributions", _DISTRIBUTIONS_NOTE, draw_distributions),
    _Picture("cross_ranks.png", "Cross-retrieval ranks", _CROSS_RANKS_NOTE, draw_cross_ranks),
)


def _pictures(comparison: Comparison, folder: Path) -> list[Section]:
    return [
        Section(title=each.title, picture=folder / each.file, note=each.note)
        for each in _PICTURES
        if each.draw(comparison, folder / each.file)
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
