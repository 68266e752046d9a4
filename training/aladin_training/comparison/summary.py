"""What a finished stage left about itself: its steps, its time and its validation curve.

The numbers of a comparison: each recipe over its seeds, and against the baseline.
"""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from aladin_network.errors import CheckpointError
from aladin_network.scoring.metrics import Interval, paired_bootstrap_over_seeds
from aladin_network.scoring.scores import ScoreName
from aladin_training.comparison.evaluation import RunEvaluation, load_evaluation
from aladin_training.comparison.plan import Plan
from aladin_training.comparison.runner import is_trained
from aladin_training.config.recipe import Recipe
from aladin_training.stages.run import read_validation


class StageFacts(NamedTuple):
    """What a stage took, and what it reached.

    Attributes:
        steps: of the optimizer.
        minutes: for batches, steps and validation.
        parameters: numbers that were trained.
        rsum: on the validation split at the stage's end, by score name.
    """

    steps: int
    minutes: float
    parameters: int
    rsum: dict[str, float]


def read_stage(run: Path, stage: str) -> StageFacts:
    """Read the facts of a finished stage.

    Args:
        run: folder of the run.
        stage: its name.

    Raises:
        CheckpointError: the stage's record is missing or cannot be read.
    """
    folder = run / "stages" / stage
    path = folder / "timing.json"
    try:
        timing = json.loads(path.read_text(encoding="utf-8"))
        seconds = timing["data_s"] + timing["step_s"] + timing["validation_s"]
        rsum = {name: each.rsum for name, each in read_validation(folder).items()}
        return StageFacts(timing["steps"], seconds / 60, timing["parameters"], rsum)
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"{folder}: not a finished stage ({error!r})") from error


def validation_curve(run: Path, stage: str, score: str) -> dict[int, float]:
    """Read the validation rsum of a score by step of a stage, from the stage's log.

    Args:
        run: folder of the run.
        stage: its name.
        score: e.g. "matching".
    """
    key = f"{score}_rsum"
    lines = (run / "stages" / stage / "log.jsonl").read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line) for line in lines]
    return {entry["step"]: entry[key] for entry in entries if key in entry}


class Spread(NamedTuple):
    """A number over the seeds.

    Attributes:
        mean: of all seeds.
        std: sample standard deviation; None for a single seed.
    """

    mean: float
    std: float | None


def spread(values: Sequence[float]) -> Spread:
    """Summarise one value a seed; at least one."""
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


@dataclass(frozen=True)
class FinishedRun:
    """A run that has been trained and evaluated.

    Attributes:
        evaluation: on the comparison's split.
        stages: by name, in order.
        curve: validation rsum of the own score by step of the final stage; step 0 is the stage
            that it starts from, where that has trained the same score.
    """

    evaluation: RunEvaluation
    stages: dict[str, StageFacts]
    curve: dict[int, float]


@dataclass(frozen=True)
class RecipeSummary:
    """One recipe of a comparison.

    Attributes:
        recipe: as planned.
        runs: by seed, those that are finished; all numbers below are over them.
        failures: by seed, why a run failed.
        missing: seeds without a finished run.
        difference: own rsum minus the baseline's, each by its own score, seed by seed; None for
            the baseline, and where no seed is finished on both sides.
    """

    recipe: Recipe
    runs: dict[int, FinishedRun]
    failures: dict[int, str]
    missing: tuple[int, ...]
    difference: Interval | None

    @property
    def score(self) -> ScoreName:
        """The score that the final stage trains."""
        return self.recipe.own_score

    def rsum(self, score: str) -> Spread | None:
        """Return the rsum of a score over the seeds; None where no run has the score."""
        metrics = [run.evaluation.metrics() for run in self.runs.values()]
        values = [each[score].rsum for each in metrics if score in each]
        return spread(values) if values else None

    def recall_at_1(self, direction: str) -> float:
        """Return R@1 of the own score in one direction, in percent, over the seeds."""
        return statistics.fmean(
            getattr(run.evaluation.metrics()[self.score], direction).r1
            for run in self.runs.values()
        )

    @property
    def mean_difference(self) -> float:
        """DBL's MD of the own score over the seeds."""
        return statistics.fmean(
            run.evaluation.mean_difference[self.score] for run in self.runs.values()
        )

    @property
    def cross_rank(self) -> float:
        """AOQ's cross-retrieval rank of the own score: the median over pairs, over the seeds."""
        return statistics.fmean(run.evaluation.cross_rank[self.score] for run in self.runs.values())

    @property
    def final_stage(self) -> str:
        """Name of the stage whose checkpoint is the run's."""
        return self.recipe.final_stage.name

    @property
    def start_stage(self) -> str | None:
        """Name of the stage that the final one starts from; None: it starts at random."""
        return _start_stage(self.recipe)

    def steps(self, stage: str) -> int:
        """Return a stage's optimizer steps; all seeds take the same number."""
        return next(iter(self.runs.values())).stages[stage].steps

    def minutes(self, stages: Iterable[str]) -> float:
        """Return how long some stages took together, in minutes, over the seeds."""
        names = list(stages)
        return statistics.fmean(
            sum(run.stages[name].minutes for name in names) for run in self.runs.values()
        )

    @property
    def parameters(self) -> int:
        """Numbers that the final stage trains."""
        return next(iter(self.runs.values())).stages[self.final_stage].parameters


@dataclass(frozen=True)
class Comparison:
    """All that a report says.

    Attributes:
        plan: what was compared.
        summaries: of the recipes, in the plan's order.
        step_ratios: by recipe, the time of a training step of its final stage relative to the
            baseline's; empty if it was not measured.
    """

    plan: Plan
    summaries: tuple[RecipeSummary, ...]
    step_ratios: dict[str, float]

    @property
    def baseline(self) -> RecipeSummary:
        """The recipe that the others are compared with."""
        return next(each for each in self.summaries if each.recipe.name == self.plan.baseline)

    def extra_steps(self, summary: RecipeSummary) -> int:
        """Count the steps that a recipe takes beyond what it shares with the baseline.

        Args:
            summary: of a recipe with a finished run.

        Returns:
            Steps of all its stages but those that it begins with as the baseline does.
        """
        pairs = zip(summary.recipe.stage, self.baseline.recipe.stage, strict=False)
        shared = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))
        # The baseline shares all its stages with itself; its final one is what others add too.
        shared = min(shared, len(self.baseline.recipe.stage) - 1)
        return sum(summary.steps(stage.name) for stage in summary.recipe.stage[shared:])


def summarize_plan(
    plan: Plan, failures: dict[str, str], step_ratios: dict[str, float]
) -> Comparison:
    """Gather the numbers of all runs from their folders.

    Args:
        plan: which runs.
        failures: by label of a run, why it failed just now.
        step_ratios: see `Comparison`.
    """
    runs = {recipe.name: _finished_runs(plan, recipe) for recipe in plan.recipes}
    baseline = next(recipe for recipe in plan.recipes if recipe.name == plan.baseline)
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
            difference=None
            if recipe is baseline
            else difference(
                runs[recipe.name],
                recipe.own_score,
                runs[baseline.name],
                baseline.own_score,
            ),
        )
        for recipe in plan.recipes
    )
    return Comparison(plan, summaries, step_ratios)


def difference(
    ours: dict[int, FinishedRun],
    our_score: str,
    theirs: dict[int, FinishedRun],
    their_score: str,
) -> Interval | None:
    """Compare two recipes by the seeds that both have finished.

    Args:
        ours: runs by seed.
        our_score: that ranks for them.
        theirs: the baseline's runs.
        their_score: that ranks for those.

    Returns:
        The difference of rsum with its 95 % interval over photos and seeds; None if no seed is
        finished on both sides, or they were evaluated on different photos or captions.
    """
    pairs = [
        (ours[seed].evaluation, theirs[seed].evaluation) for seed in sorted(ours.keys() & theirs)
    ]
    if not pairs or not all(_same_queries(*pair) for pair in pairs):
        return None
    return paired_bootstrap_over_seeds(
        [our.ranks[our_score] for our, _ in pairs],
        [their.ranks[their_score] for _, their in pairs],
        pairs[0][0].image_of_text,
    )


def _same_queries(ours: RunEvaluation, theirs: RunEvaluation) -> bool:
    return torch.equal(ours.image_of_text, theirs.image_of_text)


def _finished_runs(plan: Plan, recipe: Recipe) -> dict[int, FinishedRun]:
    finished: dict[int, FinishedRun] = {}
    for seed in plan.seeds:
        run = plan.run(recipe, seed)
        evaluation = load_evaluation(run.folder, plan.split) if is_trained(run) else None
        if evaluation is not None:
            stages = {stage.name: read_stage(run.folder, stage.name) for stage in recipe.stage}
            curve = validation_curve(run.folder, recipe.final_stage.name, recipe.own_score)
            finished[seed] = FinishedRun(evaluation, stages, _at_start(recipe, stages) | curve)
    return finished


def _at_start(recipe: Recipe, stages: dict[str, StageFacts]) -> dict[int, float]:
    """Return the curve's point before the first step, if the own score was trained before."""
    start = next((stage for stage in recipe.stage if stage.name == _start_stage(recipe)), None)
    if start is None or recipe.final_stage.reset or recipe.own_score not in start.trained_scores:
        return {}
    return {0: stages[start.name].rsum[recipe.own_score]}


def _start_stage(recipe: Recipe) -> str | None:
    names = [stage.name for stage in recipe.stage]
    place = names.index(recipe.final_stage.name)
    return recipe.final_stage.start or (names[place - 1] if place else None)
