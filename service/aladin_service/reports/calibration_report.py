"""Output of a calibration: JSON data, tables and reliability diagrams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from aladin_network.calibration.calibration import Calibration
from aladin_network.calibration.measures import (
    BINS,
    CalibrationFigures,
    DirectionFigures,
    Estimate,
    NoMatchKind,
    ProbabilityFigures,
    Reliability,
)
from aladin_service.measure.calibrate import CalibrateReport
from aladin_service.reports.index_facts import lengths_fact, unreliable_kinds
from aladin_service.reports.index_plot import check_plot, save_plot

STAGES = {"aligned": "both stages", "matching": "matching alone"}
QUESTIONS = {"hits": "hits of page 1", "best_hit": "best hit", "match": "match at all"}
_KINDS: dict[NoMatchKind, str] = {
    "hard": "photo taken out",
    "near": "one word exchanged",
    "far": "foreign subject",
}
_THRESHOLDS = {
    "probability": "match probability",
    "cosine": "best cosine",
    "alignment": "best alignment score",
    "alignment_per_word": "best alignment per word",
}


def calibration_data(report: CalibrateReport) -> dict[str, Any]:
    """Return the data that ``--json`` prints: fractions of 1, 95 % intervals."""
    calibration = report.calibration
    return {
        "fitted_on": _without_sample(asdict(calibration.fitted_on)),
        "figures": _rounded(asdict(calibration.figures)),
        "short_texts": _short_data(calibration),
        "features": {
            f"{direction}, {stage}": {
                "hit": [term.feature for term in getattr(models, stage).hit.terms],
                "match": [term.feature for term in getattr(models, stage).match.terms],
            }
            for direction, models in (
                ("text_to_image", calibration.text_to_image),
                ("image_to_text", calibration.image_to_text),
            )
            for stage in STAGES
        },
        "generation": report.generation,
    }


def _short_data(calibration: Calibration) -> dict[str, Any] | None:
    """Return number, lengths and figures of the short texts, or None."""
    short = calibration.short_texts
    if short is None:
        return None
    figures: dict[str, Any] = _rounded(asdict(short.figures))
    return {"texts": short.texts, "lengths": asdict(short.lengths), "figures": figures}


def calibration_tables(calibration: Calibration) -> list[Table]:
    """Build tables of how reliable the probabilities and the detection of "no match" are."""
    tables: list[Table] = []
    for direction, figures in of_kinds(calibration).items():
        tables += [_reliability_table(direction, figures), _auroc_table(direction, figures)]
    return [*tables, _mean_auroc_table(calibration.figures)]


def calibration_lines(report: CalibrateReport, stored_in: Path) -> Iterator[str]:
    """Describe the data behind the figures, and where the calibration is stored."""
    calibration = report.calibration
    fitted_on, figures = calibration.fitted_on, calibration.figures
    searched = "its own photos and captions" if fitted_on.searched == "split" else "the index"
    split = "all of it" if fitted_on.split is None else f"split {fitted_on.split}"
    yield (
        f"fitted on {fitted_on.photos} photos and {fitted_on.texts} captions of {fitted_on.data}, "
        f"{split}, which searched {searched}; a match is expected for {fitted_on.prior:.0%}"
    )
    if (short := calibration.short_texts) is not None:
        yield (
            f"short texts: {short.texts} nouns and noun phrases of the captions, "
            f"{short.lengths.low} to {short.lengths.high} tokens; right are the photos that the "
            "words hold for"
        )
    yield f"answers to texts of other lengths are not judged: {lengths_fact(fitted_on)}"
    yield (
        f"figures: {figures.measured_on}, {figures.photos} photos; ECE over {BINS} bins of equal "
        "mass, and of equal width; [95 % interval], photos drawn with replacement"
    )
    for direction, of_direction in of_kinds(calibration).items():
        said = of_direction.aligned.no_match
        shares = ", ".join(f"{_KINDS[kind]} {share:.1%}" for kind, share in said.kinds.items())
        yield (
            f"{direction}: a match probability below {said.below:.3f} says that nothing matches: "
            f"to {said.detected:.1%} of the queries without a match"
            + (f" ({shares})" if shares else "")
            + f", and to {said.false_alarms:.1%} of those with one"
        )
    for direction, reason in unreliable_kinds(calibration):
        yield f"{direction}: nothing is said of answers, and probabilities are not shown: {reason}"
    if report.generation is None:
        yield f"{stored_in}: calibrated; indexes that are built from now on take it over"
    else:
        yield f"{stored_in}: calibrated, generation {report.generation}"


def of_directions(calibration: Calibration) -> Mapping[str, DirectionFigures]:
    """Return the figures by the readable name of the direction."""
    figures = calibration.figures
    return {"text to image": figures.text_to_image, "image to text": figures.image_to_text}


def of_kinds(calibration: Calibration) -> Mapping[str, DirectionFigures]:
    """Return the figures by the readable name of the direction, and those of short texts."""
    short = calibration.short_texts
    return {
        **of_directions(calibration),
        **({} if short is None else {"short texts to image": short.figures}),
    }


def _reliability_table(direction: str, figures: DirectionFigures) -> Table:
    table = Table(title=f"{direction}: how far probabilities are off", title_justify="left")
    table.add_column("", no_wrap=True)
    for name in ("right", "ECE", "ECE, equal width", "Brier", "log loss"):
        table.add_column(name, justify="right")
    for stage, stage_name in STAGES.items():
        of_stage: ProbabilityFigures = getattr(figures, stage)
        for question, name in QUESTIONS.items():
            measured: Reliability = getattr(of_stage, question)
            table.add_row(
                f"{name}, {stage_name}",
                f"{measured.base_rate:.1%}",
                f"{measured.ece:.4f}",
                f"{measured.ece_equal_width:.4f}",
                f"{measured.brier:.4f}",
                f"{measured.log_loss:.4f}",
            )
    return table


def _auroc_table(direction: str, figures: DirectionFigures) -> Table:
    table = _empty_auroc_table(direction)
    for stage, stage_name in STAGES.items():
        of_stage: ProbabilityFigures = getattr(figures, stage)
        _add_aurocs(table, stage_name, of_stage.auroc, of_stage.auroc_gain)
        for kind, estimate in of_stage.kinds.items():
            table.add_row(f"  {_KINDS[kind]}, {stage_name}", _interval(estimate, ""), "")
    return table


def _mean_auroc_table(figures: CalibrationFigures) -> Table:
    table = _empty_auroc_table("mean of both directions")
    _add_aurocs(table, STAGES["aligned"], figures.auroc, figures.auroc_gain)
    return table


def _empty_auroc_table(title: str) -> Table:
    table = Table(title=f"{title}: is there a match at all", title_justify="left")
    table.add_column("", no_wrap=True)
    table.add_column("AUROC", justify="right")
    table.add_column("match probability minus it", justify="right")
    return table


def _add_aurocs(
    table: Table, stage: str, aurocs: Mapping[str, Estimate], gains: Mapping[str, Estimate]
) -> None:
    for name, estimate in aurocs.items():
        table.add_row(
            f"{_THRESHOLDS[name]}, {stage}",
            _interval(estimate, ""),
            _interval(gains[name], "+") if name in gains else "",
        )


def _interval(estimate: Estimate, sign: str) -> str:
    value, low, high = (format(each, f"{sign}.4f") for each in asdict(estimate).values())
    return f"{value} [{low}, {high}]"


def _without_sample(fitted_on: dict[str, Any]) -> dict[str, Any]:
    """Remove the hashes of photos, which are of no use to people."""
    samples = ("photo_sample", "data_sample")
    return {name: value for name, value in fitted_on.items() if name not in samples}


def _rounded(data: Any) -> Any:
    """Round to the precision that a million queries could resolve."""
    if isinstance(data, dict):
        return {name: _rounded(value) for name, value in data.items()}
    if isinstance(data, list):
        return [_rounded(value) for value in data]
    return round(data, 6) if isinstance(data, float) else data


def draw_reliability(path: Path, calibration: Calibration) -> None:
    """Plot the share of right answers against the probability, by direction and question.

    Args:
        path: File of the plot, PNG.
        calibration: Calibration whose figures are drawn.

    Raises:
        InputError: If the file is not a PNG or cannot be written.
    """
    # The classes are used directly: pyplot would keep every figure and choose a window system.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    check_plot(path)
    directions = of_directions(calibration)
    figure = Figure(figsize=(4 * len(QUESTIONS), 4 * len(directions)), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.subplots(len(directions), len(QUESTIONS), squeeze=False)
    for row, (direction, figures) in zip(axes, directions.items(), strict=True):
        for axis, (question, name) in zip(row, QUESTIONS.items(), strict=True):
            _draw(axis, f"{direction}: {name}", question, figures)
    save_plot(path, figure)


def _draw(axis: Any, title: str, question: str, figures: DirectionFigures) -> None:
    axis.set_title(title)
    # Up to the highest probability: the hits of a page rarely have high ones.
    most = 0.0
    for (stage, name), colour in zip(STAGES.items(), ("tab:blue", "tab:orange"), strict=True):
        measured: Reliability = getattr(getattr(figures, stage), question)
        predicted = [each.predicted for each in measured.bins]
        observed = [each.observed for each in measured.bins]
        most = max(most, *predicted, *observed)
        label = f"{name}, ECE {measured.ece:.3f}"
        axis.plot(predicted, observed, marker="o", markersize=4, color=colour, label=label)
    end = min(1.0, 1.1 * most)
    axis.plot([0, end], [0, end], color="grey", linestyle="--", linewidth=1)
    axis.set_xlabel("probability")
    axis.set_ylabel("share that was right")
    axis.grid(alpha=0.3)
    axis.legend(loc="upper left", fontsize=8)
