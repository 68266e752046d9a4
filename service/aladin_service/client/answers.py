"""Answers of the HTTP service about the whole index and about single items."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class _IndexPart(BaseModel):
    model_config = ConfigDict(from_attributes=True, defer_build=True)


class FirstStage(_IndexPart):
    """The ANN of one collection."""

    factory: str
    search_width: int | None
    oversample: float
    recall: float
    recall_at: int


class TunedCandidates(_IndexPart):
    """The number of candidates that `aladin index tune` chose."""

    candidates: int
    fidelity: float
    at: int


class IndexSide(_IndexPart):
    """The images, or the texts."""

    count: int = Field(description="Items that a search may return, including added ones.")
    left_out: int
    embedding_dim: int
    token_dim: int
    token_count: int
    token_dtype: str
    ann: FirstStage
    tuning: TunedCandidates | None


class IndexModel(_IndexPart):
    """The model that made the index."""

    id: str


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
    """Reasons why the answers of a direction are never judged; null if they are judged.

    weak_calibration: the held-out AUROC of "is there a match at all" is below 0.75.
    unknown_text_lengths: the lengths of the fitted texts are not recorded.
    """

    text_to_image: str | None
    image_to_text: str | None


class IndexCalibration(_IndexPart):
    """Source and reliability of the hits' probabilities."""

    fitted_on: CalibratedOn
    figures: CalibrationFigures
    unreliable: UnreliableDirections
    fitted_photos_indexed: float | None = Field(
        default=None,
        description="Estimated share of the fitted photos that are in this index; null if fitted to"
        " this index, not recorded, or without photos.",
    )


class LiveIndexInfo(_IndexPart):
    """The live generation; a collection that it does not have is null."""

    generation: int
    default_candidates: int
    model: IndexModel
    images: IndexSide | None
    texts: IndexSide | None
    calibration: IndexCalibration | None = Field(
        default=None, description="Null if the index is not calibrated."
    )


class Item(BaseModel):
    """An item as the user described it."""

    model_config = ConfigDict(from_attributes=True, defer_build=True)

    id: str
    uri: str | None
    text: str | None
    metadata: dict[str, Any]


class AddTookMs(BaseModel):
    """Milliseconds by part."""

    decode: float
    encode: float
    write: float = Field(
        description="Time until everything was on disk, including waiting for others."
    )
    total: float


class Added(BaseModel):
    """Result of adding the items of a request; they are stored on disk and searchable."""

    added: list[str] = Field(description="Ids that were new.")
    replaced: list[str] = Field(description="Ids whose items were replaced by the new ones.")
    skipped: list[str] = Field(description="Ids that existed; their items are kept.")
    generation: int = Field(description="Generation of the index that was added to.")
    took_ms: AddTookMs


class Deleted(BaseModel):
    """Result of deleting an item, from the disk and from searches."""

    deleted: str = Field(description="Its id.")
    generation: int = Field(description="Generation of the index that it was removed from.")
