"""Messages of the packages below the command line name options together with their command.

A message is raised at several doors, and most have other options, or none.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from aladin_service.cli import app

ROOT = Path(__file__).parents[3]
PACKAGES = ("aladin/aladin_network", "index/aladin_index", "training/aladin_training")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
COMMAND = re.compile(r"`?aladin ((?:index |convert |export |key )?[a-z]+)")
# Modules whose messages come from one command.
ONLY_OF = {
    "index/aladin_index/devices/card.py": "index build",
    "index/aladin_index/devices/search_device.py": "serve",  # and whatever else searches
    "index/aladin_index/upgrade": "index upgrade",
    "index/aladin_index/settings.py": "index build",  # its descriptions are its options' help
    "index/aladin_index/generations/info.py": "index build",
    "index/aladin_index/measure/tune.py": "index tune",
    "index/aladin_index/measure/encoding.py": "index tune",
    "index/aladin_index/cluster/ray_encoding.py": "index build",
    "training/aladin_training/comparison": "compare",
}
# Options of other programs.
FOREIGN = {
    "--sort": "tar",
    "--extra-index-url": "pip",
    "--local-dir": "hf",
    "--include": "hf",
}


def options_of(command: str) -> set[str]:
    found: Any = typer.main.get_command(app)
    for word in command.split():
        found = found.commands[word]
    return {name for each in found.params for name in (*each.opts, *each.secondary_opts)}


def messages(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The texts of a module other than docstrings, those of f-strings with their values as {}."""
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            inside.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            inside |= {id(each) for each in ast.walk(node) if each is not node}
            parts = [
                str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
            ]
            yield node.lineno, "".join(parts)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in inside
        ):
            yield node.lineno, node.value


def named_options() -> Iterator[tuple[str, int, str]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for line, text in messages(ast.parse(path.read_text(encoding="utf-8"))):
                if OPTION.search(text):
                    yield str(path.relative_to(ROOT)), line, text


def test_an_option_is_named_with_a_command_that_has_it() -> None:
    assert all(map(options_of, ONLY_OF.values()))
    faults: list[str] = []
    for place, line, text in named_options():
        own = next((name for start, name in ONLY_OF.items() if place.startswith(start)), None)
        for option in OPTION.findall(text):
            before = COMMAND.findall(text[: text.index(option)])
            command = before[-1] if before else own
            known = set[str]() if command is None else options_of(command)
            if option not in known and option not in FOREIGN:
                faults.append(f"{place}:{line}: {option} of {command}: {text!r}")
    assert not faults, "\n".join(faults)
