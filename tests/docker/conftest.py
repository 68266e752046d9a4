"""What the tests of the container files read."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
# ``${NAME:-value}``, or ``${NAME:?message}`` for one that has to be set.
VARIABLE = re.compile(r"\$\{([A-Z_]+)(?::-([^}]*)|:\?[^}]*)?\}")
# What these tests set where a file insists on a value.
REQUIRED = {"ENGINE_PASSWORD": "engine-secret"}

Tree = dict[str, Any]


def merged(base: Tree, more: Tree) -> Tree:
    """A file on top of another, as far as these files need it: commands are replaced."""
    result = deepcopy(base)
    for name, value in more.items():
        before = result.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            result[name] = merged(before, value)
        elif name == "volumes" and isinstance(before, list):
            result[name] = before + value
        else:
            result[name] = value
    return result


def read_compose(name: str) -> Tree:
    """Read a file as it is without a `.env`, with what its services take from another file's."""
    text = (ROOT / "docker" / name).read_text(encoding="utf-8")
    tree: Tree = yaml.safe_load(
        VARIABLE.sub(lambda found: found[2] or REQUIRED.get(found[1], ""), text)
    )
    for service, own in tree["services"].items():
        if "extends" in own:
            source = own.pop("extends")
            base = read_compose(source["file"])["services"][source["service"]]
            tree["services"][service] = merged(base, own)
    return tree


@pytest.fixture(scope="session")
def docker() -> Path:
    """The folder of the files."""
    return ROOT / "docker"


@pytest.fixture(scope="session")
def compose() -> Callable[..., Tree]:
    """Reads compose files, each on top of those before: ``compose("compose.yaml", more)``."""

    def read(name: str, *on_top: str) -> Tree:
        tree = read_compose(name)
        for more in on_top:
            tree = merged(tree, read_compose(more))
        return tree

    return read


@pytest.fixture(scope="session")
def variables() -> Callable[[str], dict[str, str]]:
    """Returns the variables of a text and the values that they have by themselves."""
    return lambda text: dict(VARIABLE.findall(text))


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the sources."""
    return ROOT


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Loads a program of docker/ as a module: ``program("host")``."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, ROOT / "docker" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return load
