"""The runs that a comparison consists of."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aladin_network.errors import ConfigError
from aladin_training.config.recipe import Recipe, load_recipe


@dataclass(frozen=True)
class PlannedRun:
    """One recipe with one seed.

    Attributes:
        recipe: Recipe with the seed of this run.
        folder: Folder of the run.
    """

    recipe: Recipe
    folder: Path

    @property
    def label(self) -> str:
        """Label of the run in logs and reports, e.g. ``goal-cir-sig seed 2``."""
        return f"{self.recipe.name} seed {self.recipe.seed}"


@dataclass(frozen=True)
class ComparisonPlan:
    """A comparison.

    Attributes:
        recipes: Recipes in the order of the report; their own seeds are ignored.
        baseline: Name of the recipe that the others are compared with.
        seeds: Seeds of the runs of every recipe.
        split: Split of the data on which all runs are evaluated.
        out: Folder of the comparison.
    """

    recipes: tuple[Recipe, ...]
    baseline: str
    seeds: tuple[int, ...]
    split: str
    out: Path

    def __post_init__(self) -> None:
        """Check the names.

        Raises:
            ConfigError: If a name repeats or cannot name a folder, or if no recipe has the
                baseline's name.
        """
        if not self.recipes or not self.seeds:
            raise ConfigError("a comparison needs at least one recipe and one seed")
        names: list[str] = []
        for recipe in self.recipes:
            if recipe.name in names:
                raise ConfigError(f"two recipes are named {recipe.name!r}, expected distinct names")
            if Path(recipe.name).name != recipe.name:
                raise ConfigError(f"recipe {recipe.name!r}: expected a name without slashes")
            names.append(recipe.name)
        if self.baseline not in names:
            raise ConfigError(f"baseline {self.baseline!r} is not one of the recipes {names}")

    def run(self, recipe: Recipe, seed: int) -> PlannedRun:
        """Return the run of a recipe with a seed."""
        folder = self.out / "runs" / recipe.name / f"seed-{seed}"
        return PlannedRun(dataclasses.replace(recipe, seed=seed), folder)

    def runs(self) -> list[PlannedRun]:
        """List all runs, seed by seed: an interrupted comparison still compares all recipes."""
        return [self.run(recipe, seed) for seed in self.seeds for recipe in self.recipes]


def find_recipes(paths: Sequence[Path]) -> list[Path]:
    """List recipe files; a folder stands for the recipes in it.

    Args:
        paths: TOML files, or folders; in folders, files whose names begin with "_" are bases
            that other recipes extend, and are skipped.

    Raises:
        ConfigError: If a folder has no recipe.
    """
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


def load_plan(
    paths: Sequence[Path],
    seeds: int,
    out: Path,
    split: str = "val",
    baseline: str | None = None,
    overrides: Sequence[str] = (),
) -> ComparisonPlan:
    """Read the recipes of a comparison.

    Args:
        paths: Recipes, or folders of recipes.
        seeds: Number of runs of each recipe, with the seeds 0, 1, 2, ...
        out: Folder of the comparison.
        split: Split to evaluate on.
        baseline: Name of a recipe, or None for the first one.
        overrides: ``key=value`` settings of every recipe, see `load_recipe`.

    Raises:
        ConfigError: If a recipe cannot be read, or the recipes do not make a comparison.
    """
    if seeds < 1:
        raise ConfigError(f"seeds is {seeds}, expected at least 1")
    recipes = tuple(load_recipe(path, overrides) for path in find_recipes(paths))
    first = recipes[0].name if recipes else ""
    return ComparisonPlan(recipes, baseline or first, tuple(range(seeds)), split, out)
