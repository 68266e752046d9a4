"""A comparison from recipes to its report."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from aladin.progress import Progress
from training.comparison.plan import Plan
from training.comparison.report import write_report
from training.comparison.runner import perform_all
from training.comparison.summary import summarize_plan


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
    plan: Plan, *, jobs: int = 1, train: bool = True, progress: Progress | None = None
) -> ComparisonResult:
    """Train and evaluate what is missing of a comparison, and write its report.

    Args:
        plan: recipes, seeds, split and folder.
        jobs: runs at a time.
        train: False reports what is finished so far, and trains nothing.
        progress: told of the steps of all runs.
    """
    failures = perform_all(plan, jobs, progress) if train else {}
    markdown, html = write_report(summarize_plan(plan, failures, {}))
    return ComparisonResult(markdown, html, failures)
