"""Origin and quality of probabilities, as anybody may know them; imports no numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field


@dataclass(frozen=True, kw_only=True)
class CalibratedOn:
    """The queries whose scores the probabilities were fitted to."""

    data: Annotated[str, Field(description="Name of the data set.")]
    split: str | None
    photos: int
    texts: Annotated[int, Field(description="Number of captions.")]
    short_texts: Annotated[int, Field(description="Number of nouns and noun phrases.")]
    searched: Annotated[
        Literal["split", "index"],
        Field(description="split: its own photos and texts; index: those of an index."),
    ]


@dataclass(frozen=True, kw_only=True)
class CalibrationFigures:
    """Quality of the probabilities of one direction, on photos that were not used for the fit."""

    ece: Annotated[
        float,
        Field(
            description="Expected calibration error of the hits of a first page, over bins of equal"
            " mass."
        ),
    ]
    auroc: Annotated[
        float, Field(description="How often a query with a match is told from one without.")
    ]
    false_alarms: Annotated[
        float, Field(description="Share of queries with a match that get `no_match`.")
    ]
    detected: Annotated[
        float, Field(description="Share of queries without a match that get `no_match`.")
    ]


@dataclass(frozen=True, kw_only=True)
class CalibratedDirection:
    """The probabilities of one direction."""

    aligned: Annotated[bool, Field(description="Whether they need the scores of both stages.")]
    figures: CalibrationFigures


@dataclass(frozen=True, kw_only=True)
class CalibrationFacts:
    """Source and quality of the hits' probabilities."""

    fitted_on: CalibratedOn
    measured_on: Annotated[
        str,
        Field(
            description='"out of fold", each photo judged by models that were fitted without it; or'
            " the name of another split."
        ),
    ]
    text_to_image: CalibratedDirection
    image_to_text: CalibratedDirection
    other_photos: Annotated[
        bool,
        Field(
            description="Whether most photos of the index are of other data than the calibration "
            "was fitted on; then answers have no probabilities."
        ),
    ] = False
