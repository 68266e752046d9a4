"""Recipes by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from aladin_network.errors import ConfigError
from aladin_training.config.recipe import load_recipe
from aladin_training.config.shipped import find_recipe, recipes_folder, shipped_recipes


def test_every_shipped_recipe_has_a_name_and_a_summary() -> None:
    recipes = {each.name: each for each in shipped_recipes()}
    assert {"demo", "flickr8k", "finetune-clip", "compare/mh"} <= set(recipes)
    for each in recipes.values():
        assert each.summary
        assert not each.summary.startswith("#")
        assert each.path == recipes_folder() / f"{each.name}.toml"


def test_recipes_that_are_only_extended_have_no_name() -> None:
    names = {each.name for each in shipped_recipes()}
    assert names.isdisjoint({"flickr8k-base", "aladin-base", "pair-base"})


@pytest.mark.parametrize("name", ["demo", "demo.toml"])
def test_a_name_finds_its_recipe(name: str) -> None:
    assert load_recipe(find_recipe(name)).name == "demo"


def test_a_file_takes_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "demo"
    own.write_text("# mine\n")
    monkeypatch.chdir(tmp_path)
    assert find_recipe("demo") == Path("demo")
    assert find_recipe(own) == own


def test_an_unknown_name_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"flikr8k: no such recipe.*did you mean 'flickr8k'"):
        find_recipe("flikr8k")
    # As in a checkout, from where a wheel was installed.
    with pytest.raises(ConfigError, match="did you mean 'flickr8k'"):
        find_recipe("elsewhere/recipes/flickr8k.toml")
    with pytest.raises(ConfigError, match=r"`aladin train --list` names$"):
        find_recipe("/nowhere/x.toml")
