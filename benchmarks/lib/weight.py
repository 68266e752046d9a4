"""What each capability weighs: the lines of its folder and of the tests that mirror it.

A capability is a folder of a package: `aladin/heads` stands for aladin/aladin_network/heads and for
tests/aladin/heads. All text that people write counts; Markdown counts by words.
"""

from __future__ import annotations

import ast
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from benchmarks.lib.source_tree import PACKAGES

_PAGE = (".js", ".css", ".html")
_COUNTED = (".py", ".c", ".h", ".toml", ".json", ".yaml", ".yml", ".md", *_PAGE)
_PACKAGE_NAMES = {*PACKAGES.values(), "aladin_search"}


@dataclass
class Weight:
    """Lines of one capability.

    Attributes:
        code: Lines of Python and C, without docstrings.
        docstrings: Lines of docstrings.
        page: Lines of JavaScript, CSS and HTML.
        data: Lines of TOML, JSON and YAML.
        tests: Lines of all kinds in the folder of tests that mirrors it.
        words: Words of Markdown.
        added: Lines added since the revision that was asked for, tests included.
        removed: Lines removed since then.
    """

    code: int = 0
    docstrings: int = 0
    page: int = 0
    data: int = 0
    tests: int = 0
    words: int = 0
    added: int = 0
    removed: int = 0


def weights(root: Path, since: str | None) -> dict[str, Weight]:
    """Weigh the files of a checkout that git knows.

    Args:
        root: Root of the checkout.
        since: Revision to count changes from, or None for no changes.
    """
    found: dict[str, Weight] = defaultdict(Weight)
    for name in _git(root, "ls-files").splitlines():
        path = Path(name)
        if path.suffix in _COUNTED and (root / path).is_file():
            _add(found[capability(path)], path, (root / path).read_text(encoding="utf-8"))
    for row in _git(root, "diff", "--numstat", "--no-renames", since).splitlines() if since else ():
        added, removed, name = row.split("\t")
        if Path(name).suffix in _COUNTED:
            weight = found[capability(Path(name))]
            weight.added += int(added)
            weight.removed += int(removed)
    return dict(sorted(found.items()))


def capability(path: Path) -> str:
    """Return the name of the capability that a file belongs to."""
    folders = [part for part in path.parts[:-1] if part not in _PACKAGE_NAMES]
    if folders[:1] == ["tests"] and folders[1:2] != []:
        folders = folders[1:]
    return "/".join(folders[:2]) or "."


def _add(weight: Weight, path: Path, text: str) -> None:
    lines = len(text.splitlines())
    if path.suffix == ".md":
        weight.words += len(text.split())
    elif path.parts[0] == "tests":
        weight.tests += lines
    elif path.suffix in _PAGE:
        weight.page += lines
    elif path.suffix in (".py", ".c", ".h"):
        docstrings = _docstring_lines(text) if path.suffix == ".py" else 0
        weight.docstrings += docstrings
        weight.code += lines - docstrings
    else:
        weight.data += lines


def _docstring_lines(text: str) -> int:
    count = 0
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                count += (first.end_lineno or first.lineno) - first.lineno + 1
    return count


def _git(root: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(root), *words], check=True, capture_output=True, text=True
    ).stdout
