"""The answer to a search as the front doors give it: the JSON of HTTP and of ``--json``.

What the HTTP service answers about the index as a whole.

What the HTTP service answers about items: looked up, added, deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from aladin_index.search.results import SearchResult


class _Part(BaseModel):
    model_config = ConfigDict(from_attributes=True, frozen=True)


class Stage(_Part):
    """Where one stage puts a hit."""

    rank: int
    score: float


class HitStages(_Part):
    """Both stages' say on a hit; `align` is null between two images or two texts."""

    match: Stage
    align: Stage | None


class Evidence(_Part):
    """A word, the region that fits it best, and the cosine of the two."""

    token: str
    start: int = Field(description="First character of the word in the text.")
    end: int = Field(description="The character after its last.")
    region: int
    box: tuple[float, float, float, float] | None = Field(
        description="x0, y0, x1, y1 in fractions of the photo's width and height."
    )
    score: float = Field(description="These add up to `stages.align.score`.")
    share: float = Field(
        description="The score divided by the sum of the sizes of all words' scores: its part of"
        " the alignment score, negative for a word that speaks against the photo."
    )


class SearchHit(_Part):
    """One item found."""

    id: str
    rank: int = Field(description="Counted from 1, over all pages.")
    score: float = Field(description="What the order is by.")
    per_word: float | None = Field(description="Alignment score divided by the number of words.")
    probability: float | None = Field(
        default=None,
        description="That the hit belongs to the query, 0 to 1; null where the index is not"
        " calibrated, and between two images or two texts. Not to be shown or acted on where the"
        " answer's `probabilities_reliable` is false.",
    )
    stages: HitStages
    uri: str | None
    text: str | None = Field(description="The text itself, or an image's first caption.")
    metadata: dict[str, Any]
    evidence: list[Evidence] | None = Field(description="Null unless asked for by `explain`.")


class TookMs(_Part):
    """Milliseconds by part; `total` also holds what is between them."""

    decode: float
    encode: float
    retrieve: float
    rerank: float
    total: float


class SearchAnswer(_Part):
    """A page of hits, best first."""

    hits: list[SearchHit]
    reranked: bool = Field(description="Whether the second stage made the order.")
    fusion: float | None = Field(description="Weight of the alignment score in `score`.")
    candidates: int = Field(description="Items that the first stage handed to the second.")
    generation: int = Field(description="Of the index.")
    degraded: list[str] = Field(
        description="What was asked for and left out: rerank, where the index has no tokens;"
        " rerank_timeout, where there was no time; rerank_unavailable and evidence_unavailable,"
        " where the engine that keeps the index could not give the tokens; min_probability, where"
        " the probabilities are not reliable, so that no hit was left out. Empty: nothing."
    )
    match_probability: float | None = Field(
        default=None,
        description="That what was searched holds anything that belongs to the query, 0 to 1;"
        " null as `probability`, and where nothing passes the filter.",
    )
    no_match: bool | None = Field(
        default=None,
        description="Whether nothing is likely enough: `match_probability` is below the threshold"
        " of the calibration, or `min_probability` left no hit of the first page; null as"
        " `probability`, and where `probabilities_reliable` is false.",
    )
    probabilities_reliable: bool | None = Field(
        default=None,
        description="Whether the index's calibration may judge this answer: it tells queries that"
        " have a match from those that have none, and was fitted on texts of this length. Where"
        " false, `no_match` is null and `min_probability` leaves nothing out; null as"
        " `probability`.",
    )
    unreliable_because: str | None = Field(
        default=None,
        description="Why `probabilities_reliable` is false: weak_calibration, the held-out AUROC"
        ' of "is there a match at all" is below 0.75; unknown_text_lengths, the calibration does'
        " not record the lengths of its texts (fit it anew); text_length, the text, or for an"
        " image as the query the texts found, are shorter or longer than those. Else null.",
    )
    unknown_fields: list[str] = Field(
        default_factory=list[str],
        description="Where nothing passes the filter: its fields in which no item has a text, a"
        " number or a bool. Empty otherwise.",
    )
    took_ms: TookMs


def build_answer(result: SearchResult, took_ms: TookMs) -> SearchAnswer:
    """Put a search's result into the answer's form.

    Args:
        result: of the searcher.
        took_ms: of the whole query.
    """
    return SearchAnswer(
        hits=[SearchHit.model_validate(hit) for hit in result.hits],
        reranked=result.reranked,
        fusion=result.fusion,
        candidates=result.candidates,
        generation=result.generation,
        degraded=result.degraded,
        match_probability=result.match_probability,
        no_match=result.no_match,
        unknown_fields=result.unknown_fields,
        probabilities_reliable=result.probabilities_reliable,
        unreliable_because=result.unreliable_because,
        took_ms=took_ms,
    )


class _IndexPart(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class FirstStage(_IndexPart):
    """The ANN of one side."""

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

    count: int = Field(description="Items that a search may find, added ones included.")
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
        description="Lengths of 98 % of the texts, without the shortest and the longest 1 %; null:"
        " not recorded, by an older version.",
    )


class ReliabilityFigures(_IndexPart):
    """How far probabilities were from what was right."""

    ece: float = Field(description="Expected calibration error.")


class Interval(_IndexPart):
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float


class NoMatchFigures(_IndexPart):
    """How often answers say that there is no match."""

    model_config = ConfigDict(title="IndexNoMatchFigures")

    below: float = Field(description="Answers with a lower `match_probability` say `no_match`.")
    false_alarms: float = Field(description="Share of queries with a match that say so.")
    detected: float = Field(description="Share of queries without a match that say so.")


class ProbabilityFigures(_IndexPart):
    """What the probabilities of one direction are worth, on photos that the fit never saw."""

    model_config = ConfigDict(title="IndexProbabilityFigures")

    hits: ReliabilityFigures
    match: ReliabilityFigures
    no_match: NoMatchFigures
    auroc: dict[str, Interval] = Field(
        description="Of telling queries that have a match from those that have none, by"
        " probability, and by a threshold on a score instead."
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
    """Why the answers of a direction are never judged; null where they are.

    weak_calibration: the held-out AUROC of "is there a match at all" is below 0.75.
    unknown_text_lengths: the lengths of the fitted texts are not recorded.
    """

    text_to_image: str | None
    image_to_text: str | None


class IndexCalibration(_IndexPart):
    """What the hits' probabilities are made by, and how far they can be believed."""

    fitted_on: CalibratedOn
    figures: CalibrationFigures
    unreliable: UnreliableDirections
    fitted_photos_indexed: float | None = Field(
        default=None,
        description="Estimated share of the photos fitted to that this index has; null: fitted to"
        " this index, not recorded, or an index without photos.",
    )


class LiveIndexInfo(_IndexPart):
    """The live generation; a side that it does not have is null."""

    generation: int
    default_candidates: int
    model: IndexModel
    images: IndexSide | None
    texts: IndexSide | None
    calibration: IndexCalibration | None = Field(
        default=None, description="Null where the index is not calibrated."
    )


class Item(BaseModel):
    """An item as the user described it."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    uri: str | None
    text: str | None
    metadata: dict[str, Any]


class AddTookMs(BaseModel):
    """Milliseconds by part."""

    decode: float
    encode: float
    write: float = Field(description="Until all was on the disk, waiting for others included.")
    total: float


class Added(BaseModel):
    """What became of the items of a request; they are on the disk, and found from now on."""

    added: list[str] = Field(description="Ids that were not there.")
    replaced: list[str] = Field(description="Ids whose items gave way to the new ones.")
    skipped: list[str] = Field(description="Ids that were there; their items stay.")
    generation: int = Field(description="Of the index, that was added to.")
    took_ms: AddTookMs


class Deleted(BaseModel):
    """The item is gone, on the disk too, and found no more."""

    deleted: str = Field(description="Its id.")
    generation: int = Field(description="Of the index, that it was removed from.")
