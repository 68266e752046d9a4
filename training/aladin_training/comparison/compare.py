"""A comparison from recipes to its report."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

from aladin_network.errors import AladinError
from aladin_network.types import Progress
from aladin_training.comparison.plan import Plan
from aladin_training.comparison.report import write_report
from aladin_training.comparison.runner import perform_all
from aladin_training.comparison.step_time import (
    StepTime,
    load_step_times,
    measure_step_times,
    save_step_times,
)
from aladin_training.comparison.summary import summarize_plan

logger = logging.getLogger(__name__)


class ComparisonResult(NamedTuple):
    """What a comparison leaves.

    Attributes:
        markdown: the report.
        html: the same report as one file.
        failures: by label of a run, why it failed.
    """

    markdown: Path
    html: Path
    failures: dict[str, str]


def compare(
    plan: Plan,
    *,
    jobs: int = 1,
    train: bool = True,
    step_times: bool = True,
    progress: Progress | None = None,
) -> ComparisonResult:
    """Train and evaluate what is missing of a comparison, and write its report.

    Args:
        plan: recipes, seeds, split and folder.
        jobs: runs at a time.
        train: False reports what is finished so far; nothing is trained or measured.
        step_times: measure how long training steps take, where that is not known yet.
        progress: told of the steps of all runs.
    """
    failures = perform_all(plan, jobs, progress) if train else {}
    times = _step_times(plan, train and step_times, progress)
    ratios = {name: each.ratio for name, each in times.items()}
    markdown, html = write_report(summarize_plan(plan, failures, ratios))
    return ComparisonResult(markdown, html, failures)


def _step_times(plan: Plan, measure: bool, progress: Progress | None) -> dict[str, StepTime]:
    """Return the known step times, and all others too if they are to be measured."""
    file = plan.out / "step_times.json"
    baseline = next(recipe for recipe in plan.recipes if recipe.name == plan.baseline)
    times = load_step_times(file, plan.recipes, baseline)
    unknown = [recipe for recipe in plan.recipes if recipe.name not in times]
    if not measure or not unknown:
        return times
    try:
        times |= measure_step_times(unknown, baseline, progress=progress)
    except AladinError as error:
        logger.warning("no step times: the baseline cannot be set up: %s", error)
    else:
        save_step_times(file, times, plan.recipes, baseline)
    return times
