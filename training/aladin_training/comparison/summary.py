"""The numbers of a comparison: each recipe over its seeds, and relative to the baseline."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from aladin_network.scoring.bootstrap import (
    GainsOfPhotos,
    Interval,
    ResampledDifference,
    SimultaneousInterval,
    resample_gains,
    simultaneous_intervals,
)
from aladin_network.types import ScoreName
from aladin_training.comparison.budget import steps_beyond_start
from aladin_training.comparison.evaluation import (
    RunEvaluation,
    finished_evaluation,
)
from aladin_training.comparison.grid import Choice
from aladin_training.comparison.measures import Measure, gains, has_measure
from aladin_training.comparison.plan import ComparisonPlan
from aladin_training.comparison.step_time import StepTime
from aladin_training.config.recipe import Recipe
from aladin_training.config.stage import StageConfig
from aladin_training.stage_files import StageFacts, read_curves, read_facts


class Spread(NamedTuple):
    """Mean and sample standard deviation over the seeds; no deviation of a single one."""

    mean: float
    std: float | None


def spread(values: Sequence[float]) -> Spread:
    """Summarise at least one value, one for each seed."""
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


def mean_and_std(value: Spread) -> str:
    """Format a number over the seeds: ``293.1 ± 0.8``, with the deviation only if there is one."""
    return f"{value.mean:.1f}" + ("" if value.std is None else f" ± {value.std:.1f}")


class CurvePoint(NamedTuple):
    """A point of a curve over the seeds."""

    step: int
    mean: float
    std: float


def mean_curve(curves: Sequence[Mapping[int, float]]) -> list[CurvePoint]:
    """Average curves where all of them have a point."""
    steps = sorted(set(curves[0]).intersection(*curves))
    points = [(step, spread([curve[step] for curve in curves])) for step in steps]
    return [CurvePoint(step, value.mean, value.std or 0.0) for step, value in points]


@dataclass(frozen=True)
class FinishedRun:
    """A run that has been trained and evaluated.

    `curve` is the validation rsum of the own score by step of the final stage; step 0 is the stage
    that it starts from, if that one trained the same score.
    """

    evaluation: RunEvaluation
    stages: dict[str, StageFacts]
    curve: dict[int, float]
    log: dict[str, dict[int, float]]


def evaluations_with(
    runs: Mapping[int, FinishedRun], score: str, measure: Measure = "rsum"
) -> dict[int, RunEvaluation]:
    """Return the evaluations of some runs by seed, where they have a measure of a score."""
    found = {seed: run.evaluation for seed, run in runs.items()}
    return {seed: each for seed, each in found.items() if has_measure(each, score, measure)}


@dataclass(frozen=True)
class RecipeSummary:
    """One recipe of a comparison; all figures are over its finished runs, by seed.

    `difference` is the own rsum minus the baseline's, each by its own score, over the seeds that
    both have; `together` the same with an interval that counts for all differences of the report.
    """

    recipe: Recipe
    runs: dict[int, FinishedRun]
    failures: dict[int, str]
    missing: tuple[int, ...]
    difference: Interval | None
    together: SimultaneousInterval | None = None
    correction: Interval | None = None

    @property
    def score(self) -> ScoreName:
        """Score that the final stage trains."""
        return self.recipe.own_score

    def rsum(self, score: str) -> Spread | None:
        """Return the rsum of a score over the seeds, or None if no run has the score."""
        found = evaluations_with(self.runs, score).values()
        values = [each.metrics()[score].rsum for each in found]
        return spread(values) if values else None

    def recall_at_1(self, direction: str) -> float:
        """Return R@1 of the own score in one direction, in percent, over the seeds."""
        return statistics.fmean(
            getattr(run.evaluation.metrics()[self.score], direction).r1
            for run in self.runs.values()
        )

    @property
    def mean_difference(self) -> float:
        """DBL's MD of the own score, mean over the seeds."""
        return statistics.fmean(
            run.evaluation.mean_difference[self.score] for run in self.runs.values()
        )

    @property
    def cross_rank(self) -> float:
        """AOQ's cross-retrieval rank of the own score: median over pairs, mean over the seeds."""
        return statistics.fmean(run.evaluation.cross_rank[self.score] for run in self.runs.values())

    @property
    def final_stage(self) -> str:
        """Name of the stage whose checkpoint is the run's."""
        return self.recipe.final_stage.name

    @property
    def start_stage(self) -> str | None:
        """Name of the stage that the final one starts from, or None if it starts at random."""
        return _start_stage(self.recipe)

    def steps(self, stage: str) -> int:
        """Return a stage's optimizer steps; all seeds take the same number."""
        return next(iter(self.runs.values())).stages[stage].steps

    def minutes(self, stages: Iterable[str]) -> float:
        """Return how long some stages took together, in minutes, mean over the seeds."""
        names = list(stages)
        return statistics.fmean(
            sum(run.stages[name].minutes for name in names) for run in self.runs.values()
        )

    def logged(self, name: str) -> list[CurvePoint]:
        """Return a curve that the final stage logged; empty if some run lacks it."""
        return mean_curve([run.log.get(name, {}) for run in self.runs.values()])

    def gradient_shares(self) -> dict[str, list[CurvePoint]]:
        """Return the shares of the gradient by task of the final stage, where they were logged."""
        curves = {
            name: self.logged(f"{name}_gradient_share") for name in self.recipe.final_stage.tasks
        }
        return {name: curve for name, curve in curves.items() if curve}

    @property
    def parameters(self) -> int:
        """Number of parameters that the final stage trains."""
        return next(iter(self.runs.values())).stages[self.final_stage].parameters


@dataclass(frozen=True)
class Comparison:
    """The numbers of a report."""

    plan: ComparisonPlan
    summaries: tuple[RecipeSummary, ...]
    step_times: dict[str, StepTime]
    choices: tuple[Choice, ...] = ()

    @property
    def baseline(self) -> RecipeSummary:
        """Recipe that the others are compared with."""
        return next(each for each in self.summaries if each.recipe.name == self.plan.baseline)

    def steps(self, recipe: Recipe, stage: StageConfig) -> int:
        """Return the steps that a finished recipe's stage took."""
        found = next(each for each in self.summaries if each.recipe.name == recipe.name)
        return found.steps(stage.name)

    def extra_steps(self) -> dict[str, int]:
        """Count the steps of each finished recipe beyond the stages with which all begin."""
        finished = [each.recipe for each in self.summaries if each.runs]
        if not finished:
            return {}
        found = steps_beyond_start(finished, self.steps)
        return {recipe.name: steps for recipe, steps in zip(finished, found, strict=True)}


def summarize_plan(
    plan: ComparisonPlan,
    failures: dict[str, str],
    step_times: dict[str, StepTime],
    choices: Sequence[Choice] = (),
) -> Comparison:
    """Gather the numbers of all runs from their folders."""
    runs = {recipe.name: _finished_runs(plan, recipe) for recipe in plan.recipes}
    baseline = next(recipe for recipe in plan.recipes if recipe.name == plan.baseline)
    drawn = {
        recipe.name: found
        for recipe in plan.recipes
        if recipe is not baseline
        and (
            found := difference(
                evaluations_with(runs[recipe.name], recipe.own_score),
                recipe.own_score,
                evaluations_with(runs[baseline.name], baseline.own_score),
                baseline.own_score,
            )
        )
        is not None
    }
    intervals = simultaneous_intervals(list(drawn.values())) if drawn else []
    together = dict(zip(drawn, intervals, strict=True))
    summaries = tuple(
        RecipeSummary(
            recipe=recipe,
            runs=runs[recipe.name],
            failures={
                seed: failures[label]
                for seed in plan.seeds
                if (label := plan.run(recipe, seed).label) in failures
            },
            missing=tuple(seed for seed in plan.seeds if seed not in runs[recipe.name]),
            difference=drawn[recipe.name].interval if recipe.name in drawn else None,
            together=together.get(recipe.name),
            correction=_correction_gain(runs[recipe.name]),
        )
        for recipe in plan.recipes
    )
    return Comparison(plan, summaries, step_times, tuple(choices))


def difference(
    ours: Mapping[int, RunEvaluation],
    our_score: str,
    theirs: Mapping[int, RunEvaluation],
    their_score: str,
    measure: Measure = "rsum",
) -> ResampledDifference | None:
    """Compare two recipes by the seeds that both have finished, each fold by its own photos."""
    pairs = [(ours[seed], theirs[seed]) for seed in sorted(ours.keys() & theirs.keys())]
    if not pairs or not all(our.queries == their.queries for our, their in pairs):
        return None
    folds: dict[str, list[tuple[RunEvaluation, RunEvaluation]]] = {}
    for pair in pairs:
        folds.setdefault(pair[0].queries, []).append(pair)
    return resample_gains(
        [
            GainsOfPhotos(
                [gains(measure, our, our_score, their, their_score) for our, their in fold],
                fold[0][0].image_of_text,
            )
            for fold in folds.values()
        ]
    )


def _correction_gain(runs: dict[int, FinishedRun]) -> Interval | None:
    """Compare the fused scores of runs with a hubness correction with those without it."""
    with_one = evaluations_with(runs, "corrected_fused")
    found = difference(with_one, "corrected_fused", with_one, "fused")
    return None if found is None else found.interval


def _finished_runs(plan: ComparisonPlan, recipe: Recipe) -> dict[int, FinishedRun]:
    finished: dict[int, FinishedRun] = {}
    for seed in plan.seeds:
        run = plan.run(recipe, seed)
        evaluation = finished_evaluation(run, plan.split)
        if evaluation is not None:
            folder = run.folder / "stages"
            stages = {stage.name: read_facts(folder / stage.name) for stage in recipe.stage}
            log = read_curves(folder / recipe.final_stage.name)
            curve = _at_start(recipe, stages) | log.get(f"{recipe.own_score}_rsum", {})
            finished[seed] = FinishedRun(evaluation, stages, curve, log)
    return finished


def _at_start(recipe: Recipe, stages: dict[str, StageFacts]) -> dict[int, float]:
    """Return the curve's point before the first step, if the starting stage trained the score.

    With a selection split, the later points are of that split and the start's result is not.
    """
    if recipe.data.selection:
        return {}
    start = next((stage for stage in recipe.stage if stage.name == _start_stage(recipe)), None)
    if start is None or recipe.final_stage.reset or recipe.own_score not in start.trained_scores:
        return {}
    return {0: stages[start.name].rsum[recipe.own_score]}


def _start_stage(recipe: Recipe) -> str | None:
    names = [stage.name for stage in recipe.stage]
    place = names.index(recipe.final_stage.name)
    return recipe.final_stage.start or (names[place - 1] if place else None)
