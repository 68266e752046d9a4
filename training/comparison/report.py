"""What a comparison says: the words and tables of its report."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from aladin.atomic import atomic_file
from aladin.metrics import Interval
from training.comparison.document import Block, Bullets, Heading, Paragraph, Picture, Table
from training.comparison.figures import draw_distributions, draw_learning_curves
from training.comparison.html import to_html
from training.comparison.markdown import to_markdown
from training.comparison.summary import Comparison, RecipeSummary, Spread, spread

_NOTHING = "-"
_SCORES = ("matching", "alignment", "attention", "fused", "two_stage")


def write_report(comparison: Comparison) -> tuple[Path, Path]:
    """Draw the pictures and write the report.

    Args:
        comparison: may lack runs; it says which.

    Returns:
        The Markdown and the HTML file.
    """
    out = comparison.plan.out
    curves, distributions = out / "figures" / "curves.png", out / "figures" / "distributions.png"
    draw_learning_curves(comparison, curves)
    draw_distributions(comparison, distributions)
    blocks = report_blocks(comparison, curves, distributions)
    markdown, html = out / "report.md", out / "report.html"
    for file, text in ((markdown, to_markdown(blocks, out)), (html, to_html(blocks))):
        with atomic_file(file) as partial:
            partial.write_text(text, encoding="utf-8")
    return markdown, html


def report_blocks(comparison: Comparison, curves: Path, distributions: Path) -> list[Block]:
    """Put the report together.

    Args:
        comparison: its numbers.
        curves: picture of the learning curves.
        distributions: picture of the score distributions.
    """
    blocks: list[Block] = [
        Heading(f"{len(comparison.summaries)} recipes compared", level=1),
        Bullets(conditions(comparison)),
        Heading("Results"),
        results_table(comparison),
        Paragraph(
            "rsum: sum of the six recalls of the recipe's own score, mean ± standard deviation "
            "over the seeds. R@1 in percent. MD: mean score of positive pairs minus mean score "
            "of negative pairs; scores of different heads have different scales. Cross rank: "
            "the median over positive pairs of max(5 r_i - 4, r_t), r_i being the rank among "
            "photos and r_t among captions. Minutes: of the final stage, on this machine and "
            "with what else ran on it. Parameters: those that the final stage trains."
        ),
    ]
    problems = unfinished(comparison)
    if problems:
        blocks += [Heading("Not finished"), Bullets(problems)]
    blocks += [
        Heading("All scores"),
        scores_table(comparison),
        Paragraph(
            "rsum of every score of the same networks, mean ± standard deviation over the seeds. "
            "Fused: matching and alignment together. Two-stage: the 100 best by matching, "
            "re-ranked by the fused score. A head that no stage trained has random weights, and "
            "its score stands for nothing."
        ),
        Heading("Cost"),
        cost_table(comparison),
        Paragraph(
            "Beyond the shared start: the steps of all stages but those with which the recipe "
            "and the baseline both begin. Step time: of the final stage's training step, "
            "relative to the baseline's, measured in turn in one process. A stage that several "
            "runs share was trained once, but counts in the chain of each."
        ),
        Heading("Learning curves"),
        Picture(
            curves,
            "Validation rsum of each recipe's own score while its final stage trains: mean over "
            "the seeds, with a band of one standard deviation to each side.",
        ),
        Heading("Score distributions"),
        Picture(
            distributions,
            "Each recipe's own score over positive and negative pairs, each kind scaled to the "
            "same area; the first finished seed. MD is the distance of the two means.",
        ),
    ]
    return blocks


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
        "and seeds. Where the interval contains 0, the two cannot be told apart.",
    ]


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
    return repr((recipe.data, recipe.model, before, recipe.final_stage.reset))


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
        f"{score} rsum {_spread(_start_rsum(summary, start, score))}"
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
                _spread(summary.rsum(summary.score)),
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
        [summary.recipe.name, *(_spread(summary.rsum(score)) for score in known)]
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


def unfinished(comparison: Comparison) -> list[str]:
    """List the runs that failed, with the reason, and those that are missing."""
    lines: list[str] = []
    for summary in comparison.summaries:
        for seed in summary.missing:
            why = summary.failures.get(seed)
            words = "not trained and evaluated yet" if why is None else f"failed: {why}"
            lines.append(f"{summary.recipe.name} seed {seed}: {words}")
    return lines


def _runs(summary: RecipeSummary, planned: int) -> str:
    words = f"{len(summary.runs)} of {planned}"
    if summary.failures:
        words += f", {len(summary.failures)} failed"
    return words


def _spread(value: Spread | None) -> str:
    if value is None:
        return _NOTHING
    return f"{value.mean:.1f}" + ("" if value.std is None else f" ± {value.std:.1f}")


def _interval(value: Interval | None) -> str:
    if value is None:
        return _NOTHING
    return f"{value.difference:+.1f} ({value.low:+.1f} to {value.high:+.1f})"


def _baseline_row(comparison: Comparison) -> frozenset[int]:
    names = [summary.recipe.name for summary in comparison.summaries]
    return frozenset({names.index(comparison.plan.baseline)})


def _by_value(summaries: Sequence[RecipeSummary], steps: Callable[[RecipeSummary], int]) -> str:
    """Group recipes by a number of steps: ``1,200 (mh, sh), 2,400 (aoq)``."""
    groups: dict[int, list[str]] = defaultdict(list)
    for summary in summaries:
        groups[steps(summary)].append(summary.recipe.name)
    return ", ".join(f"{count:,} ({_join(names)})" for count, names in sorted(groups.items()))


def _join(words: Iterable[str]) -> str:
    return ", ".join(words)
