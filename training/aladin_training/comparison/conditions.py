"""The tables of a comparison's report.

Under which conditions a comparison was made: the head of its report.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

from aladin_network.scoring.metrics import Interval
from aladin_training.comparison.report_formats import Table
from aladin_training.comparison.summary import Comparison, RecipeSummary, Spread, spread

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


def conditions(comparison: Comparison) -> list[str]:
    """Say what was done alike, what was not, and what a difference means."""
    plan, baseline = comparison.plan, comparison.baseline
    finished = [each for each in comparison.summaries if each.runs]
    return [
        _split(comparison),
        f"Seeds: {_join(map(str, plan.seeds))} (of weights, batches and dropout).",
        *_starts(finished),
        *_final_stages(finished),
        *_budget(comparison, finished),
        f"Own score: the score that a recipe's final stage trains. Difference: its rsum minus "
        f"that of the baseline {baseline.recipe.name} with the same seeds, each by its own score; "
        "in brackets the 95 % interval of a paired bootstrap over photos (with their captions) "
        "and seeds. Where the interval contains 0, the two cannot be told apart. "
        + _seed_caution(len(plan.seeds)),
    ]


def _seed_caution(seeds: int) -> str:
    if seeds == 1:
        return "With one seed it says nothing of how much seeds differ."
    return f"It draws from {seeds} seeds only: how much seeds differ is known roughly at best."


def _split(comparison: Comparison) -> str:
    plan = comparison.plan
    runs = [run for summary in comparison.summaries for run in summary.runs.values()]
    sizes = ""
    if runs:
        texts = runs[0].evaluation.image_of_text
        sizes = f" ({len(texts.unique()):,} photos, {len(texts):,} captions)"
    words = f"Split: {plan.split}{sizes}."
    chosen = [recipe.name for recipe in plan.recipes if recipe.data.validation_split == plan.split]
    if chosen:
        whose = "every run" if len(chosen) == len(plan.recipes) else f"the runs of {_join(chosen)}"
        words += (
            f" The best weights and the fusion of {whose} were chosen on this same split, so the "
            "numbers are higher than those of unseen photos would be."
        )
    return words


def _starts(finished: list[RecipeSummary]) -> list[str]:
    """Say from where the final stages start, and how good that was already."""
    groups: dict[str, list[RecipeSummary]] = defaultdict(list)
    for summary in finished:
        groups[_history(summary)].append(summary)
    largest_last = sorted(groups.values(), key=len)
    if len(largest_last) == 1:
        return [f"Start of every recipe's final stage: {_start(_most_seeds(finished))}."]
    return [
        f"Start of the final stage of {_whose(group, last=group is largest_last[-1])}: "
        f"{_start(_most_seeds(group))}."
        for group in largest_last
    ]


def _most_seeds(group: list[RecipeSummary]) -> RecipeSummary:
    return max(group, key=lambda summary: len(summary.runs))


def _history(summary: RecipeSummary) -> str:
    """Identify all that the network at the start of the final stage depends on."""
    recipe, start = summary.recipe, summary.start_stage
    names = [stage.name for stage in recipe.stage]
    before = recipe.stage[: names.index(start) + 1] if start is not None else ()
    return repr((recipe.data, recipe.model, recipe.start, before, recipe.final_stage.reset))


def _whose(group: list[RecipeSummary], *, last: bool) -> str:
    if last and len(group) > 1:
        return "all others"
    return _join(summary.recipe.name for summary in group)


def _start(summary: RecipeSummary) -> str:
    start = summary.start_stage
    if start is None:
        return "random weights"
    config = next(stage for stage in summary.recipe.stage if stage.name == start)
    rsums = [
        f"{score} rsum {mean_and_std(_start_rsum(summary, start, score))}"
        for score in sorted(config.trained_scores)
    ]
    words = f"stage {start} of the same seed ({summary.steps(start):,} steps; {_join(rsums)})"
    reset = summary.recipe.final_stage.reset
    return words + (f", with new random weights in {_join(reset)}" if reset else "")


def _final_stages(finished: list[RecipeSummary]) -> list[str]:
    if not finished:
        return []
    usual = Counter(map(_final_steps, finished)).most_common(1)[0][0]
    others = [summary for summary in finished if _final_steps(summary) != usual]
    if not others:
        return [f"Steps of every recipe's final stage: {usual:,}."]
    return [f"Steps of the final stage: {_by_value(others, _final_steps)}, all others {usual:,}."]


def _final_steps(summary: RecipeSummary) -> int:
    return summary.steps(summary.final_stage)


def _start_rsum(summary: RecipeSummary, start: str, score: str) -> Spread:
    return spread([run.stages[start].rsum[score] for run in summary.runs.values()])


def _budget(comparison: Comparison, finished: list[RecipeSummary]) -> list[str]:
    baseline = comparison.baseline
    if not baseline.runs:
        return []
    allowed = comparison.extra_steps(baseline)
    more = [each for each in finished if comparison.extra_steps(each) > allowed]
    if not more:
        return [
            f"Budget: beyond the start that it shares with the baseline, no recipe takes more "
            f"steps than the baseline's {allowed:,}."
        ]
    return [
        f"More budget than the baseline, which takes {allowed:,} steps beyond the shared start: "
        f"{_by_value(more, comparison.extra_steps)}."
    ]


def _by_value(summaries: Sequence[RecipeSummary], steps: Callable[[RecipeSummary], int]) -> str:
    """Group recipes by a number of steps: ``1,200 (mh, sh), 2,400 (aoq)``."""
    groups: dict[int, list[str]] = defaultdict(list)
    for summary in summaries:
        groups[steps(summary)].append(summary.recipe.name)
    return ", ".join(f"{count:,} ({_join(names)})" for count, names in sorted(groups.items()))


def _join(words: Iterable[str]) -> str:
    return ", ".join(words)
