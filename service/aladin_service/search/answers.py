"""Answers of the HTTP service about the whole index and about single items."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from aladin_index.search.results import Box


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


class IndexCollection(_IndexPart):
    """The images, or the texts."""

    count: int = Field(description="Items that a search may return, including added ones.")
    skipped: int
    embedding_dim: int
    token_dim: int
    token_count: int
    token_dtype: str
    ann: FirstStage
    tuning: TunedCandidates | None
    takes_all: bool = Field(
        default=False,
        description="Whether searches may take all items as candidates (`candidates: exhaustive`).",
    )


class IndexModel(_IndexPart):
    """The model that made the index."""

    id: str


class SkippedReason(_IndexPart):
    """Files that are left out for one reason."""

    reason: str
    count: int
    names: list[str] = Field(description="At most 20 of them.")


class SkippedInfo(_IndexPart):
    """What the index lacks of its sources: by its build, or by the last look at its folders."""

    total: int = Field(description="Files that look like photos, and items, that cannot be used.")
    reasons: list[SkippedReason] = Field(description="The 20 most frequent ones.")
    other_files: dict[str, int] = Field(
        description="Files of followed folders that are no photos, by kind, such as videos."
    )
    not_followed: str | None = Field(
        description="Why the folders are not followed any more; null if they are, or never were."
    )


class CalibratedOn(BaseModel):
    """The queries whose scores the probabilities were fitted to."""

    model_config = ConfigDict(from_attributes=True, defer_build=True)

    data: str = Field(description="Name of the data set.")
    split: str | None
    photos: int
    texts: int = Field(description="Number of captions.")
    short_texts: int = Field(description="Number of nouns and noun phrases.")
    searched: str = Field(description="split: its own photos and texts; index: those of an index.")


class CalibrationFigures(BaseModel):
    """Quality of the probabilities of one direction, on photos that were not used for the fit."""

    model_config = ConfigDict(from_attributes=True, defer_build=True)

    ece: float = Field(description="Expected calibration error of the hits of a first page.")
    auroc: float = Field(description="How often a query with a match is told from one without.")
    false_alarms: float = Field(description="Share of queries with a match that get `no_match`.")
    detected: float = Field(description="Share of queries without a match that get `no_match`.")


class CalibratedDirection(BaseModel):
    """The probabilities of one direction."""

    model_config = ConfigDict(from_attributes=True, defer_build=True)

    aligned: bool = Field(description="Whether they need the scores of both stages.")
    figures: CalibrationFigures


class IndexCalibration(BaseModel):
    """Source and quality of the hits' probabilities."""

    model_config = ConfigDict(from_attributes=True, defer_build=True)

    fitted_on: CalibratedOn
    measured_on: str = Field(description='"out of fold", or the name of the split.')
    text_to_image: CalibratedDirection
    image_to_text: CalibratedDirection
    other_photos: bool = Field(
        description="Whether most photos of the index are of other data than the calibration was"
        " fitted on; then answers have no probabilities."
    )


class LiveIndexInfo(_IndexPart):
    """The live generation; a collection that it does not have is null."""

    generation: int
    default_candidates: int
    model: IndexModel
    images: IndexCollection | None
    texts: IndexCollection | None
    alignment_trained: bool = Field(
        default=True,
        description="Whether the alignment of the model was trained. If not, as of a converted"
        " CLIP, searches are ordered by the embeddings, and there is no evidence.",
    )
    untrained: str | None = Field(
        default=None,
        description="Why hits come in random order, as with two towers that were never trained"
        " together; null if nothing is known against the model.",
    )
    changed_at: datetime | None = Field(
        default=None,
        description="When the generation became live, or an item was added or deleted since; null"
        " for an index in a vector database.",
    )
    skipped: SkippedInfo | None = Field(
        default=None, description="Null for an index in a vector database."
    )
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


class ListedItem(Item):
    """An item of a list."""

    size_px: tuple[int, int] | None = Field(
        description="Width and height of an image, upright; null for a text."
    )


class ItemPage(BaseModel):
    """A page of items, in the requested order."""

    items: list[ListedItem]
    total: int = Field(description="Items that pass the filter, on all pages.")
    next: str | None = Field(
        description="Id of the last item, with which the next page is requested as `after`; null if"
        " no item follows."
    )
    generation: int = Field(description="Generation of the index.")


FieldValue = bool | int | float | str


class FieldCount(BaseModel):
    """A value of a field, and how many items have it."""

    value: FieldValue
    count: int


class IndexField(BaseModel):
    """The values of one kind in a metadata field that is indexed for filters."""

    name: str
    kind: Literal["bool", "number", "text"]
    least: FieldValue = Field(description="Smallest value.")
    greatest: FieldValue = Field(description="Largest value.")
    values: list[FieldCount] | None = Field(
        description="All values, the most frequent first; null if there are more than 50."
    )


class IndexFields(BaseModel):
    """The indexed fields of each collection by name, at most 100; null if there is none."""

    images: list[IndexField] | None
    texts: list[IndexField] | None


class MappedRegion(BaseModel):
    """A region of a photo."""

    box: Box | None = Field(
        description="x0, y0, x1, y1 in fractions of the photo's width and height; null if unknown."
    )


class MappedWord(BaseModel):
    """A whole word of a text, compared with every region of a photo."""

    text: str
    start: int = Field(description="First character of the word in the text.")
    end: int = Field(description="The character after its last.")
    score: float = Field(description="The words' scores add up to `align`.")
    share: float = Field(
        description="The score divided by the sum of the absolute values of all tokens' scores."
    )
    region: int = Field(description="Region that fits the word best.")
    cosines: list[float] = Field(
        description="Cosine with each region, summed over the tokens of the word, rounded to four"
        " decimals."
    )


class MappedQueryRegion(BaseModel):
    """A region inside the box of the query's photo, compared with every region of another photo."""

    box: Box = Field(description="In fractions of the query's photo.")
    score: float = Field(description="The regions' scores add up to `align`.")
    share: float = Field(description="The score divided by the sum of all absolute scores.")
    region: int = Field(description="Region that fits it best.")
    cosines: list[float] = Field(description="Cosine with each region, rounded to four decimals.")


class WordMapsAnswer(BaseModel):
    """A text and a photo, or two photos: each word, or region in the box, with every region."""

    text: str = Field(description="Empty for two photos.")
    match: float = Field(description="Cosine of the two embeddings.")
    align: float = Field(description="Alignment score.")
    regions: list[MappedRegion] = Field(description="Of the photo, or of the box in it.")
    words: list[MappedWord]
    query_regions: list[MappedQueryRegion] | None = Field(
        default=None, description="Regions of the query's photo inside `box`, for two photos."
    )
    found: Box | None = Field(default=None, description="Where the box was found in the photo.")


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
    kept: list[str] = Field(description="Ids that existed; their items are kept.")
    generation: int = Field(description="Generation of the index that was added to.")
    took_ms: AddTookMs


class Deleted(BaseModel):
    """Result of deleting an item, from the disk and from searches."""

    deleted: str = Field(description="Its id.")
    generation: int = Field(description="Generation of the index that it was removed from.")
