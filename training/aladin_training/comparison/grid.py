"""Settings of a recipe of which a comparison chooses the best, on a split that is not reported."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aladin_network.errors import ConfigError
from aladin_network.scoring.metrics import RetrievalMetrics
from aladin_training.config.recipe import Recipe, load_recipe

# Values by key, both as in ``key=value`` settings of a recipe.
Grid = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class RecipeGrid:
    """The combinations of values that one recipe can be trained with, by label."""

    recipe: str
    values: dict[str, tuple[str, ...]]
    candidates: dict[str, Recipe]

    def combination(self, label: str) -> dict[str, str]:
        """Return the value of each key in a candidate."""
        values = list(itertools.product(*self.values.values()))[list(self.candidates).index(label)]
        return dict(zip(self.values, values, strict=True))


@dataclass(frozen=True)
class Choice:
    """What was chosen for a recipe, by the own score's recalls of the finished combinations.

    `at_edge` names the keys whose chosen value is the first or last of three or more; `fold` is
    the part of the photos that the choice has not seen, 0 without cross-validation.
    """

    recipe: str
    metrics: dict[str, RetrievalMetrics]
    chosen: str | None
    at_edge: tuple[str, ...]
    fold: int = 0


def parse_grid(texts: Sequence[str]) -> Grid:
    """Read ``KEY=V1,V2,...`` for each of several keys.

    Raises:
        ConfigError: If a text has another form, or a key or a value repeats.
    """
    grid: dict[str, tuple[str, ...]] = {}
    for text in texts:
        key, _, listed = (part.strip() for part in text.partition("="))
        values = tuple(value.strip() for value in listed.split(","))
        if not key or not all(values):
            raise ConfigError(f"grid {text!r}: expected KEY=V1,V2,...")
        if key in grid or len(set(values)) < len(values):
            raise ConfigError(f"grid {text!r}: expected distinct keys and values")
        grid[key] = values
    return grid


def recipe_grid(path: Path, recipe: Recipe, settings: Sequence[str], grid: Grid) -> RecipeGrid:
    """Build the combinations of one recipe."""
    candidates: dict[str, Recipe] = {}
    for values in itertools.product(*grid.values()):
        chosen = [f"{key}={value}" for key, value in zip(grid, values, strict=True)]
        label = ", ".join(chosen) or "as it is"
        combined = load_recipe(path, [*settings, *chosen])
        # Runs of a candidate are in a folder of its name.
        name = re.sub(r"[^\w.=,-]+", "-", f"{recipe.name},{','.join(chosen)}")
        candidates[label] = dataclasses.replace(combined, name=name)
    return RecipeGrid(recipe.name, dict(grid), candidates)


def choose(grid: RecipeGrid, metrics: Mapping[str, RetrievalMetrics], fold: int = 0) -> Choice:
    """Choose the combination with the highest rsum, the first of equal ones."""
    known = {label: metrics[label] for label in grid.candidates if label in metrics}
    best = max(known, key=lambda label: known[label].rsum, default=None)
    if best is None:
        return Choice(grid.recipe, known, None, (), fold)
    at_edge = tuple(
        key
        for key, value in grid.combination(best).items()
        if len(grid.values[key]) > 2 and value in (grid.values[key][0], grid.values[key][-1])
    )
    return Choice(grid.recipe, known, best, at_edge, fold)


def best_by_value(grid: RecipeGrid, choice: Choice, key: str) -> dict[str, RetrievalMetrics]:
    """Return the recalls of the best finished combination with each value of a key, by value."""
    best: dict[str, RetrievalMetrics] = {}
    for value in grid.values[key]:
        reached = [
            metrics
            for label, metrics in choice.metrics.items()
            if grid.combination(label)[key] == value
        ]
        if reached:
            best[value] = max(reached, key=lambda metrics: metrics.rsum)
    return best
