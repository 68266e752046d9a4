"""The recipes that come with this package, by name."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import NamedTuple

from aladin_network.errors import ConfigError
from aladin_training.config.toml_files import variants_of


class ShippedRecipe(NamedTuple):
    """A recipe of this package: its path's name, its first comment, and its variants by name."""

    name: str
    path: Path
    summary: str
    variants: tuple[str, ...] = ()


def recipes_folder() -> Path:
    """Return the folder of the shipped recipes: in an installed wheel, else beside the package."""
    packaged = Path(__file__).parents[1] / "recipes"
    return packaged if packaged.is_dir() else packaged.parents[1] / "recipes"


def shipped_recipes() -> list[ShippedRecipe]:
    """List the shipped recipes by name, without those that only exist to be extended."""
    folder = recipes_folder()
    found: list[ShippedRecipe] = []
    for path in sorted(folder.rglob("*.toml")):
        text = path.read_text(encoding="utf-8")
        if "name" in tomllib.loads(text):
            name = path.relative_to(folder).with_suffix("").as_posix()
            summary = text.partition("\n")[0].lstrip("# ")
            found.append(ShippedRecipe(name, path, summary, variants_of(path)))
    return found


def find_recipe(recipe: str | Path) -> Path:
    """Find a recipe by its path, or else by the name of a shipped one, such as "flickr8k".

    Raises:
        ConfigError: If there is neither such a file nor a shipped recipe of that name.
    """
    path = Path(recipe)
    if path.is_file():
        return path
    by_name = {each.name: each.path for each in shipped_recipes()}
    name = path.as_posix().removesuffix(".toml")
    if name in by_name:
        return by_name[name]
    close = difflib.get_close_matches(name, by_name, n=1) or difflib.get_close_matches(
        Path(name).name, by_name, n=1
    )
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise ConfigError(
        f"{recipe}: no such recipe, neither a file nor one of those that "
        f"`aladin train --list` names{hint}"
    )
