"""The report of a comparison, as Markdown and as HTML."""

from __future__ import annotations

from pathlib import Path

from aladin_network.files import atomic_file
from aladin_training.comparison.conditions import (
    conditions,
    cost_table,
    results_table,
    scores_table,
)
from aladin_training.comparison.figures import draw_distributions, draw_learning_curves
from aladin_training.comparison.report_formats import (
    Block,
    Bullets,
    Heading,
    Paragraph,
    Picture,
    to_html,
    to_markdown,
)
from aladin_training.comparison.summary import Comparison

# What an objective may cost without encoding more than the baseline does.
STEP_TIME_BOUND = 1.5

_RESULTS = (
    "rsum: sum of the six recalls of the recipe's own score, mean ± standard deviation over the "
    "seeds. R@1 in percent. MD: mean score of positive pairs minus mean score of negative pairs; "
    "scores of different heads have different scales. Cross rank: the median over positive pairs "
    "of max(5 r_i - 4, r_t), r_i being the rank among photos and r_t among captions. Minutes: of "
    "the final stage, on this machine and with what else ran on it. Parameters: those that the "
    "final stage trains."
)
_SCORES = (
    "rsum of every score of the same networks, mean ± standard deviation over the seeds. Fused: "
    "matching and alignment together. Two-stage: the 100 best by matching, re-ranked by the fused "
    "score. A head that no stage trained has random weights, and its score stands for nothing."
)
_COST = (
    "Beyond the shared start: the steps of all stages but those with which the recipe and the "
    "baseline both begin. Step time: of the final stage's training step, relative to the "
    "baseline's, measured in turn in one process. A stage that several runs share was trained "
    "once, but counts in the chain of each."
)
_CURVES = (
    "Validation rsum of each recipe's own score while its final stage trains: mean over the seeds, "
    "with a band of one standard deviation to each side. Step 0 is the start, where that has "
    "trained the same score."
)
_DISTRIBUTIONS = (
    "Each recipe's own score over positive and negative pairs, each kind scaled to the same area; "
    "the first finished seed. MD is the distance of the two means."
)


def write_report(comparison: Comparison) -> tuple[Path, Path]:
    """Draw the pictures and write the report.

    Args:
        comparison: may lack runs; the report says which.

    Returns:
        The Markdown and the HTML file.
    """
    out = comparison.plan.out
    blocks = _blocks(comparison)
    if any(summary.runs for summary in comparison.summaries):
        blocks += _pictures(comparison, out / "figures")
    markdown, html = out / "report.md", out / "report.html"
    for file, text in ((markdown, to_markdown(blocks, out)), (html, to_html(blocks))):
        with atomic_file(file) as partial:
            partial.write_text(text, encoding="utf-8")
    return markdown, html


def _blocks(comparison: Comparison) -> list[Block]:
    blocks: list[Block] = [
        Heading(f"{len(comparison.summaries)} recipes compared", level=1),
        Bullets(conditions(comparison)),
        Heading("Results"),
        results_table(comparison),
        Paragraph(_RESULTS),
    ]
    problems = unfinished(comparison)
    if problems:
        blocks += [Heading("Not finished"), Bullets(problems)]
    return [
        *blocks,
        Heading("All scores"),
        scores_table(comparison),
        Paragraph(_SCORES),
        Heading("Cost"),
        cost_table(comparison),
        Paragraph(" ".join([_COST, *_slow_steps(comparison)])),
    ]


def _pictures(comparison: Comparison, folder: Path) -> list[Block]:
    curves, distributions = folder / "curves.png", folder / "distributions.png"
    draw_learning_curves(comparison, curves)
    draw_distributions(comparison, distributions)
    return [
        Heading("Learning curves"),
        Picture(curves, _CURVES),
        Heading("Score distributions"),
        Picture(distributions, _DISTRIBUTIONS),
    ]


def unfinished(comparison: Comparison) -> list[str]:
    """List the runs that failed, with the reason, and those that are missing."""
    lines: list[str] = []
    for summary in comparison.summaries:
        for seed in summary.missing:
            why = summary.failures.get(seed)
            words = "not trained and evaluated yet" if why is None else f"failed: {why}"
            lines.append(f"{summary.recipe.name} seed {seed}: {words}")
    return lines


def _slow_steps(comparison: Comparison) -> list[str]:
    """Name the recipes with much longer steps, if step times are known."""
    if not comparison.step_ratios:
        return []
    slow = [
        f"{name} ({ratio:.2f})"
        for name, ratio in comparison.step_ratios.items()
        if ratio > STEP_TIME_BOUND
    ]
    who = ", ".join(slow) if slow else "none"
    return [f"More than {STEP_TIME_BOUND} times the baseline's step time: {who}."]
