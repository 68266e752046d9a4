"""Runs that share a stage are not trained at the same time if there is anything else to do."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from aladin_training.comparison.compare import RunQueue
from aladin_training.comparison.plan import ComparisonPlan, PlannedRun
from aladin_training.config.recipe import Recipe


def test_a_shared_start_is_waited_for_only_if_nothing_else_is_left(
    plan: ComparisonPlan, variant: Callable[..., Recipe]
) -> None:
    other = variant("other", "stage.joint.lr=0.5")  # a start of its own
    queue = RunQueue(dataclasses.replace(plan, recipes=(*plan.recipes[:2], other)).runs())

    taken: list[PlannedRun] = []

    def take() -> str | None:
        run = queue.take()
        if run is None:
            return None
        taken.append(run)
        return run.label

    assert take() == "base seed 0"
    assert take() == "other seed 0"
    assert take() == "base seed 1"
    assert take() == "other seed 1"
    assert take() == "long seed 0"  # only "long" is left, and both of its starts are in training
    queue.end(taken[2])
    assert take() == "long seed 1"
    assert take() is None


def test_a_finished_start_holds_nobody_up(plan: ComparisonPlan) -> None:
    queue = RunQueue(plan.runs())
    first = queue.take()
    assert first is not None
    queue.end(first)
    labels = [run.label for run in (queue.take(), queue.take()) if run is not None]
    assert labels == ["long seed 0", "third seed 0"]
