"""The runs that a comparison consists of."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from aladin_network.errors import ConfigError
from aladin_training.comparison.grid import Choice, Grid, RecipeGrid, recipe_grid
from aladin_training.config.recipe import Recipe, load_recipe
from aladin_training.config.rules import Rule, check
from aladin_training.config.toml_files import variants_of
from aladin_training.data.selection import SELECTION
from aladin_training.tasks.joint import build_tasks

CONTROLS = "controls"  # in `--settings-as`, all baselines that `--controls` adds


@dataclass(frozen=True)
class PlannedRun:
    """One recipe with one seed; blocks of the split are ranked apart if `folds` is above 1."""

    recipe: Recipe
    folder: Path
    folds: int = 1

    @property
    def label(self) -> str:
        """Label of the run in logs and reports, e.g. ``goal-cir-sig seed 2``."""
        return f"{self.recipe.name} seed {self.recipe.seed}"


@dataclass(frozen=True)
class ComparisonPlan:
    """A comparison: every recipe with every seed, beside the baseline, on one split.

    Settings of `grids`, in the recipes' order, are chosen on the split `select`. `left_out` names
    the recipes that lack a setting; `controls` those that are the baseline with more steps.
    `followers` take over the settings that are chosen for another recipe.
    """

    recipes: tuple[Recipe, ...]
    baseline: str
    seeds: tuple[int, ...]
    split: str
    out: Path
    grids: tuple[RecipeGrid, ...] = ()
    select: str | None = None
    left_out: dict[str, tuple[str, ...]] = field(default_factory=dict)
    controls: tuple[str, ...] = ()
    folds: int = 1
    followers: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check_followers()
        check("", self._rules())

    def _rules(self) -> Iterator[Rule]:
        yield (
            not self.grids or self.select not in (None, self.split),
            f"select: expected a split other than the reported one, got {self.select!r}",
        )
        for recipe in self.recipes if self.select == SELECTION else ():
            yield (
                bool(recipe.data.selection),
                f"recipe {recipe.name!r} keeps no photos apart to select on, expected a share "
                "such as data.selection=0.125",
            )
        yield (
            bool(self.recipes and self.seeds),
            "a comparison needs at least one recipe and one seed",
        )
        names: list[str] = []
        for name in (recipe.name for recipe in self.recipes):
            yield name not in names, f"two recipes are named {name!r}, expected distinct names"
            yield Path(name).name == name, f"recipe {name!r}: expected a name without slashes"
            names.append(name)
        yield (
            self.baseline in names,
            f"baseline {self.baseline!r} is not one of the recipes {names}",
        )

    def run(self, recipe: Recipe, seed: int) -> PlannedRun:
        """Return the run of a recipe with a seed."""
        folder = self.out / "runs" / recipe.name / f"seed-{seed}"
        return PlannedRun(dataclasses.replace(recipe, seed=seed), folder, self.folds)

    def _check_followers(self) -> None:
        keys = {grid.recipe: grid.values.keys() for grid in self.grids}
        for recipe, other in self.followers.items():
            taker = self.baseline if recipe == CONTROLS else recipe  # controls have its grid
            for name in (taker, other):
                if name not in keys:
                    raise ConfigError(
                        f"settings-as {recipe}={other}: {name} is no recipe with settings to "
                        f"choose, those are {sorted(keys)}"
                    )
            if more := sorted(keys[taker] - keys[other]):
                raise ConfigError(f"settings-as {recipe}={other}: {other} has no {more[0]}")

    @property
    def shared_stages(self) -> Path:
        """Folder of the finished stages that several runs share."""
        return self.out / "stages"

    def candidate_runs(self) -> list[PlannedRun]:
        """List the runs that settings are chosen by, with the first seed."""
        seed = self.seeds[0]
        return [
            self.run(candidate, seed)
            for grid in self.grids
            if len(grid.candidates) > 1 and grid.recipe not in self.followers
            for candidate in grid.candidates.values()
        ]

    def with_choices(self, choices: Sequence[Choice]) -> ComparisonPlan:
        """Return the plan of the chosen settings; a recipe without a choice stays as it is."""
        recipes = tuple(
            recipe
            if choice.chosen is None
            else dataclasses.replace(grid.candidates[choice.chosen], name=recipe.name)
            for recipe, grid, choice in zip(self.recipes, self.grids, choices, strict=True)
        )
        return dataclasses.replace(self, recipes=recipes)

    def runs(self) -> list[PlannedRun]:
        """List all runs, seed by seed: an interrupted comparison still compares all recipes."""
        return [self.run(recipe, seed) for seed in self.seeds for recipe in self.recipes]


def find_recipes(paths: Sequence[Path]) -> list[Path]:
    """List recipe files; a folder stands for the recipes in it."""
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            found.append(path)
            continue
        inside = sorted(each for each in path.glob("*.toml") if not each.name.startswith("_"))
        if not inside:
            raise ConfigError(f"{path}: no recipe (*.toml) in this folder")
        found += inside
    return found


def _each_variant(paths: Sequence[Path]) -> Iterator[tuple[Path, list[str]]]:
    """Yield each recipe's file with the setting that chooses the variant, if it has variants."""
    for path in paths:
        variants = variants_of(path)
        yield from ((path, [f"variant={name}"]) for name in variants)
        if not variants:
            yield path, []


class Choices(NamedTuple):
    """Settings that a comparison chooses.

    Attributes:
        grid: Values to choose from; each key applies to the recipes that have it.
        select: Split to choose them on.
        followers: Recipes that take over the settings chosen for another one, with its name;
            `CONTROLS` stands for all controls that are added.
    """

    grid: Grid | None = None
    select: str | None = None
    followers: Mapping[str, str] = MappingProxyType({})


def load_plan(
    paths: Sequence[Path],
    seeds: int,
    out: Path,
    split: str = "val",
    baseline: str | None = None,
    overrides: Sequence[str] = (),
    choices: Choices | None = None,
    folds: int = 1,
) -> ComparisonPlan:
    """Read the recipes of a comparison.

    Args:
        paths: Recipes, or folders of recipes; a file with variants stands for all of them.
        seeds: Number of runs of each recipe, with the seeds 0, 1, 2, ...
        out: Folder of the comparison.
        split: Split to evaluate on.
        baseline: Name of a recipe, or None for the first one.
        overrides: ``key=value`` settings, see `load_recipe`; each applies to the recipes that have
            the key.
        choices: Settings to choose, or None if all are given.
        folds: Number of blocks of a split that are ranked apart.

    Raises:
        ConfigError: If a recipe cannot be read, no recipe has a key, or the recipes do not make a
            comparison.
    """
    if seeds < 1:
        raise ConfigError(f"seeds is {seeds}, expected at least 1")
    grid, select, followers = choices or Choices()
    lacking = _Lacking()
    recipes: list[Recipe] = []
    grids: list[RecipeGrid] = []
    for path, settings in _each_variant(find_recipes(paths)):
        recipe = load_recipe(path, settings)
        for override in overrides:
            changed = lacking.apply(path, recipe, settings, override)
            if changed is not None:
                recipe, settings = changed, [*settings, override]
        recipes.append(recipe)
        if grid:
            has = {
                key: lacking.apply(path, recipe, settings, f"{key}={values[0]}", key) is not None
                for key, values in grid.items()
            }
            own = {key: values for key, values in grid.items() if has[key]}
            grids.append(recipe_grid(path, recipe, settings, own))
    lacking.check(len(recipes))
    first = recipes[0].name if recipes else ""
    return ComparisonPlan(
        tuple(recipes),
        baseline or first,
        tuple(range(seeds)),
        split,
        out,
        tuple(grids),
        select if grids else None,
        {setting: tuple(names) for setting, names in lacking.names.items()},
        folds=folds,
        followers=dict(followers),
    )


class _Lacking:
    """Settings, with the recipes that lack their key."""

    def __init__(self) -> None:
        self.names: dict[str, list[str]] = {}
        self._reasons: dict[str, ConfigError] = {}

    def apply(
        self, path: Path, recipe: Recipe, settings: Sequence[str], override: str, key: str = ""
    ) -> Recipe | None:
        """Return a recipe with one more setting, or None if it lacks the key."""
        try:
            changed = load_recipe(path, [*settings, override])
            for stage in changed.stage:
                build_tasks(stage)
        except ConfigError as error:
            self.names.setdefault(key or override, []).append(recipe.name)
            self._reasons.setdefault(key or override, error)
            return None
        return changed

    def check(self, recipes: int) -> None:
        """Refuse settings that no recipe has."""
        for setting, names in self.names.items():
            if len(names) == recipes:
                raise ConfigError(f"no recipe takes {setting}: {self._reasons[setting]}")
