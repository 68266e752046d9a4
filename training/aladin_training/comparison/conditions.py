"""The conditions of a comparison: the bullet points at the head of its report."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from aladin_training.comparison.plan import ComparisonPlan
from aladin_training.comparison.summary import Comparison, RecipeSummary, mean_and_std, spread
from aladin_training.config.recipe import DataConfig
from aladin_training.data.selection import SELECTION


def conditions(comparison: Comparison) -> list[str]:
    """Describe what was the same for all recipes, what was not, and what a difference means."""
    plan, baseline = comparison.plan, comparison.baseline
    finished = [each for each in comparison.summaries if each.runs]
    return [
        _split(comparison),
        *_settings(comparison),
        f"Seeds: {', '.join(map(str, plan.seeds))} (for weights, batches and dropout).",
        *_folds(plan),
        *_starts(finished),
        *_final_stages(finished),
        *_budget(comparison, finished),
        f"Own score: the score that a recipe's final stage trains. Difference: its rsum minus "
        f"that of the baseline {baseline.recipe.name} with the same seeds, each by its own score; "
        "in brackets the 95 % interval of a paired bootstrap over photos (with their captions) "
        "and seeds. If the interval contains 0, the two cannot be told apart. "
        + _seed_caution(len(plan.seeds)),
    ]


def _folds(plan: ComparisonPlan) -> list[str]:
    if plan.cross == 1:
        return []
    return [
        f"Cross-validation: the photos of the training split and of {plan.split} are dealt into "
        f"{plan.cross} equal folds. Seed s trains on all but fold s modulo {plan.cross}, from its "
        "own start, and reports that fold; weights, fusion and settings are chosen on photos of "
        "the other folds."
    ]


def _chosen_with(plan: ComparisonPlan) -> str:
    if plan.cross == 1:
        return f"of seed {plan.seeds[0]}"
    return f"of the first seed of each of the {plan.cross} folds, for that fold alone"


def _seed_caution(seeds: int) -> str:
    if seeds == 1:
        return "One seed gives no measure of the variation between seeds."
    return f"It draws from {seeds} seeds only, a rough estimate of the variation between seeds."


def _split(comparison: Comparison) -> str:
    plan = comparison.plan
    runs = [run for summary in comparison.summaries for run in summary.runs.values()]
    sizes = ""
    if runs:
        texts = runs[0].evaluation.image_of_text
        sizes = f" ({len(texts.unique()):,} photos, {len(texts):,} captions)"
    text = f"Split: {plan.split}{sizes}."
    if plan.folds > 1:
        text += f" Its photos in {plan.folds} blocks, in their order, each ranked among itself."
    chosen = [recipe.name for recipe in plan.recipes if _chosen_on(recipe.data) == plan.split]
    if chosen:
        everyone = len(chosen) == len(plan.recipes)
        runs_of = "every run" if everyone else f"the runs of {', '.join(chosen)}"
        text += (
            f" The best weights and the fusion of {runs_of} were chosen on this same split, so the "
            "numbers are higher than those of unseen photos would be."
        )
    return text


def _settings(comparison: Comparison) -> list[str]:
    """Say which settings were chosen, and which do not apply to some recipes."""
    plan = comparison.plan
    keys = sorted({key for grid in plan.grids for key in grid.values})
    lines: list[str] = []
    if keys:
        lines.append(
            f"Settings: each recipe's own {', '.join(keys)}, chosen on the split {plan.select} by "
            f"one run for every combination, {_chosen_with(plan)}."
        )
    for setting, names in plan.left_out.items():
        lines.append(f"{setting} does not apply to {', '.join(names)}.")
    return lines


def _chosen_on(data: DataConfig) -> str:
    return SELECTION if data.selection else data.validation_split


def _starts(finished: list[RecipeSummary]) -> list[str]:
    """Describe where the final stages start, and the rsum there."""
    groups: dict[str, list[RecipeSummary]] = defaultdict(list)
    for summary in finished:
        groups[_history(summary)].append(summary)
    largest_last = sorted(groups.values(), key=len)
    if len(largest_last) == 1:
        return [f"Start of every recipe's final stage: {_start(_most_seeds(finished))}."]
    return [
        f"Start of the final stage of {_names(group, last=group is largest_last[-1])}: "
        f"{_start(_most_seeds(group))}."
        for group in largest_last
    ]


def _most_seeds(group: list[RecipeSummary]) -> RecipeSummary:
    return max(group, key=lambda summary: len(summary.runs))


def _history(summary: RecipeSummary) -> str:
    """Identify everything that the network at the start of the final stage depends on."""
    recipe, start = summary.recipe, summary.start_stage
    names = [stage.name for stage in recipe.stage]
    before = recipe.stage[: names.index(start) + 1] if start is not None else ()
    return repr((recipe.data, recipe.model, recipe.start, before, recipe.final_stage.reset))


def _names(group: list[RecipeSummary], *, last: bool) -> str:
    if last and len(group) > 1:
        return "all others"
    return ", ".join(summary.recipe.name for summary in group)


def _start(summary: RecipeSummary) -> str:
    came, reset = summary.recipe.start, summary.recipe.final_stage.reset
    origin = "random weights" if came is None else f"the network of {came.checkpoint}"
    drawn = f", with new random weights in {', '.join(reset)}" if reset else ""
    start = summary.start_stage
    if start is None:
        return origin + drawn
    config = next(stage for stage in summary.recipe.stage if stage.name == start)
    rsums: list[str] = []
    for score in sorted(config.trained_scores):
        values = [run.stages[start].rsum[score] for run in summary.runs.values()]
        rsums.append(f"{score} rsum {mean_and_std(spread(values))}")
    steps = f"{summary.steps(start):,} steps; {', '.join(rsums)}"
    return f"stage {start} of the same seed ({steps}){drawn}; it goes back to {origin}"


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


def _budget(comparison: Comparison, finished: list[RecipeSummary]) -> list[str]:
    baseline = comparison.baseline
    if not baseline.runs:
        return []
    beyond = comparison.extra_steps()
    allowed = beyond[baseline.recipe.name]
    stages = [stage.name for stage in baseline.recipe.stage]
    taken = ", ".join(f"{stage} {baseline.steps(stage):,}" for stage in stages)
    budget = (
        f"Budget: the baseline's stages take {taken} steps, {allowed:,} of them beyond the stages "
        "with which all recipes begin."
    )
    more = [each for each in finished if beyond[each.recipe.name] > allowed]
    if not more:
        return [f"{budget} No recipe takes more."]
    listed = _by_value(more, lambda summary: beyond[summary.recipe.name])
    return [f"{budget} More: {listed}."]


def _by_value(summaries: Sequence[RecipeSummary], steps: Callable[[RecipeSummary], int]) -> str:
    """Group recipes by a number of steps: ``1,200 (mh, sh), 2,400 (aoq)``."""
    groups: dict[int, list[str]] = defaultdict(list)
    for summary in summaries:
        groups[steps(summary)].append(summary.recipe.name)
    return ", ".join(f"{count:,} ({', '.join(names)})" for count, names in sorted(groups.items()))
