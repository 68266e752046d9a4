"""The runs that a comparison consists of."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from aladin_network.errors import ConfigError
from aladin_training.comparison.grid import Choice, Grid, RecipeGrid, recipe_grid
from aladin_training.config.recipe import Recipe, load_recipe
from aladin_training.config.rules import Rule, check
from aladin_training.config.toml_files import variants_of
from aladin_training.data.selection import SELECTION
from aladin_training.tasks.joint import build_tasks


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
    the recipes that lack a setting; `controls` those that are another one with more steps, with
    its name. With `cross` above 1, the photos of the training and validation splits are dealt into
    so many folds: seed s trains on all but fold s modulo `cross`, which takes the validation
    split's place. `settled` holds the recipes with the settings that were chosen, by name and fold.
    """

    recipes: tuple[Recipe, ...]
    baseline: str
    seeds: tuple[int, ...]
    split: str
    out: Path
    grids: tuple[RecipeGrid, ...] = ()
    select: str | None = None
    left_out: dict[str, tuple[str, ...]] = field(default_factory=dict)
    controls: dict[str, str] = field(default_factory=dict)
    folds: int = 1
    cross: int = 1
    settled: dict[tuple[str, int], Recipe] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check("", self._rules())

    def _rules(self) -> Iterator[Rule]:
        yield (
            not self.grids or self.select not in (None, self.split),
            f"select: expected a split other than the reported one, got {self.select!r}",
        )
        for recipe in self.recipes if self.cross > 1 else ():
            yield (
                bool(recipe.data.selection) and recipe.data.validation_split == self.split,
                f"recipe {recipe.name!r}: cross-validation tests on folds in the place of the "
                f"validation split and chooses on others, expected data.selection and the split "
                f"{recipe.data.validation_split!r}, got {recipe.data.selection} and {self.split!r}",
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
        fold = seed % self.cross
        chosen = self.settled.get((recipe.name, fold), recipe)
        data = chosen.data
        if self.cross > 1:
            data = dataclasses.replace(data, folds=self.cross, fold=fold)
        return PlannedRun(dataclasses.replace(chosen, seed=seed, data=data), folder, self.folds)

    @property
    def shared_stages(self) -> Path:
        """Folder of the finished stages that several runs share."""
        return self.out / "stages"

    def candidate_runs(self) -> list[PlannedRun]:
        """List the runs that settings are chosen by, with the first seed, or that of each fold."""
        return [
            self.run(candidate, seed)
            for seed in self.seeds[: self.cross]
            for grid in self.grids
            if len(grid.candidates) > 1
            for candidate in grid.candidates.values()
        ]

    def with_choices(self, choices: Sequence[Choice]) -> ComparisonPlan:
        """Return the plan of the chosen settings; a recipe without a choice stays as it is."""
        grids = {grid.recipe: grid for grid in self.grids}
        settled = {
            (each.recipe, each.fold): dataclasses.replace(
                grids[each.recipe].candidates[each.chosen], name=each.recipe
            )
            for each in choices
            if each.chosen is not None
        }
        recipes = tuple(settled.get((each.name, 0), each) for each in self.recipes)
        return dataclasses.replace(self, recipes=recipes, settled=settled)

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
    """

    grid: Grid | None = None
    select: str | None = None


class Reported(NamedTuple):
    """Photos that a comparison reports on.

    Attributes:
        split: Split to evaluate on.
        folds: Number of blocks of it that are ranked apart.
        cross: Number of folds of the training and validation photos, see `ComparisonPlan`.
    """

    split: str = "val"
    folds: int = 1
    cross: int = 1


def load_plan(
    paths: Sequence[Path],
    seeds: int,
    out: Path,
    reported: Reported | None = None,
    baseline: str | None = None,
    overrides: Sequence[str] = (),
    choices: Choices | None = None,
    first_seed: int = 0,
) -> ComparisonPlan:
    """Read the recipes of a comparison.

    Args:
        paths: Recipes, or folders of recipes; a file with variants stands for all of them.
        seeds: Number of runs of each recipe, with successive seeds.
        out: Folder of the comparison.
        reported: Photos to report on.
        baseline: Name of a recipe, or None for the first one.
        overrides: ``key=value`` settings, see `load_recipe`; each applies to the recipes that have
            the key.
        choices: Settings to choose, or None if all are given.
        first_seed: Seed of each recipe's first run.

    Raises:
        ConfigError: If a recipe cannot be read, no recipe has a key, or the recipes do not make a
            comparison.
    """
    if seeds < 1:
        raise ConfigError(f"seeds is {seeds}, expected at least 1")
    grid, select = choices or Choices()
    split, folds, cross = reported or Reported()
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
        tuple(range(first_seed, first_seed + seeds)),
        split,
        out,
        tuple(grids),
        select if grids else None,
        {setting: tuple(names) for setting, names in lacking.names.items()},
        folds=folds,
        cross=cross,
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
