"""Runs a comparison: trains and evaluates what is missing, then writes the report."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from aladin_network.errors import AladinError, ConfigError
from aladin_network.scoring.metrics import RetrievalMetrics
from aladin_network.types import NullProgress, Progress
from aladin_training.comparison.budget import (
    TrainingSize,
    foretell,
    training_sizes,
    with_controls,
)
from aladin_training.comparison.claims import read_claims
from aladin_training.comparison.evaluate import check_queries, evaluate_run, evaluated_records
from aladin_training.comparison.evaluation import (
    finished_evaluation,
    is_evaluated,
    is_trained,
    load_evaluation,
    save_evaluation,
)
from aladin_training.comparison.grid import Choice, choose
from aladin_training.comparison.plan import ComparisonPlan, PlannedRun
from aladin_training.comparison.processes import (
    ActiveRuns,
    RunProgress,
    RunState,
    describe_error,
    run_in_processes,
)
from aladin_training.comparison.report import write_report
from aladin_training.comparison.step_time import (
    StepTime,
    load_step_times,
    measure_step_times,
    save_step_times,
)
from aladin_training.comparison.summary import Comparison, summarize_plan
from aladin_training.data.records import is_strict, strict_data
from aladin_training.stages.run import run_recipe
from aladin_training.stages.set_memory import SetMemory
from aladin_training.stages.sources import stage_history

logger = logging.getLogger(__name__)


class ComparisonResult(NamedTuple):
    """Result of a comparison."""

    markdown: Path
    html: Path
    failures: dict[str, str]
    comparison: Comparison


def compare(
    plan: ComparisonPlan,
    *,
    jobs: int = 1,
    train: bool = True,
    step_times: bool = True,
    controls: bool = False,
    correct: bool = False,
    progress: Progress | None = None,
) -> ComparisonResult:
    """Train and evaluate the missing runs of a comparison, and write its report.

    Args:
        plan: Recipes, seeds, split and folder. If it has grids, the settings are chosen first.
        jobs: Number of runs at a time.
        train: False to report what is finished so far, without training or measuring.
        step_times: Measure the time and memory of training steps, where that is not known yet.
        controls: Add recipes with as many steps as those that take more, see `with_controls`.
        correct: Fit the hubness correction of each run and report what it gains.
        progress: Receives the steps of all runs.

    Raises:
        ConfigError: If corrected scores are requested of blocks of a split.
        InputError: If a finished run was evaluated on other data than there is now.
    """
    if correct and plan.folds > 1:
        raise ConfigError("corrected scores are not evaluated in blocks: folds with correct")
    failures: dict[str, str] = {}
    choices: list[Choice] = []
    sizes: dict[str, TrainingSize] = {}
    if train or controls:
        plan, sizes = sized(plan, progress or NullProgress(), controls=controls)
    # The settings of a grid are not known yet: their recipes are measured once they are.
    times = _step_times(plan, train and step_times and not plan.grids, progress)
    if train:
        _log_cost(plan, sizes, times)
    if plan.grids:
        assert plan.select is not None  # checked by the plan
        candidates = plan.candidate_runs()
        if train:
            failures |= perform_all(candidates, plan.select, plan.shared_stages, jobs, progress)
        choices = choose_settings(plan, plan.select)
        plan = plan.with_choices(choices)
        times = _step_times(plan, train and step_times, progress)
    if train:
        check_queries(plan.runs(), plan.split)
        failures |= perform_all(
            plan.runs(), plan.split, plan.shared_stages, jobs, progress, correct=correct
        )
    comparison = summarize_plan(plan, failures, times, choices)
    return ComparisonResult(*write_report(comparison), failures, comparison)


def sized(
    plan: ComparisonPlan, progress: Progress, *, controls: bool
) -> tuple[ComparisonPlan, dict[str, TrainingSize]]:
    """Count the training photos of a plan's recipes, and add controls if they are wanted."""
    planned = [plan.run(recipe, plan.seeds[0]).recipe for recipe in plan.recipes]
    sizes = training_sizes(planned, progress)
    if controls:
        pairs = [(claim.better, claim.than) for claim in read_claims()]
        plan = with_controls(plan, sizes, pairs)
        sizes |= {control: sizes[of] for control, of in plan.controls.items()}
    return plan, sizes


def _log_cost(
    plan: ComparisonPlan, sizes: dict[str, TrainingSize], times: dict[str, StepTime]
) -> None:
    """Log what the missing runs will cost; with grids, those of the chosen settings besides."""
    ms = {name: each.ms for name, each in times.items()}
    for grid in plan.grids:
        for candidate in grid.candidates.values():
            if grid.recipe in sizes:
                sizes[candidate.name] = sizes[grid.recipe]
            if grid.recipe in ms:
                ms[candidate.name] = ms[grid.recipe]
    planned = [(run, plan.split) for run in plan.runs()]
    if plan.select is not None:
        planned += [(run, plan.select) for run in plan.candidate_runs()]
    runs = [run for run, split in planned if finished_evaluation(run, split) is None]
    if runs:
        logger.info("to train: %s", foretell(runs, sizes, ms))


def choose_settings(plan: ComparisonPlan, split: str) -> list[Choice]:
    """Choose the settings of each recipe by the finished runs of its candidates, in each fold."""
    choices: list[Choice] = []
    for grid in plan.grids:
        for seed in plan.seeds[: plan.cross]:
            metrics: dict[str, RetrievalMetrics] = {}
            for label, candidate in grid.candidates.items():
                found = finished_evaluation(plan.run(candidate, seed), split)
                if found is not None:
                    metrics[label] = found.metrics()[candidate.own_score]
            choices.append(choose(grid, metrics, seed % plan.cross))
            logger.info("%s: %s", grid.recipe, choices[-1].chosen or "nothing to choose from yet")
    return choices


def perform_all(
    runs: Sequence[PlannedRun],
    split: str,
    shared: Path,
    jobs: int,
    progress: Progress | None = None,
    *,
    correct: bool = False,
) -> dict[str, str]:
    """Train and evaluate those of some runs that are not finished."""
    waiting = [
        run for run in runs if not is_evaluated(finished_evaluation(run, split), correct=correct)
    ]
    if not waiting:
        return {}
    tracker = _Tracker(len(waiting), split, ActiveRuns(progress or NullProgress()))
    performer = RunPerformer(split, shared, correct)
    if jobs > 1:
        run_in_processes(performer, RunQueue(waiting), jobs, tracker.update, tracker.end)
        return tracker.failures
    for run in waiting:
        try:
            performer(run, RunProgress(functools.partial(tracker.update, run)))
        except Exception as error:  # one failed run must not end the others
            logger.debug("%s", run.label, exc_info=True)
            tracker.end(run, describe_error(error))
        else:
            tracker.end(run, None)
    return tracker.failures


@dataclass(frozen=True)
class RunPerformer:
    """Trains and evaluates runs in one process, one after the other."""

    split: str
    shared: Path
    correct: bool
    memory: SetMemory = field(default_factory=SetMemory)
    strict: bool = field(default_factory=is_strict)

    def __call__(self, run: PlannedRun, progress: Progress) -> None:
        """Train a run as far as it is not trained yet, and evaluate it."""
        with strict_data(self.strict):
            self._perform(run, progress)

    def _perform(self, run: PlannedRun, progress: Progress) -> None:
        if not is_trained(run):
            evaluated_records(run, self.split, self.memory)  # a missing split costs no training
            run_recipe(
                run.recipe,
                run.folder,
                resume=True,
                progress=progress,
                shared=self.shared,
                memory=self.memory,
            )
        known = load_evaluation(run.folder, self.split, run.folds)
        if not is_evaluated(known, correct=self.correct):
            evaluation = evaluate_run(
                run, self.split, progress, correct=self.correct, memory=self.memory
            )
            save_evaluation(run.folder, evaluation)


class RunQueue:
    """Gives out runs in order, except those that would wait for a stage another one is training."""

    def __init__(self, runs: Iterable[PlannedRun]) -> None:
        self._waiting = list(runs)
        self._running: dict[str, frozenset[str]] = {}
        self._finished: frozenset[str] = frozenset()

    def take(self) -> PlannedRun | None:
        """Return the next run, or None if there is none left.

        If every remaining run shares an unfinished stage with a running one, the first of them
        is next nevertheless: it waits for that stage by itself.
        """
        if not self._waiting:
            return None
        busy = frozenset[str]().union(*self._running.values()) - self._finished
        apart = (run for run in self._waiting if busy.isdisjoint(_stages(run)))
        run = next(apart, self._waiting[0])
        self._waiting.remove(run)
        self._running[run.label] = _stages(run)
        return run

    def end(self, run: PlannedRun) -> None:
        """Note that a run has ended, successfully or not."""
        self._finished |= self._running.pop(run.label)


def _stages(run: PlannedRun) -> frozenset[str]:
    """Identify the stages of a run by their histories, as finished stages are shared."""
    recipe = run.recipe
    return frozenset(stage_history(recipe, number) for number in range(len(recipe.stage)))


class _Tracker:
    """Shows and logs the state of all runs, and collects failures."""

    def __init__(self, total: int, split: str, active: ActiveRuns) -> None:
        self.failures: dict[str, str] = {}
        self._total = total
        self._split = split
        self._active = active
        self._finished = 0
        self._begun = time.monotonic()

    def update(self, run: PlannedRun, state: RunState) -> None:
        """Show the state of a running run."""
        self._active.update(run.label, state)

    def end(self, run: PlannedRun, failure: str | None) -> None:
        """Log that a run has ended, with the reason if it failed."""
        self._finished += 1
        self._active.remove(run.label)
        if failure is not None:
            self.failures[run.label] = failure
        elapsed_s = time.monotonic() - self._begun
        left_s = elapsed_s / self._finished * (self._total - self._finished)
        logger.log(
            logging.INFO if failure is None else logging.ERROR,
            "run %d of %d, %s: %s (%.1f min so far, about %.0f min left)",
            self._finished,
            self._total,
            run.label,
            _result(run, self._split) if failure is None else f"failed: {failure}",
            elapsed_s / 60,
            left_s / 60,
        )


def _result(run: PlannedRun, split: str) -> str:
    evaluation = load_evaluation(run.folder, split, run.folds)
    assert evaluation is not None
    score = run.recipe.own_score
    return f"{score} rsum {evaluation.metrics()[score].rsum:.1f}"


def _step_times(
    plan: ComparisonPlan, measure: bool, progress: Progress | None
) -> dict[str, StepTime]:
    """Return the known step times, and measure the others if requested."""
    file = plan.out / "step_times.json"
    baseline = next(recipe for recipe in plan.recipes if recipe.name == plan.baseline)
    times = load_step_times(file, plan.recipes, baseline)
    unknown = [recipe for recipe in plan.recipes if recipe.name not in times]
    if not measure or not unknown:
        return times
    try:
        times |= measure_step_times(unknown, baseline, progress=progress)
    except AladinError as error:
        logger.warning("step times not measured: the baseline cannot be set up: %s", error)
    else:
        save_step_times(file, times, plan.recipes, baseline)
    return times
