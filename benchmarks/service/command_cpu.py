"""Processor seconds (user and system) of short commands; the least of several runs of each.

    python -m benchmarks.service.command_cpu [--index INDEX] [--runs 5] [--json]

Without --index, a search is not measured. Importing torch is the floor of every search.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.lib.output import figures_parser, print_figures

_SERVICE = "http://127.0.0.1:1"  # nothing listens there: the client's own time


def processor_seconds(words: Sequence[str], runs: int) -> float:
    """Run a command several times and return the least processor seconds of a run.

    Args:
        words: Words of the command.
        runs: Number of runs.
    """
    least = float("inf")
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(words, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        least = min(least, spent)
    return round(least, 3)


def main() -> None:
    """Measure the commands and print their seconds."""
    parser = figures_parser(__doc__)
    parser.add_argument("--index", type=Path, help="index to search for a red circle")
    parser.add_argument("--runs", type=int, default=5, help="runs of each command")
    options = parser.parse_args()
    python, aladin = [sys.executable], [sys.executable, "-m", "aladin_service"]
    commands = {
        "aladin --help": [*aladin, "--help"],
        "aladin key list": [*aladin, "key", "list", "--keys", "/nowhere/keys.json"],
        "aladin search --url": [*aladin, "search", "--url", _SERVICE, "a red circle"],
        "aladin search, a wrong path": [*aladin, "search", "/nowhere", "a red circle"],
        "import aladin_search": [*python, "-c", "import aladin_search"],
        "import torch": [*python, "-c", "import torch"],
    }
    if options.index is not None:
        commands["aladin search"] = [*aladin, "search", str(options.index), "a red circle"]
    figures = {name: processor_seconds(words, options.runs) for name, words in commands.items()}
    print_figures(figures, as_json=options.json)


if __name__ == "__main__":
    main()
