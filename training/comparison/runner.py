"""Train and evaluate the runs of a plan; what is done is skipped, what is cut goes on."""

from __future__ import annotations

import functools
import json
import logging
import time
from pathlib import Path
from typing import NamedTuple

from aladin.progress import NullProgress, Progress
from aladin.strict_config import dump_config
from training.comparison.evaluation import evaluate_run, load_evaluation, save_evaluation
from training.comparison.plan import Plan, PlannedRun
from training.comparison.processes import describe, run_in_processes
from training.comparison.run_progress import ActiveRuns, RunProgress, RunState
from training.run import run_recipe

logger = logging.getLogger(__name__)


class Job(NamedTuple):
    """A run to be trained and evaluated, perhaps in another process.

    Attributes:
        run: what to train.
        split: to evaluate on.
        shared: folder of the stages that runs share.
    """

    run: PlannedRun
    split: str
    shared: Path


def perform(job: Job, progress: Progress) -> None:
    """Train a run as far as it is not trained yet, and evaluate it.

    Args:
        job: which run.
        progress: told of photos, captions and steps.

    Raises:
        AladinError: the recipe, its data or its training is at fault.
    """
    run = job.run
    if not is_trained(run):
        run_recipe(run.recipe, run.folder, resume=True, progress=progress, shared=job.shared)
    if load_evaluation(run.folder, job.split) is None:
        save_evaluation(run.folder, evaluate_run(run, job.split, progress))


def is_trained(run: PlannedRun) -> bool:
    """Tell whether a run of this very recipe is finished."""
    claimed = run.folder / "recipe.json"
    if not (run.folder / "checkpoint" / "config.json").exists() or not claimed.exists():
        return False
    wanted = json.loads(json.dumps(dump_config(run.recipe)))  # lists and tuples compare equal
    return json.loads(claimed.read_text(encoding="utf-8")) == wanted


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
        Job(run, plan.split, plan.out / "stages")
        for run in plan.runs()
        if not is_trained(run) or load_evaluation(run.folder, plan.split) is None
    ]
    failures: dict[str, str] = {}
    if not waiting:
        return failures
    active = ActiveRuns(progress or NullProgress())
    begun = time.monotonic()

    def ended(job: Job, failure: str | None) -> None:
        nonlocal finished
        finished += 1
        active.remove(job.run.label)
        if failure is not None:
            failures[job.run.label] = failure
        elapsed_s = time.monotonic() - begun
        left_s = elapsed_s / finished * (len(waiting) - finished)
        logger.log(
            logging.INFO if failure is None else logging.ERROR,
            "run %d of %d, %s: %s (%.1f min so far, about %.0f min left)",
            finished,
            len(waiting),
            job.run.label,
            _result(job) if failure is None else f"failed: {failure}",
            elapsed_s / 60,
            left_s / 60,
        )

    def told(job: Job, state: RunState) -> None:
        active.update(job.run.label, state)

    finished = 0
    if jobs > 1:
        run_in_processes(perform, waiting, jobs, told, ended)
        return failures
    for job in waiting:
        try:
            perform(job, RunProgress(functools.partial(told, job)))
        except Exception as error:  # whatever ends one run must not end the others
            logger.debug("%s", job.run.label, exc_info=True)
            ended(job, describe(error))
        else:
            ended(job, None)
    return failures


def _result(job: Job) -> str:
    evaluation = load_evaluation(job.run.folder, job.split)
    assert evaluation is not None
    score = job.run.recipe.own_score
    return f"{score} rsum {evaluation.metrics()[score].rsum:.1f}"
