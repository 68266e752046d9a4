"""The files that a path stands for: braces and wildcards."""

from __future__ import annotations

import glob
import re
from pathlib import Path

from aladin_network.errors import DataError

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")


def expand(pattern: Path) -> list[Path]:
    """List the files that a path stands for; a path that exists stands for itself.

    Files of ``{00000..00099}`` and ``{a,b}`` have to exist; ``*``, ``?`` and ``[...]`` match
    existing files, sorted.
    """
    if pattern.exists():
        return [pattern]
    files: list[Path] = []
    for path in _without_braces(str(pattern)):
        found = [path] if not glob.has_magic(path) else sorted(glob.glob(path))  # noqa: PTH207
        files += map(Path, found)
        if not found or not Path(found[0]).exists():
            raise DataError(path, None, "no such file or folder")
    return files


def common_folder(pattern: Path) -> Path:
    """Return the last folder of a path before its first ``{``, ``*``, ``?`` or ``[``."""
    if pattern.exists():
        return pattern.parent
    parts = pattern.parts[:-1]
    fixed = next((n for n, part in enumerate(parts) if re.search(r"[{*?\[]", part)), len(parts))
    return Path(*parts[:fixed])


def _without_braces(pattern: str) -> list[str]:
    braces = _BRACES.search(pattern)
    if braces is None:
        return [pattern]
    before, after = pattern[: braces.start()], pattern[braces.end() :]
    return [
        path
        for word in _alternatives(braces.group(1))
        for path in _without_braces(f"{before}{word}{after}")
    ]


def _alternatives(inside: str) -> list[str]:
    numbers = _RANGE.fullmatch(inside)
    if numbers is None:
        return inside.split(",")
    first, last = numbers.groups()
    width = len(first) if first.startswith("0") else 0
    return [f"{number:0{width}d}" for number in range(int(first), int(last) + 1)]
