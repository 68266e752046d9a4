"""The optimizer steps of a comparison, and controls that take as many as what they stand beside."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from aladin_network.errors import AladinError
from aladin_network.types import Progress
from aladin_training.batches.plan import batches_of_epoch
from aladin_training.comparison.plan import ComparisonPlan, PlannedRun
from aladin_training.config.recipe import Recipe
from aladin_training.config.stage import StageConfig
from aladin_training.data.selection import SelectionSplit
from aladin_training.stages.preparation import open_training_data
from aladin_training.stages.sources import stage_history
from aladin_training.streaming.tar_stream import TarStream

logger = logging.getLogger(__name__)


class TrainingSize(NamedTuple):
    """Size of a recipe's training split, without the photos that are kept apart.

    A stream has no captions, since it shows photos.
    """

    photos: int
    captions: int | None


def training_sizes(recipes: Iterable[Recipe], progress: Progress) -> dict[str, TrainingSize]:
    """Count the training photos and captions of recipes, by name.

    A recipe whose data cannot be read is left out: its runs fail with the reason.
    """
    known: dict[str, TrainingSize | None] = {}
    for recipe in recipes:
        key = repr(recipe.data)
        if key not in known:
            known[key] = _training_size(recipe, progress)
    sizes = {recipe.name: known[repr(recipe.data)] for recipe in recipes}
    return {name: size for name, size in sizes.items() if size is not None}


# Returns the optimizer steps of a stage of a recipe: those taken, or those that will be.
StepsOf = Callable[[Recipe, StageConfig], int]


def steps_beyond_start(recipes: Sequence[Recipe], steps: StepsOf) -> list[int]:
    """Return the steps of each recipe beyond the stages with which all of them begin.

    At least the last stage of each is its own, even where it is another one's start. Recipes with
    different networks or data share nothing.
    """
    shared = 0
    if all(_trained_on(each) == _trained_on(recipes[0]) for each in recipes):
        columns = zip(*(each.stage for each in recipes), strict=False)
        alike = itertools.takewhile(lambda stages: all(s == stages[0] for s in stages), columns)
        shared = min(len(list(alike)), *(len(each.stage) - 1 for each in recipes))
    return [sum(steps(each, stage) for stage in each.stage[shared:]) for each in recipes]


def _trained_on(recipe: Recipe) -> tuple[object, ...]:
    return recipe.model, recipe.start, recipe.data


def as_long(
    better: Recipe, than: Recipe, controls: Iterable[Recipe], steps: StepsOf
) -> Recipe | None:
    """Return `than` if it takes as many steps as `better`, else its shortest control that does.

    Steps are those beyond the common start. None if no control does.
    """
    enough: list[tuple[int, Recipe]] = []
    for number, other in enumerate((than, *controls)):
        ours, theirs = steps_beyond_start((better, other), steps)
        if theirs >= ours:
            if not number:
                return than
            enough.append((theirs, other))
    return min(enough, key=lambda each: each[0], default=(0, None))[1]


def steps_of(stage: StageConfig, size: TrainingSize) -> int:
    """Return the optimizer steps that a stage will take."""
    captions = None if stage.captions_per_photo is not None else size.captions
    items = size.photos if captions is None else captions
    return stage.steps(batches_of_epoch(max(1, round(stage.share * items)), stage.batch_size))


def with_controls(
    plan: ComparisonPlan, sizes: Mapping[str, TrainingSize], claims: Iterable[tuple[str, str]] = ()
) -> ComparisonPlan:
    """Add controls: recipes with a longer final stage, where what is compared takes unequal steps.

    A recipe that is better than another one of fewer steps may owe it to the steps. Pairs are each
    recipe with the baseline, and those of `claims` by name. A control takes exactly as many steps
    beyond the common start as the recipe that takes more. It has the grid of the recipe that it is
    a control of. A recipe with another network or other data has none.
    """
    recipes = {recipe.name: recipe for recipe in plan.recipes if recipe.name in sizes}

    def steps(recipe: Recipe, stage: StageConfig) -> int:
        return steps_of(stage, sizes[recipe.name])

    controls: dict[str, Recipe] = {}
    control_of: dict[str, str] = {}
    for better, than in dict.fromkeys([*((name, plan.baseline) for name in recipes), *claims]):
        ours, theirs = recipes.get(better), recipes.get(than)
        if ours is None or theirs is None or _trained_on(ours) != _trained_on(theirs):
            continue
        wanted, own = steps_beyond_start((ours, theirs), steps)
        if wanted > own:
            final = steps(theirs, theirs.final_stage) + wanted - own
            name = f"{than}-{final}-steps"
            control_of[name] = than
            controls[name] = _longer(theirs, steps(theirs, theirs.final_stage), final, name)
    grids = tuple(
        dataclasses.replace(
            grid,
            recipe=name,
            candidates={
                label: _longer(
                    each,
                    steps(recipes[grid.recipe], each.final_stage),
                    control.final_stage.max_steps or 0,
                    each.name.replace(grid.recipe, name, 1),
                )
                for label, each in grid.candidates.items()
            },
        )
        for name, control in controls.items()
        for grid in plan.grids
        if grid.recipe == control_of[name]
    )
    return dataclasses.replace(
        plan,
        recipes=(*plan.recipes, *controls.values()),
        grids=(*plan.grids, *grids),
        controls=control_of,
    )


def foretell(
    runs: Sequence[PlannedRun],
    sizes: Mapping[str, TrainingSize],
    ms_per_step: Mapping[str, float],
) -> str:
    """Describe the cost of runs before they are trained."""
    stages: dict[str, tuple[int, float]] = {}
    for run in runs:
        recipe, known = run.recipe, sizes.get(run.recipe.name)
        for number, stage in enumerate(recipe.stage if known is not None else ()):
            assert known is not None
            steps = steps_of(stage, known)
            took_ms = steps * ms_per_step.get(recipe.name, math.nan)
            stages.setdefault(stage_history(recipe, number), (steps, took_ms))
    steps = sum(each for each, _ in stages.values())
    hours = sum(each for _, each in stages.values()) / 3_600_000
    text = f"{len(runs)} runs, {len(stages)} different stages, {steps:,} optimizer steps"
    if not stages or math.isnan(hours):
        return text
    return f"{text}: about {hours:.1f} h of one process by the measured steps, without validation"


def _training_size(recipe: Recipe, progress: Progress) -> TrainingSize | None:
    try:
        train = open_training_data(recipe, progress)
    except AladinError as error:
        logger.warning("%s: its steps cannot be counted: %s", recipe.name, error)
        return None
    if isinstance(train, TarStream):
        return TrainingSize(train.photos, None)
    if recipe.data.selection:
        train, _ = SelectionSplit(recipe.data.train_split, recipe.data.selection).divide(train)
    return TrainingSize(len(train), sum(len(record.captions) for record in train))


def _longer(recipe: Recipe, own: int, steps: int, name: str) -> Recipe:
    """Return a recipe of another name whose final stage takes more steps than its `own`."""
    final = recipe.final_stage
    schedule = final.schedule
    if schedule.shape == "step":
        stretched = round(schedule.step_epochs * steps / own)
        schedule = dataclasses.replace(schedule, step_epochs=stretched)
    longer = dataclasses.replace(final, max_steps=steps, schedule=schedule)
    stages = tuple(longer if stage is final else stage for stage in recipe.stage)
    return dataclasses.replace(recipe, name=name, stage=stages)
