"""An evaluation as JSON and as a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.table import Table

from aladin.metrics import DirectionMetrics, RetrievalMetrics
from service.evaluation import SystemEvaluation
from service.reports.tables import MetricsRow, metrics_table


def evaluation_data(evaluation: SystemEvaluation) -> dict[str, Any]:
    """Return what ``--json`` prints: percent, ranks counted from 1, milliseconds."""
    data: dict[str, Any] = {name: _metrics_data(each) for name, each in evaluation.metrics.items()}
    for name, ranks in evaluation.cross_ranks.items():
        data[name]["mean_difference"] = _rounded(evaluation.mean_difference[name])
        data[name]["cross_rank"] = {"median": ranks.median, "mean": _rounded(ranks.mean)}
    if evaluation.folded is not None:
        data["folded"] = {
            "folds": evaluation.folded.folds,
            **{name: _metrics_data(each) for name, each in evaluation.folded.metrics.items()},
        }
    if evaluation.index is not None:
        served, gain = evaluation.index.served, evaluation.index.gain
        directions = {
            "text_to_image": served.text_to_image,
            "image_to_text": served.image_to_text,
        }
        data["two_stage_minus_matching"] = {
            "rsum": _rounded(gain.difference),
            "low": _rounded(gain.low),
            "high": _rounded(gain.high),
        }
        data["agreement"] = {
            name: _rounded(100 * report.agreement) for name, report in directions.items()
        }
        data["median_ms"] = {
            name: _rounded(report.median_ms) for name, report in directions.items()
        }
    return data


def evaluation_table(title: str, evaluation: SystemEvaluation) -> Table:
    """Lay out the metrics of an evaluation."""
    ms = None
    if evaluation.index is not None:
        served = evaluation.index.served
        ms = (served.text_to_image.median_ms + served.image_to_text.median_ms) / 2
    rows = [
        MetricsRow(name, metrics, ms if name == "two_stage" else None)
        for name, metrics in evaluation.metrics.items()
    ]
    if evaluation.folded is not None:
        rows += [
            MetricsRow(f"{name}, {evaluation.folded.folds} folds", metrics)
            for name, metrics in evaluation.folded.metrics.items()
        ]
    return metrics_table(title, rows)


def evaluation_lines(evaluation: SystemEvaluation) -> Iterator[str]:
    """Say what has no column in the table: of the pairs, and of the index if there was one."""
    for name, ranks in evaluation.cross_ranks.items():
        yield (
            f"{name}: mean difference of positive pairs to others "
            f"{evaluation.mean_difference[name]:.3f}, "
            f"cross-retrieval rank median {ranks.median:.0f}, mean {ranks.mean:.1f}"
        )
    if evaluation.index is None:
        return
    served, gain = evaluation.index.served, evaluation.index.gain
    yield (
        f"two_stage minus matching: {gain.difference:+.1f} rsum, "
        f"95 % interval {gain.low:+.1f} to {gain.high:+.1f}"
    )
    yield (
        "top 10 agrees with the exhaustive order: "
        f"text to image {100 * served.text_to_image.agreement:.1f} %, "
        f"image to text {100 * served.image_to_text.agreement:.1f} %"
    )


def _metrics_data(metrics: RetrievalMetrics) -> dict[str, Any]:
    return {
        "text_to_image": _direction_data(metrics.text_to_image),
        "image_to_text": _direction_data(metrics.image_to_text),
        "rsum": _rounded(metrics.rsum),
    }


def _direction_data(direction: DirectionMetrics) -> dict[str, float]:
    return {
        "r1": _rounded(direction.r1),
        "r5": _rounded(direction.r5),
        "r10": _rounded(direction.r10),
        "median_rank": direction.median_rank,
        "mean_rank": _rounded(direction.mean_rank),
    }


def _rounded(value: float) -> float:
    """Round to what 100,000 queries could tell apart."""
    return round(value, 3)
