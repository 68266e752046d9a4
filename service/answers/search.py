"""The answer to a search as the front doors give it: the JSON of HTTP and of ``--json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    # A client reads answers too, and has no use for what searches need.
    from index.results import SearchResult


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
