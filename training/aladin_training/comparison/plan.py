"""Which runs a comparison consists of."""

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
        recipe: with this run's seed.
        folder: of the run.
    """

    recipe: Recipe
    folder: Path

    @property
    def label(self) -> str:
        """Name the run for people, e.g. ``goal-cir-sig seed 2``."""
        return f"{self.recipe.name} seed {self.recipe.seed}"


@dataclass(frozen=True)
class Plan:
    """A comparison.

    Attributes:
        recipes: in the order of the report; their own seeds play no part.
        baseline: name of the recipe that the others are compared with.
        seeds: of the runs of every recipe.
        split: of the data, on which all runs are evaluated.
        out: folder of the comparison.
    """

    recipes: tuple[Recipe, ...]
    baseline: str
    seeds: tuple[int, ...]
    split: str
    out: Path

    def __post_init__(self) -> None:
        """Check the names.

        Raises:
            ConfigError: a name repeats or cannot name a folder, or the baseline is not among them.
        """
        if not self.recipes or not self.seeds:
            raise ConfigError("a comparison needs at least one recipe and one seed")
        names: list[str] = []
        for recipe in self.recipes:
            if recipe.name in names:
                raise ConfigError(f"two recipes are named {recipe.name!r}; names tell runs apart")
            if Path(recipe.name).name != recipe.name:
                raise ConfigError(f"recipe {recipe.name!r}: a name of a folder is expected")
            names.append(recipe.name)
        if self.baseline not in names:
            raise ConfigError(f"baseline {self.baseline!r} is none of the recipes {names}")

    def run(self, recipe: Recipe, seed: int) -> PlannedRun:
        """Return the run of a recipe with a seed."""
        folder = self.out / "runs" / recipe.name / f"seed-{seed}"
        return PlannedRun(dataclasses.replace(recipe, seed=seed), folder)

    def runs(self) -> list[PlannedRun]:
        """List all runs seed by seed: a comparison that is cut short still compares all recipes."""
        return [self.run(recipe, seed) for seed in self.seeds for recipe in self.recipes]


def find_recipes(paths: Sequence[Path]) -> list[Path]:
    """List recipe files; a folder stands for its own.

    Args:
        paths: TOML files, or folders, whose files beginning with "_" are bases to build on.

    Raises:
        ConfigError: a folder has no recipe.
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
) -> Plan:
    """Read the recipes of a comparison.

    Args:
        paths: recipes, or folders of recipes.
        seeds: number of runs of each recipe, with the seeds 0, 1, 2, ...
        out: folder of the comparison.
        split: to evaluate on.
        baseline: name of a recipe; None: the first one.
        overrides: ``key=value`` settings of every recipe, see `load_recipe`.

    Raises:
        ConfigError: a recipe cannot be read, or the recipes do not make a comparison.
    """
    if seeds < 1:
        raise ConfigError(f"seeds is {seeds}, expected at least 1")
    recipes = tuple(load_recipe(path, overrides) for path in find_recipes(paths))
    first = recipes[0].name if recipes else ""
    return Plan(recipes, baseline or first, tuple(range(seeds)), split, out)
