"""Lends this machine's configuration of pip to a build: its certificates, indexes and wheels."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Inside the build they would only name places of this machine.
_NOT_LENT = ("cache-dir", "log", "require-virtualenv")


def lend_pip(target: Path) -> list[str]:
    """Write what pip is told here, by files and by the environment, as one file.

    Args:
        target: the file to be written.

    Returns:
        What is to be mounted, ``SOURCE:TARGET:ro``: the file, and every place that it names.
    """
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True
    ).stdout
    options: dict[str, list[str]] = {}
    # The environment wins over files, as for pip itself.
    for line in sorted(listed.splitlines(), key=lambda line: line.startswith(":env:")):
        name, _, value = line.partition("=")
        option = name.split(".", 1)[1]
        if option not in _NOT_LENT:
            options[option] = str(ast.literal_eval(value)).split()
    lines = [f"{option} = {' '.join(values)}\n" for option, values in options.items()]
    target.write_text("[global]\n" + "".join(lines), encoding="utf-8")
    places = {place for values in options.values() for value in values for place in _places(value)}
    return [f"{target}:/etc/pip.conf:ro", *(f"{place}:{place}:ro" for place in sorted(places))]


def _places(value: str) -> list[Path]:
    """Name the folders and files of this machine that a value stands for."""
    if value.startswith("file:"):
        folder = Path(unquote(urlsplit(value).path))
        # The packages of an index lie beside its pages.
        return [folder.parent]
    if re.match(r"/", value) and Path(value).exists():
        return [Path(value)]
    return []
