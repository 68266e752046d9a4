"""Output of a fitted hubness correction: JSON data and lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aladin_network.scoring.hub_correction import CorrectionConstants, NearestMean
from aladin_network.types import DIRECTIONS

if TYPE_CHECKING:
    from aladin_service.measure.correct import CorrectReport

_DIRECTIONS = {"text_to_image": "text to image", "image_to_text": "image to text"}


def correction_data(report: CorrectReport) -> dict[str, Any]:
    """Return the data that ``--json`` prints: recalls in percent."""
    # Evaluations need torch, which the description of an index does without.
    from aladin_service.reports.evaluation_report import metrics_data

    constants = asdict(report.constants)
    return {
        "bank": {"data": constants["data"], "photos": report.photos, "texts": report.texts},
        "selection": {"split": constants["selection"], "photos": report.chosen_on},
        "constants": {direction: constants[direction] for direction in DIRECTIONS},
        "fusion": constants["fusion"],
        "metrics": {name: metrics_data(each) for name, each in report.metrics.items()},
    }


def constants_words(constants: CorrectionConstants) -> Iterator[str]:
    """Describe the constants of each direction."""
    for direction in DIRECTIONS:
        of = constants.of(direction)
        yield (
            f"{_DIRECTIONS[direction]}: matching {_words(of.match)}, alignment {_words(of.align)}"
        )


def correction_lines(report: CorrectReport, stored_in: Path) -> Iterator[str]:
    """Describe the bank and the constants, and where they are stored."""
    yield from constants_words(report.constants)
    yield (
        f"bank: {report.photos:,} photos and {report.texts:,} captions of "
        f"{report.constants.data}; constants chosen on {report.chosen_on:,} other photos "
        f"({report.constants.selection})"
    )
    yield f"stored in {stored_in}"


def _words(constants: NearestMean) -> str:
    if constants.weight == 0:
        return "not corrected"
    return f"less {constants.weight:g} times the mean of the {constants.nearest} nearest"
