"""Runs the benchmarks one after the other, and writes a report with tables and plots.

    python -m benchmarks.search.report [--items 10000 100000] [--out benchmarks/results] [--quick]
    make bench                  (BENCH_ITEMS="10000 100000 1000000" for the full scale)

In --out: NAME.json of every command as it printed it, report.md with all tables, scale.png with
latency, memory, disk and building time over the number of photos, and recall.png with what first
stages find in which time. Every command can be run alone. A command that fails is named in the
report, the others still run, and the exit status is 1.

Ten and a hundred thousand photos take some 20 minutes on two cores, a million 20 more.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

# Lines in each part of the plot over the number of photos: name of a figure, and its label.
_LATENCY = {
    "p95_ms": "search, 95th percentile",
    "p50_ms": "search, median",
    "retrieve_p50_ms": "retrieve, median",
    "rerank_p50_ms": "rerank, median",
    "exhaustive_ms": "exhaustive alignment",
}
_BYTES = {
    "build_rss_bytes": "memory, building",
    "search_rss_bytes": "memory, searching",
    "disk_bytes": "disk",
}

DEFAULT_ITEMS = (10_000, 100_000)
DEFAULT_OUT = Path("benchmarks/results")
# The other engines store float32 tokens: a million photos would need 120 GB of disk.
_MOST_FOR_ENGINES = 100_000


def draw_scale(figures: Sequence[dict[str, Any]], file: Path) -> None:
    """Plot the results of `benchmarks.search.scale` over the number of photos.

    Args:
        figures: Figures for each number of photos; if empty, nothing is plotted.
        file: PNG file to write.
    """
    if not figures:
        return
    ordered = sorted(figures, key=lambda each: each["items"])
    items = [each["items"] for each in ordered]
    figure, (latency, size, building) = _panels(3)
    for name, label in _LATENCY.items():
        latency.plot(items, [each[name] for each in ordered], marker="o", label=label)
    latency.set_ylabel("ms a query")
    for name, label in _BYTES.items():
        size.plot(items, [each[name] / 2**30 for each in ordered], marker="o", label=label)
    size.set_ylabel("GiB")
    for stage in ordered[-1]["build_s"]:
        seconds = [each["build_s"][stage] for each in ordered]
        building.plot(items, seconds, marker="o", label=stage)
    building.set_ylabel("seconds of building")
    for axes in (latency, size, building):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("photos")
        axes.legend()
    figure.savefig(file, format="png", dpi=120)


def draw_recall(figures: Sequence[dict[str, Any]], file: Path) -> None:
    """Plot the results of `benchmarks.search.ann_factories`: recall over time by first stage.

    Args:
        figures: Figures for each number of photos, with one panel each; if empty, nothing is
            plotted.
        file: PNG file to write.
    """
    if not figures:
        return
    figure, panels = _panels(len(figures))
    for axes, each in zip(panels, figures, strict=True):
        for stage in each["factories"]:
            points = stage["curve"]
            times = [point["search_ms"] for point in points]
            recalls = [point["recall"] for point in points]
            axes.plot(times, recalls, marker="o", label=stage["factory"])
        axes.set_xscale("log")
        axes.set_xlabel("ms of the first stage, median")
        axes.set_ylabel("share of the exact nearest found")
        axes.set_title(f"{each['items']:,} photos")
        axes.legend()
    figure.savefig(file, format="png", dpi=120)


def _panels(count: int) -> tuple[Any, list[Any]]:
    # Imported here: only plots need it, and it takes a second.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6 * count, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


class Section(NamedTuple):
    """One command of the report.

    Attributes:
        name: Name of its file.
        module: Module below `benchmarks` that is run. Its `print_table` shows what it printed as
            JSON.
        arguments: Arguments of the command.
    """

    name: str
    module: str
    arguments: list[str]


def main() -> int:
    """Run all commands, write the report, and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, nargs="+", default=DEFAULT_ITEMS, help="photos")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="folder of the report")
    parser.add_argument("--quick", action="store_true", help="the quick form of every command")
    options = parser.parse_args()
    chosen = quick_sections() if options.quick else sections(options.items)
    results, failed = run_all(chosen, options.out)
    write_report(chosen, results, options.out)
    scales = [results[each.name] for each in chosen if each.name.startswith("scale")]
    draw_scale([figures for figures in scales if figures is not None], options.out / "scale.png")
    stages = [results[each.name] for each in chosen if each.name.startswith("ann")]
    draw_recall([figures for figures in stages if figures is not None], options.out / "recall.png")
    print(f"report: {options.out / 'report.md'}")
    for name in failed:
        print(f"failed: {name}", file=sys.stderr)
    return 1 if failed else 0


def sections(items: Sequence[int]) -> list[Section]:
    """List the commands for some numbers of photos."""
    compared = [count for count in items if count <= _MOST_FOR_ENGINES]
    return [
        *(Section(f"scale-{count}", "search.scale", ["--items", str(count)]) for count in items),
        *(
            Section(f"ann-{count}", "search.ann_factories", ["--items", str(count)])
            for count in items
        ),
        Section("rerank", "search.rerank", []),
        *(
            Section(f"engines-{count}", "engines.comparison", ["--items", str(count)])
            for count in compared
        ),
    ]


def quick_sections() -> list[Section]:
    """List the commands in their quick form."""
    modules = {
        "scale": "search.scale",
        "ann": "search.ann_factories",
        "rerank": "search.rerank",
        "engines": "engines.comparison",
    }
    return [Section(f"{name}-quick", module, ["--quick"]) for name, module in modules.items()]


def run_all(chosen: Sequence[Section], out: Path) -> tuple[dict[str, Any], list[str]]:
    """Run commands one after the other.

    Args:
        chosen: The commands to run.
        out: Folder for the output of the commands.

    Returns:
        What each has printed, None where it failed; and the names of those that failed.
    """
    out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    for section in chosen:
        print(f"benchmarks.{section.module} {' '.join(section.arguments)}", flush=True)
        command = [sys.executable, "-m", f"benchmarks.{section.module}", "--json"]
        done = subprocess.run([*command, *section.arguments], stdout=subprocess.PIPE, text=True)
        results[section.name] = json.loads(done.stdout) if done.returncode == 0 else None
        if done.returncode == 0:
            (out / f"{section.name}.json").write_text(done.stdout, encoding="utf-8")
            print(table(section, results[section.name]), flush=True)
    return results, [name for name, figures in results.items() if figures is None]


def table(section: Section, figures: Any) -> str:
    """Return the table that a command prints without ``--json``."""
    module = importlib.import_module(f"benchmarks.{section.module}")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        module.print_table(figures)
    return printed.getvalue()


def write_report(chosen: Sequence[Section], results: dict[str, Any], out: Path) -> None:
    """Write all tables to one file."""
    parts = ["# Measured on this machine\n"]
    for section in chosen:
        command = " ".join(["python -m", f"benchmarks.{section.module}", *section.arguments])
        figures = results[section.name]
        shown = "It failed." if figures is None else f"```\n{table(section, figures)}```"
        parts.append(f"## `{command}`\n\n{shown}\n")
    (out / "report.md").write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
