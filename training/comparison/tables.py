"""The tables of a comparison's report."""

from __future__ import annotations

from aladin.metrics import Interval
from training.comparison.document import Table
from training.comparison.summary import Comparison, RecipeSummary, Spread

_NOTHING = "-"
_SCORES = ("matching", "alignment", "attention", "fused", "two_stage")


def results_table(comparison: Comparison) -> Table:
    """Lay out each recipe's own score against the baseline's."""
    header = [
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
    ]
    rows: list[list[str]] = []
    for summary in comparison.summaries:
        row = [summary.recipe.name, summary.score]
        if summary.runs:
            row += [
                mean_and_std(summary.rsum(summary.score)),
                _interval(summary.difference),
                f"{summary.recall_at_1('text_to_image'):.1f}",
                f"{summary.recall_at_1('image_to_text'):.1f}",
                f"{summary.mean_difference:.3f}",
                f"{summary.cross_rank:.1f}",
                f"{summary.minutes([summary.final_stage]):.1f}",
                f"{summary.parameters:,}",
            ]
        else:
            row += [_NOTHING] * 8
        rows.append([*row, _runs(summary, len(comparison.plan.seeds))])
    return Table(header, rows, _baseline_row(comparison))


def scores_table(comparison: Comparison) -> Table:
    """Lay out the rsum of all scores."""
    known = [
        score
        for score in _SCORES
        if any(summary.rsum(score) is not None for summary in comparison.summaries)
    ]
    rows = [
        [summary.recipe.name, *(mean_and_std(summary.rsum(score)) for score in known)]
        for summary in comparison.summaries
    ]
    header = ["recipe", *(score.replace("_", "-") for score in known)]
    return Table(header, rows, _baseline_row(comparison))


def cost_table(comparison: Comparison) -> Table:
    """Lay out steps, minutes and step time."""
    header = [
        "recipe",
        "stages (steps)",
        "steps beyond the shared start",
        "minutes, final stage",
        "minutes, whole chain",
        "step time",
    ]
    rows: list[list[str]] = []
    for summary in comparison.summaries:
        name = summary.recipe.name
        ratio = comparison.step_ratios.get(name)
        cells = [_NOTHING] * 4
        if summary.runs:
            stages = [stage.name for stage in summary.recipe.stage]
            extra = comparison.extra_steps(summary) if comparison.baseline.runs else None
            cells = [
                ", ".join(f"{stage} {summary.steps(stage):,}" for stage in stages),
                _NOTHING if extra is None else f"{extra:,}",
                f"{summary.minutes([summary.final_stage]):.1f}",
                f"{summary.minutes(stages):.1f}",
            ]
        rows.append([name, *cells, _NOTHING if ratio is None else f"{ratio:.2f}"])
    return Table(header, rows, _baseline_row(comparison))


def mean_and_std(value: Spread | None) -> str:
    """Write a number over the seeds: ``293.1 ± 0.8``, the deviation only if there is one."""
    if value is None:
        return _NOTHING
    return f"{value.mean:.1f}" + ("" if value.std is None else f" ± {value.std:.1f}")


def _runs(summary: RecipeSummary, planned: int) -> str:
    words = f"{len(summary.runs)} of {planned}"
    if summary.failures:
        words += f", {len(summary.failures)} failed"
    return words


def _interval(value: Interval | None) -> str:
    if value is None:
        return _NOTHING
    return f"{value.difference:+.1f} ({value.low:+.1f} to {value.high:+.1f})"


def _baseline_row(comparison: Comparison) -> frozenset[int]:
    names = [summary.recipe.name for summary in comparison.summaries]
    return frozenset({names.index(comparison.plan.baseline)})
