"""Answers of the HTTP service about the calibration of the index."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class _IndexPart(BaseModel):
    model_config = ConfigDict(from_attributes=True, defer_build=True)


class TextLengthRange(_IndexPart):
    """Range of text lengths, in words as the text encoder counts them (tokens)."""

    low: int
    high: int


class CalibratedOn(_IndexPart):
    """The queries whose scores the probabilities were fitted to."""

    data: str = Field(description="Name of the data set.")
    split: str | None
    photos: int
    texts: int
    searched: str = Field(description="split: its own photos and texts; index: those of an index.")
    text_lengths: TextLengthRange | None = Field(
        default=None,
        description="Lengths of 98 % of the texts, without the shortest and the longest 1 %; null"
        " if not recorded, by an older version.",
    )


class ReliabilityFigures(_IndexPart):
    """Deviation of the probabilities from the observed frequencies."""

    ece: float = Field(description="Expected calibration error.")


class Interval(_IndexPart):
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float


class NoMatchFigures(_IndexPart):
    """How often answers report that there is no match."""

    model_config = ConfigDict(title="IndexNoMatchFigures")

    below: float = Field(description="Answers with a lower `match_probability` have `no_match`.")
    false_alarms: float = Field(description="Share of queries with a match that get `no_match`.")
    detected: float = Field(description="Share of queries without a match that get `no_match`.")
    kinds: dict[str, float] = Field(
        default_factory=dict[str, float],
        description="The same by the kind of the query: hard, whose right photos were taken out;"
        " near, a caption with one word exchanged; far, a foreign subject. Empty for one kind.",
    )


class ProbabilityFigures(_IndexPart):
    """Quality of the probabilities of one direction, on photos not used for the fit."""

    model_config = ConfigDict(title="IndexProbabilityFigures")

    hits: ReliabilityFigures
    match: ReliabilityFigures
    no_match: NoMatchFigures
    auroc: dict[str, Interval] = Field(
        description="AUROC of separating queries with a match from those without, by"
        " probability, and by a threshold on a score."
    )
    kinds: dict[str, Interval] = Field(
        default_factory=dict[str, Interval],
        description="AUROC of separating queries with a match from those of each kind without, by"
        " probability; empty for one kind.",
    )


class DirectionFigures(_IndexPart):
    """Figures of one direction, with both stages' scores."""

    model_config = ConfigDict(title="IndexDirectionFigures")

    aligned: ProbabilityFigures


class CalibrationFigures(_IndexPart):
    """Figures of both directions."""

    model_config = ConfigDict(title="IndexCalibrationFigures")

    text_to_image: DirectionFigures
    image_to_text: DirectionFigures


class UnreliableDirections(_IndexPart):
    """Reasons why the answers of a direction are never judged; null if some are judged.

    other_photos: most photos of the index are of other data than the calibration was fitted on.
    weak_calibration: the held-out AUROC of "is there a match at all" is below 0.75 for every kind
        of queries without a match.
    unknown_text_lengths: the lengths of the fitted texts are not recorded.
    text_length: there are no short texts among those that the calibration was fitted on.
    """

    text_to_image: str | None
    image_to_text: str | None
    captions: str | None = Field(
        default=None, description="The same for texts as long as captions that search images."
    )
    short_texts: str | None = Field(
        default=None, description="The same for short texts that search images."
    )


class ShortTextsFacts(_IndexPart):
    """What short texts that search images were fitted to."""

    lengths: TextLengthRange
    texts: int = Field(description="Number of nouns and noun phrases that they were fitted to.")


class ShortTextsCalibration(ShortTextsFacts):
    """Reliability of the probabilities of short texts that search images."""

    figures: DirectionFigures


class CalibrationFacts(_IndexPart):
    """Which queries the calibration judges, and whether its photos are those of the index."""

    unreliable: UnreliableDirections
    fitted_photos_indexed: float | None = Field(
        default=None,
        description="Estimated share of the fitted photos that are in this index; null if fitted to"
        " this index, not recorded, or without photos.",
    )


class IndexCalibration(CalibrationFacts):
    """Source and reliability of the hits' probabilities."""

    fitted_on: CalibratedOn
    figures: CalibrationFigures
    short_texts: ShortTextsCalibration | None = Field(
        default=None, description="Null if no short texts were fitted."
    )
