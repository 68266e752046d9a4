"""Prints the figures that measure this repository's readability, with their limits.

    python -m benchmarks.house              sizes of the packages, rules, calls of two requests
    python -m benchmarks.house --list       also every place that breaks a rule
    python -m benchmarks.house --query      the functions of a text query over HTTP, in call order
    python -m benchmarks.house --photo      those of a photo that is added to the index over HTTP
    python -m benchmarks.house --explain    those of an explanation of a photo over HTTP
    python -m benchmarks.house --weight     lines of each capability; --since REV: what was changed
    python -m benchmarks.house --check      only rules and weight; exit status 1: a rule is broken

Everything outside the tests counts. The requests go through the real application, in one process,
to a small index of random photos, whose network is computed by graphs; a warm request is counted,
on all threads; then the same requests to a network that torch computes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

from benchmarks.lib.source_tree import PACKAGES, FolderCycle, Place, SourceTree
from benchmarks.lib.weight import Weight, weights

ROOT = Path(__file__).resolve().parents[1]

MAX_LOOSE_MODULES = 8
MAX_COMPLEXITY = 8
MAX_PARAMETERS = 8
MAX_FILE_LINES = 500
# A module is justified by two importers, or by this many lines.
MIN_MODULE_LINES = 80
# Plug-in folders: modules are found by their folder, so a new one is a new file there and a line in
# a registry.
PLUG_IN_FOLDERS = (
    "losses",
    "tasks",
    "encoders",
    "heads",
    "detectors",
    "commands",
    "routes",
    "routers",
)

# The official codes name the parameters of a loss; an option of a command is a parameter.
LONG_SIGNATURES = ("training/aladin_training/losses", "service/aladin_service/commands")
# A data class mirrors another that has this share of its fields, from so many fields on.
MIRRORING_SHARE = 0.75
MIRRORING_FIELDS = 4

# Numbers of exceptions to the rules; none may rise.
MAX_FOLDER_CYCLES = 0
MAX_LONG_FILES = 0
MAX_SMALL_MODULES = 0
MAX_DANGLING_ENTRIES = 0
MAX_COMPLEX_FUNCTIONS = 0
MAX_LONG_SIGNATURES = 1
MAX_CHECKS_OF_IMPLEMENTATIONS = 0
MAX_MIRRORING_CLASSES = 10


class Rule(NamedTuple):
    """A rule and the places that violate it.

    Attributes:
        name: Description of the rule.
        limit: Number of places that may break it.
        places: Descriptions of the places that break it.
    """

    name: str
    limit: int
    places: list[str]

    @property
    def holds(self) -> bool:
        """Whether the number of violations is within the limit."""
        return len(self.places) <= self.limit


class Budget(NamedTuple):
    """Maximum number of functions, and of files, that a request may run through."""

    functions: int
    files: int


class CountedRequest(NamedTuple):
    """A request whose calls are counted, by the field of `RequestCalls` that has them.

    Attributes:
        name: Description of the request.
        field: Field of `RequestCalls`.
        by_graphs: What it may run through where graphs compute the network.
        by_torch: The same where torch does.
    """

    name: str
    field: str
    by_graphs: Budget
    by_torch: Budget


# Functions and files of ours that a request runs through; a change that needs more says why.
COUNTED_REQUESTS = (
    CountedRequest("a text query over HTTP", "query", Budget(130, 42), Budget(146, 47)),
    CountedRequest("a photo into the index over HTTP", "photo", Budget(134, 44), Budget(155, 51)),
    CountedRequest("an explanation over HTTP", "explain", Budget(124, 41), Budget(125, 41)),
)


def main() -> int:
    """Print what the options request, and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="list the places that break a rule")
    parser.add_argument("--query", action="store_true", help="list the functions of a text query")
    parser.add_argument("--photo", action="store_true", help="list the functions of a new photo")
    parser.add_argument("--explain", action="store_true", help="list those of an explanation")
    parser.add_argument("--weight", action="store_true", help="print the lines of each capability")
    parser.add_argument("--since", metavar="REV", help="a revision: also print what was changed")
    parser.add_argument("--check", action="store_true", help="check the rules that need no run")
    options = parser.parse_args()
    asked = [each.field for each in COUNTED_REQUESTS if getattr(options, each.field)]
    if asked:
        _print_calls(asked)
        return 0
    if options.weight:
        _print_weights(weights(ROOT, options.since))
        return 0
    tree = SourceTree(ROOT)
    rules = static_rules(tree)
    if options.check:
        _print_weights(weights(ROOT, options.since))
        broken = [rule for rule in rules if not rule.holds]
        _print_rules(broken or rules, places=bool(broken))
        return 1 if broken else 0
    _print_sizes(tree)
    _print_rules(rules, places=options.list)
    _print_requests()
    return 0


def static_rules(tree: SourceTree) -> list[Rule]:
    """Check the sources against the rules that need no run."""
    loose = [
        f"{package}: {', '.join(Path(file).name for file in files)}"
        for package, files in tree.loose_modules().items()
        if len(files) > MAX_LOOSE_MODULES
    ]
    small = tree.small_modules(MIN_MODULE_LINES, PLUG_IN_FOLDERS)
    return [
        Rule(
            "folder cycles", MAX_FOLDER_CYCLES, [_describe(cycle) for cycle in tree.folder_cycles()]
        ),
        Rule(f"packages with more than {MAX_LOOSE_MODULES} loose modules", 0, loose),
        Rule(
            f"functions of a complexity above {MAX_COMPLEXITY}",
            MAX_COMPLEX_FUNCTIONS,
            _ruff("C901", f"lint.mccabe.max-complexity={MAX_COMPLEXITY}"),
        ),
        Rule(
            f"signatures of more than {MAX_PARAMETERS} parameters",
            MAX_LONG_SIGNATURES,
            _ruff("PLR0913", f"lint.pylint.max-args={MAX_PARAMETERS}", exempt=LONG_SIGNATURES),
        ),
        Rule(
            "isinstance of a Protocol's implementation",
            MAX_CHECKS_OF_IMPLEMENTATIONS,
            [str(place) for place in tree.checks_of_implementations()],
        ),
        Rule(
            "data classes that mirror another",
            MAX_MIRRORING_CLASSES,
            [str(place) for place in tree.mirroring_classes(MIRRORING_SHARE, MIRRORING_FIELDS)],
        ),
        Rule(
            f"files over {MAX_FILE_LINES} lines",
            MAX_LONG_FILES,
            [str(place) for place in tree.long_files(MAX_FILE_LINES)],
        ),
        Rule(
            f"modules under {MIN_MODULE_LINES} lines with one importer",
            MAX_SMALL_MODULES,
            [str(place) for place in small],
        ),
        Rule(
            "dangling docstring entries",
            MAX_DANGLING_ENTRIES,
            [str(place) for place in tree.dangling_entries()],
        ),
    ]


def _ruff(rule: str, setting: str, exempt: tuple[str, ...] = ()) -> list[str]:
    """Let ruff look for violations of a rule in the packages."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "ruff", "check", "--isolated", "--exit-zero"),
            *("--select", rule, "--config", setting, "--output-format", "json", *PACKAGES),
        ],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    found = json.loads(done.stdout)
    places = [
        Place(
            Path(each["filename"]).relative_to(ROOT).as_posix(),
            each["location"]["row"],
            each["message"],
        )
        for each in found
    ]
    return [str(place) for place in places if not place.file.startswith(exempt)]


def _describe(cycle: FolderCycle) -> str:
    imports = Counter((each.importer, each.imported) for each in cycle.imports)
    lines = [f"  {importer} imports {imported}" for importer, imported in sorted(imports)]
    return "\n    ".join([f"{cycle.parent}: {', '.join(cycle.members)}", *lines])


def _print_sizes(tree: SourceTree) -> None:
    files: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for file in tree.files:
        files[file.area] += 1
        lines[file.area] += file.lines
    loose = tree.loose_modules()
    print(f"{'':16}{'files':>7}{'lines':>9}{'loose modules':>16}")
    for area in files:
        top = str(len(loose[PACKAGES[area]])) if area in PACKAGES else ""
        print(f"{area:16}{files[area]:>7}{lines[area]:>9,}{top:>16}")
    print(f"{'sum':16}{files.total():>7}{lines.total():>9,}\n")


def _print_weights(rows: Mapping[str, Weight]) -> None:
    names = [field.name for field in fields(Weight)]
    total = Weight(*(sum(getattr(row, name) for row in rows.values()) for name in names))
    print(f"{'capability':28}" + "".join(f"{name:>12}" for name in names))
    for title, row in [*rows.items(), ("sum", total)]:
        print(f"{title:28}" + "".join(f"{getattr(row, name):>12,}" for name in names))
    print()


def _print_rules(rules: Sequence[Rule], *, places: bool) -> None:
    print(f"{'rule':52}{'places':>8}{'limit':>8}")
    for rule in rules:
        print(f"{rule.name:52}{len(rule.places):>8}{rule.limit:>8}")
        if places:
            print(
                *(f"    {place}" for place in rule.places), sep="\n", end="\n" * bool(rule.places)
            )


def _print_requests() -> None:
    from benchmarks.lib.recorded_calls import Call, record_requests

    print(f"\n{'request':44}{'functions':>10}{'limit':>7}{'files':>7}{'limit':>7}")
    for by_graphs, runtime in ((True, "graphs"), (False, "torch")):
        requests = record_requests(ROOT, by_graphs=by_graphs)
        for each in COUNTED_REQUESTS:
            calls: list[Call] = getattr(requests, each.field)
            budget = each.by_graphs if by_graphs else each.by_torch
            files = len({call.file for call in calls})
            numbers = f"{len(calls):>10}{budget.functions:>7}{files:>7}{budget.files:>7}"
            print(f"{f'{each.name}, {runtime}':44}{numbers}")


def _print_calls(requests: Sequence[str]) -> None:
    from benchmarks.lib.recorded_calls import Call, record_requests

    recorded = record_requests(ROOT)
    for request in requests:
        calls: list[Call] = getattr(recorded, request)
        for number, call in enumerate(calls, 1):
            print(f"{number:4}  {'  ' * call.depth}{call.name}  {call.file}:{call.line}")
        print(f"{len(calls)} functions in {len({call.file for call in calls})} files")


if __name__ == "__main__":
    sys.exit(main())
