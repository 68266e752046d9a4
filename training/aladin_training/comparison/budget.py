"""The optimizer steps of a comparison before they are taken, and baselines that take as many."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from aladin_network.errors import AladinError
from aladin_network.types import Progress
from aladin_training.batches.plan import batches_of_epoch
from aladin_training.comparison.plan import CONTROLS, ComparisonPlan, PlannedRun
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


def stages_beyond_start(recipe: Recipe, baseline: Recipe) -> tuple[StageConfig, ...]:
    """Return a recipe's stages except those with which it and the baseline both begin.

    The baseline shares all its stages with itself, but its final stage is beyond the start, too.
    """
    pairs = zip(recipe.stage, baseline.stage, strict=False)
    shared = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))
    return recipe.stage[min(shared, len(baseline.stage) - 1) :]


def steps_of(stage: StageConfig, size: TrainingSize) -> int:
    """Return the optimizer steps that a stage will take."""
    captions = None if stage.captions_per_photo is not None else size.captions
    items = size.photos if captions is None else captions
    return stage.steps(batches_of_epoch(max(1, round(stage.share * items)), stage.batch_size))


def with_controls(plan: ComparisonPlan, sizes: Mapping[str, TrainingSize]) -> ComparisonPlan:
    """Add baselines that take as many steps as the recipes that take more.

    A recipe that is better than a baseline of fewer steps may owe it to the steps. A control is the
    baseline with a longer final stage; it takes at least as many steps beyond the start as the
    recipe that it controls for, and less than an epoch more. It has the baseline's grid, or takes
    over a recipe's choice (`CONTROLS` among the plan's followers). A recipe with another network or
    other data has no control, since a longer run of this baseline would not be comparable with it.
    """
    baseline = next(recipe for recipe in plan.recipes if recipe.name == plan.baseline)
    size = sizes.get(baseline.name)
    followers = dict(plan.followers)
    leader = followers.pop(CONTROLS, None)
    if size is None:
        return dataclasses.replace(plan, followers=followers)
    final = baseline.final_stage
    own = sum(steps_of(stage, size) for stage in stages_beyond_start(baseline, baseline))
    an_epoch = steps_of(dataclasses.replace(final, epochs=1), size)
    wanted = {
        sum(steps_of(stage, sizes[recipe.name]) for stage in stages_beyond_start(recipe, baseline))
        for recipe in plan.recipes
        if recipe.name in sizes
        and (recipe.model, recipe.start, recipe.data)
        == (baseline.model, baseline.start, baseline.data)
    }
    added = sorted({math.ceil((steps - own) / an_epoch) for steps in wanted if steps > own})
    names = {epochs: f"{baseline.name}-{own + epochs * an_epoch}-steps" for epochs in added}
    controls = tuple(_longer(baseline, epochs, name) for epochs, name in names.items())
    grids = tuple(
        dataclasses.replace(
            grid,
            recipe=name,
            candidates={
                label: _longer(each, epochs, each.name.replace(baseline.name, name, 1))
                for label, each in grid.candidates.items()
            },
        )
        for epochs, name in names.items()
        for grid in plan.grids
        if grid.recipe == baseline.name
    )
    if leader is not None:
        followers |= dict.fromkeys(names.values(), leader)
    return dataclasses.replace(
        plan,
        recipes=(*plan.recipes, *controls),
        grids=(*plan.grids, *grids),
        controls=tuple(names.values()),
        followers=followers,
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


def _longer(recipe: Recipe, epochs: int, name: str) -> Recipe:
    """Return a recipe of another name whose final stage has more epochs."""
    final = recipe.final_stage
    stages = tuple(
        dataclasses.replace(stage, epochs=stage.epochs + epochs) if stage is final else stage
        for stage in recipe.stage
    )
    return dataclasses.replace(recipe, name=name, stage=stages)
