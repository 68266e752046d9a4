"""Compares `aladin index plan` with measurements of real indexes of synthetic photos.

    python -m benchmarks.search.plan_check [--items 10000 100000 1000000] [--out FILE]
    [--constants FILE]
    python -m benchmarks.search.plan_check --figures SCALE.json ...

Runs `python -m benchmarks.search.scale` for each size, or reads its JSON output, and prints planned
and measured values side by side: disk and memory, seconds to pack, write and index, p50 and p95 of
searches. The measurements are written to --out in the form of
`index/aladin_index/capacity/measurements.json`, which keeps the sizes that are not measured now.
The exit status is 1 if a planned value is off by more than a quarter.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aladin_index.capacity.constants import (
    PACKAGED_CONSTANTS,
    MeasuredRun,
    Measurements,
    read_constants,
    read_measurements,
)
from aladin_index.capacity.plan import Compared, compare
from aladin_network.config import dump_config
from aladin_network.files import write_json
from benchmarks.lib.output import print_rows
from benchmarks.search.constants import this_machine
from benchmarks.search.scale import effort_for, measure

ITEMS = (10_000, 100_000)


def main() -> int:
    """Run the measurements, print, and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, nargs="+", default=ITEMS, help="numbers of photos")
    parser.add_argument(
        "--figures", type=Path, nargs="+", help="output of benchmarks.search.scale --json"
    )
    parser.add_argument(
        "--constants", type=Path, default=PACKAGED_CONSTANTS, help="file of constants"
    )
    parser.add_argument("--out", type=Path, help="file to write the measurements to")
    options = parser.parse_args()
    if options.figures is None:
        runs = [run_of(scale_figures(items)) for items in options.items]
    else:
        runs = [run_of(json.loads(path.read_text())) for path in options.figures]
    measurements = Measurements(machine=this_machine(), runs=runs)
    if options.out is not None:
        if options.out.exists():
            measurements = with_runs(read_measurements(options.out), measurements)
        write_json(options.out, dump_config(measurements))
    compared = compare(read_constants(options.constants), measurements)
    print_table(compared)
    return 0 if all(each.within for each in compared) else 1


def scale_figures(items: int) -> dict[str, Any]:
    """Build and search one index."""
    print(f"measuring {items:,} photos", file=sys.stderr, flush=True)
    # Fidelity is not part of a plan, and would take most of the time.
    effort = effort_for(items)._replace(
        recall_queries=2, fidelity_queries=2, exhaustive_runs=1, throughput_s=0.5
    )
    return measure(items, "int8", "auto", effort)


def run_of(figures: dict[str, Any]) -> MeasuredRun:
    """Extract the values that a plan predicts from the figures of `benchmarks.search.scale`."""
    seconds = figures["build_s"]
    return MeasuredRun(
        command=f"python -m benchmarks.search.scale --items {figures['items']} --json",
        measured_on=datetime.now(UTC).date().isoformat(),
        items=figures["items"],
        token_dtype=figures["tokens"],
        disk_bytes=figures["disk_bytes"],
        serving_bytes=figures["search_rss_bytes"],
        building_bytes=figures["build_rss_bytes"],
        build_s=seconds["pack"] + seconds["write"] + seconds["ann"],
        p50_s=figures["p50_ms"] / 1000,
        p95_s=figures["p95_ms"] / 1000,
    )


def with_runs(before: Measurements, now: Measurements) -> Measurements:
    """Replace the runs of the same sizes.

    Those of another machine are dropped: a plan is made of the constants of one.
    """
    measured = {each.items for each in now.runs}
    kept = [each for each in before.runs if each.items not in measured]
    if before.machine != now.machine:
        kept = []
    return replace(now, runs=sorted([*kept, *now.runs], key=lambda each: each.items))


def print_table(compared: Sequence[Compared]) -> None:
    """Print planned and measured values side by side, in Markdown."""
    rows = [
        [
            each.name,
            f"{each.items:,}",
            f"{each.planned:.4g}",
            f"{each.measured:.4g}",
            f"{each.ratio:.2f}",
        ]
        for each in compared
    ]
    print_rows(["", "photos", "planned", "measured", "planned / measured"], rows)


if __name__ == "__main__":
    sys.exit(main())
