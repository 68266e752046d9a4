"""The table of experiments in training/PAPERS.md, and its commands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

from aladin_training.config.shipped import recipes_folder

ROOT = recipes_folder().parents[1]
PAPERS = recipes_folder() / "papers"


class Experiment(NamedTuple):
    """A line: paper, table or figure, the command here, what that needs or why there is none."""

    paper: str
    name: str
    command: str | None
    remark: str


def experiments() -> list[Experiment]:
    """Read the table of training/PAPERS.md: one command in backticks, or "none"."""
    text = (ROOT / "training" / "PAPERS.md").read_text(encoding="utf-8")
    section = text.partition("\n### 3.7 ")[2].partition("\n##")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    found: list[Experiment] = []
    for line in lines[1:]:
        paper, name, cell, remark = (each.strip() for each in line.strip("|").split("|"))
        command = re.fullmatch(r"`([^`]+)`", cell)
        if command is None and cell != "none":
            raise ValueError(f"{name}: expected a command in backticks or none, got {cell!r}")
        found.append(Experiment(paper, name, command and command[1], remark))
    return found


def commands() -> list[str]:
    """List the training commands of the table, those of its remarks as well."""
    return [
        command
        for each in experiments()
        for command in re.findall(
            r"`(aladin (?:train|compare) [^`]*)`", f"`{each.command}` {each.remark}"
        )
    ]


def recipes_in(command: str) -> list[Path]:
    return [ROOT / word for word in shlex.split(command) if word.startswith("training/recipes/")]
