"""What a comparison will cost, measured on its first runs.

OUT/pilot.json    seconds of each run that was measured, by its label
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from aladin_network.errors import InputError
from aladin_network.files import write_json
from aladin_network.types import Progress
from aladin_training.comparison.budget import TrainingSize, steps_of
from aladin_training.comparison.compare import perform_all, sized
from aladin_training.comparison.evaluation import finished_evaluation
from aladin_training.comparison.grid import Choice
from aladin_training.comparison.plan import ComparisonPlan, PlannedRun
from aladin_training.config.stage import StageConfig
from aladin_training.stage_files import read_facts
from aladin_training.stages.sources import stage_history

_FILE = "pilot.json"


def run_pilot(plan: ComparisonPlan, count: int, *, controls: bool, progress: Progress) -> str:
    """Train the first runs of a comparison, one process at a time, and foretell all of it.

    The runs are the comparison's own, with a grid those that settings are chosen by: it goes on
    from them. A stage that several runs share costs once. Stages that no measured run has are
    named, and missing in the sum.

    Raises:
        InputError: If a run failed.
    """
    plan, sizes = sized(plan, progress, controls=controls)
    file = plan.out / _FILE
    seconds: dict[str, float] = json.loads(file.read_text()) if file.exists() else {}
    split = plan.select or plan.split
    firsts = (plan.candidate_runs() or plan.runs())[:count]
    for run in firsts:
        if finished_evaluation(run, split) is not None:
            continue
        begun = time.monotonic()
        failures = perform_all([run], split, plan.shared_stages, 1, progress)
        if failures:
            raise InputError("; ".join(f"{label}: {why}" for label, why in failures.items()))
        seconds[run.label] = time.monotonic() - begun
        write_json(file, seconds)
    measured = [run for run in firsts if run.label in seconds]
    if not measured:
        raise InputError(f"{plan.out}: its first {count} runs were finished before; measure more")
    return f"{plan.out}: {_foretold(plan, sizes, measured, seconds)}"


def _foretold(
    plan: ComparisonPlan,
    sizes: Mapping[str, TrainingSize],
    measured: Sequence[PlannedRun],
    seconds: Mapping[str, float],
) -> str:
    like = plan.controls | {
        candidate.name: plan.controls.get(grid.recipe, grid.recipe)
        for grid in plan.grids
        for candidate in grid.candidates.values()
    }
    facts = {
        (like.get(run.recipe.name, run.recipe.name), stage.name): read_facts(
            run.folder / "stages" / stage.name
        )
        for run in measured
        for stage in run.recipe.stage
    }
    taken_min = sum(seconds[run.label] for run in measured) / 60
    trained = sum(facts[each.recipe, each.stage.name].minutes for each in _stages(measured, like))
    beside = (taken_min - trained) / len(measured)
    # Whatever is chosen, a fold's first run has been trained to choose it.
    chosen = plan.with_choices(
        [
            Choice(grid.recipe, {}, next(iter(grid.candidates)), (), fold)
            for grid in plan.grids
            for fold in range(plan.cross)
        ]
    )
    runs = [*plan.candidate_runs(), *chosen.runs()]
    steps, minutes, unknown = 0, beside * len(runs), set[str]()
    stages = _stages(runs, like)
    for recipe, stage in stages:
        taken, known = steps_of(stage, sizes[recipe]), facts.get((recipe, stage.name))
        steps += taken
        if known is None:
            unknown.add(f"{recipe} {stage.name}")
        else:
            minutes += known.minutes * taken / known.steps
    text = (
        f"{len(runs)} runs, {len(stages)} different stages, {steps:,} optimizer steps: about "
        f"{minutes / 60:.1f} h of one process, by {len(measured)} runs that took "
        f"{taken_min:.1f} min, {beside:.1f} min of each beside its steps"
    )
    return text + (f"; without {', '.join(sorted(unknown))}, not measured" if unknown else "")


class _Stage(NamedTuple):
    """A stage of a recipe, which takes as long as that of a control or of a candidate of it."""

    recipe: str
    stage: StageConfig


def _stages(runs: Sequence[PlannedRun], like: Mapping[str, str]) -> list[_Stage]:
    """List the different stages of runs: what several share is trained once."""
    found = {
        stage_history(run.recipe, number): _Stage(like.get(run.recipe.name, run.recipe.name), stage)
        for run in reversed(runs)  # the first run of a stage is the one that trains it
        for number, stage in enumerate(run.recipe.stage)
    }
    return list(found.values())
