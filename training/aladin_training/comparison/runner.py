"""Which run is next: one that need not wait for a stage that another is training right now.

Train and evaluate the runs of a plan; what is done is skipped, what is cut goes on.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Iterable
from pathlib import Path

from aladin_network.types import NullProgress, Progress
from aladin_training.comparison.evaluation import evaluate_run, load_evaluation, save_evaluation
from aladin_training.comparison.plan import Plan, PlannedRun
from aladin_training.comparison.processes import (
    ActiveRuns,
    RunProgress,
    RunState,
    describe,
    run_in_processes,
)
from aladin_training.stages.run import is_run_of, run_recipe
from aladin_training.stages.sources import stage_history


class RunQueue:
    """Hands runs out in order, those aside that would train a stage twice or wait for it."""

    def __init__(self, runs: Iterable[PlannedRun]) -> None:
        """Line runs up."""
        self._waiting = list(runs)
        self._running: dict[str, frozenset[str]] = {}
        self._finished: frozenset[str] = frozenset()

    def take(self) -> PlannedRun | None:
        """Return the next run; None: there is none left.

        Where every run that is left shares an unfinished stage with one under way, the first of
        them is next all the same: it waits for that stage by itself.
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
        """Note that a run has ended, well or not."""
        self._finished |= self._running.pop(run.label)


def _stages(run: PlannedRun) -> frozenset[str]:
    """Identify the stages of a run by their history, as finished stages are shared."""
    recipe = run.recipe
    return frozenset(stage_history(recipe, number) for number in range(len(recipe.stage)))


logger = logging.getLogger(__name__)


def perform(split: str, shared: Path, run: PlannedRun, progress: Progress) -> None:
    """Train a run as far as it is not trained yet, and evaluate it.

    Args:
        split: to evaluate on.
        shared: folder of the stages that runs share.
        run: to be trained, perhaps in another process.
        progress: told of photos, captions and steps.

    Raises:
        AladinError: the recipe, its data or its training is at fault.
    """
    if not is_trained(run):
        run_recipe(run.recipe, run.folder, resume=True, progress=progress, shared=shared)
    if load_evaluation(run.folder, split) is None:
        save_evaluation(run.folder, evaluate_run(run, split, progress))


def is_trained(run: PlannedRun) -> bool:
    """Tell whether a run of this very recipe is finished."""
    finished = (run.folder / "checkpoint" / "config.json").exists()
    return finished and is_run_of(run.folder, run.recipe)


def perform_all(plan: Plan, jobs: int, progress: Progress | None = None) -> dict[str, str]:
    """Train and evaluate what is missing of a comparison.

    Args:
        plan: which runs.
        jobs: runs at a time; more than one are trained in processes of their own.
        progress: told of the steps of all runs.

    Returns:
        By the label of each run that failed, why it did; the others were finished all the same.
    """
    waiting = [
        run
        for run in plan.runs()
        if not is_trained(run) or load_evaluation(run.folder, plan.split) is None
    ]
    failures: dict[str, str] = {}
    if not waiting:
        return failures
    active = ActiveRuns(progress or NullProgress())
    begun = time.monotonic()

    def ended(run: PlannedRun, failure: str | None) -> None:
        nonlocal finished
        finished += 1
        active.remove(run.label)
        if failure is not None:
            failures[run.label] = failure
        elapsed_s = time.monotonic() - begun
        left_s = elapsed_s / finished * (len(waiting) - finished)
        logger.log(
            logging.INFO if failure is None else logging.ERROR,
            "run %d of %d, %s: %s (%.1f min so far, about %.0f min left)",
            finished,
            len(waiting),
            run.label,
            _result(run, plan.split) if failure is None else f"failed: {failure}",
            elapsed_s / 60,
            left_s / 60,
        )

    def told(run: PlannedRun, state: RunState) -> None:
        active.update(run.label, state)

    finished = 0
    performer = functools.partial(perform, plan.split, plan.out / "stages")
    if jobs > 1:
        run_in_processes(performer, RunQueue(waiting), jobs, told, ended)
        return failures
    for run in waiting:
        try:
            performer(run, RunProgress(functools.partial(told, run)))
        except Exception as error:  # whatever ends one run must not end the others
            logger.debug("%s", run.label, exc_info=True)
            ended(run, describe(error))
        else:
            ended(run, None)
    return failures


def _result(run: PlannedRun, split: str) -> str:
    evaluation = load_evaluation(run.folder, split)
    assert evaluation is not None
    score = run.recipe.own_score
    return f"{score} rsum {evaluation.metrics()[score].rsum:.1f}"
