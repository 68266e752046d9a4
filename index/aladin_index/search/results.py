"""The answer to a search, in JSON and in the Python clients.

A client reads answers without torch, so neither does this module import it.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

# x0, y0, x1, y1 in fractions of a photo's width and height.
Box = tuple[float, float, float, float]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class Stage(_Part):
    """Rank and score of a hit in one stage.

    The second stage's rank counts among the items that it scored together: a block of candidates,
    or the page if it does not decide the order.
    """

    rank: int
    score: float


class HitStages(_Part):
    """Both stages' ranks and scores; `align` is null between two images or two texts."""

    match: Stage
    align: Stage | None


class Evidence(_Part):
    """A word, the region that fits it best, and the cosine of the two."""

    token: str
    start: int = Field(description="First character of the word in the text.")
    end: int = Field(description="The character after its last.")
    region: int
    box: Box | None = Field(
        description="x0, y0, x1, y1 in fractions of the photo's width and height."
    )
    score: float = Field(description="The words' scores add up to `stages.align.score`.")
    share: float = Field(
        description="The score divided by the sum of the absolute values of all words' scores: the"
        " word's part of the alignment score, negative for a word that contradicts the photo; 0 if"
        " all scores are."
    )


class SearchHit(_Part):
    """One item found."""

    id: str
    rank: int = Field(description="Counted from 1, over all pages.")
    score: float = Field(description="Score that decides the order.")
    per_word: float | None = Field(description="Alignment score divided by the number of words.")
    probability: float | None = Field(
        default=None,
        description="Probability that the hit belongs to the query, 0 to 1; null if the index is"
        " not calibrated, and between two images or two texts. Not to be shown or acted on if the"
        " answer's `probabilities_reliable` is false.",
    )
    stages: HitStages
    uri: str | None
    text: str | None = Field(description="The text itself, or an image's first caption.")
    metadata: dict[str, Any]
    size_px: tuple[int, int] | None = Field(
        default=None, description="Width and height of an image, upright; null for a text."
    )
    evidence: list[Evidence] | None = Field(
        description="Null unless requested by `explain`, and if the model's alignment was not"
        " trained."
    )


class TookMs(_Part):
    """Milliseconds by part; `total` also counts the time between the parts."""

    decode: float
    encode: float
    retrieve: float
    rerank: float
    total: float


class SearchAnswer(_Part):
    """A page of hits, best first unless `sort` orders them."""

    hits: list[SearchHit]
    reranked: bool = Field(description="Whether the second stage decided the order.")
    fusion: float | None = Field(description="Weight of the alignment score in `score`.")
    candidates: int = Field(description="Items that the first stage passed to the second.")
    generation: int = Field(description="Generation of the index.")
    degraded: list[str] = Field(
        description="What was requested and left out: rerank if the index has no tokens;"
        " rerank_timeout if there was no time; rerank_unavailable and evidence_unavailable if the"
        " vector database could not return the tokens; explain if the model's alignment was not"
        " trained, so that there is no evidence; min_probability if the probabilities are"
        " not reliable, so that no hit was left out. Empty if nothing was left out."
    )
    match_probability: float | None = Field(
        default=None,
        description="Probability that any searched item belongs to the query, 0 to 1; null as"
        " `probability`, and if nothing passes the filter.",
    )
    no_match: bool | None = Field(
        default=None,
        description="Whether nothing is likely enough: `match_probability` is below the threshold"
        " of the calibration, or `min_probability` left no hit of the first page; null as"
        " `probability`, and if `probabilities_reliable` is false.",
    )
    probabilities_reliable: bool | None = Field(
        default=None,
        description="Whether the index's calibration may judge this answer: it separates queries"
        " that have a match from those that have none, and was fitted to texts of this length. If"
        " false, `no_match` is null and `min_probability` leaves nothing out; null as"
        " `probability`.",
    )
    unreliable_because: str | None = Field(
        default=None,
        description="Why `probabilities_reliable` is false: other_photos, most photos of the index"
        " are of other data than the calibration was fitted on; weak_calibration, the held-out"
        ' AUROC of "is there a match at all" is below 0.75; unknown_text_lengths, the calibration'
        " does not record the lengths of its texts (fit it again); text_length, the text, or for an"
        " image query the texts found, are shorter or longer than those. Otherwise null.",
    )
    unknown_fields: list[str] = Field(
        default_factory=list[str],
        description="If nothing passes the filter, its fields in which no item has a text, a"
        " number or a bool; also the field of `sort` if no item has a value there. Empty"
        " otherwise.",
    )
    took_ms: TookMs
