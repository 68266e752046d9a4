"""What the tests of the container files read."""

from __future__ import annotations

import functools
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
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


@functools.cache
def read_compose(name: str) -> Tree:
    """Read a file as it is without a `.env`, with what its services take from another file's."""
    text = (DOCKER / name).read_text(encoding="utf-8")
    tree: Tree = yaml.safe_load(
        VARIABLE.sub(lambda found: found[2] or REQUIRED.get(found[1], ""), text)
    )
    for service, own in tree["services"].items():
        if "extends" in own:
            source = own.pop("extends")
            base = read_compose(source["file"])["services"][source["service"]]
            tree["services"][service] = merged(base, own)
    return tree


def compose(name: str, *on_top: str) -> Tree:
    """Read compose files, each on top of those before: ``compose("compose.yaml", more)``."""
    return deepcopy(functools.reduce(merged, map(read_compose, [name, *on_top])))
