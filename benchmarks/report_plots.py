"""Plots of the report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Lines of each part of the plot over the number of photos: a figure's name, and its label.
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


def draw_scale(figures: Sequence[dict[str, Any]], file: Path) -> None:
    """Draw what `benchmarks.scale` found over the number of photos.

    Args:
        figures: of each number of photos; none draws nothing.
        file: a PNG.
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
    """Draw what `benchmarks.ann_factories` found: recall over time, a line a first stage.

    Args:
        figures: of each number of photos, a panel each; none draws nothing.
        file: a PNG.
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
