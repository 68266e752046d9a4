"""What a search answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aladin_network.calibration.calibration import Unreliable

# x0, y0, x1, y1 in fractions of a photo's width and height.
Box = tuple[float, float, float, float]


class StageResult(NamedTuple):
    """Where one stage puts an item.

    Attributes:
        rank: counted from 1; of the second stage among the items that it scored together: the
            candidates, or without re-ranking the page.
        score: match: the cosine of the embeddings; align: the sum over words of the best region.
    """

    rank: int
    score: float


class Stages(NamedTuple):
    """Both stages' say on a hit.

    Attributes:
        match: of the first stage.
        align: of the second stage; None between two images or two texts, which have no words
            and regions to align.
    """

    match: StageResult
    align: StageResult | None


class WordEvidence(NamedTuple):
    """The region that one word found.

    Attributes:
        token: the word as the text spells it.
        start: first character of the word in the text.
        end: the character after its last.
        region: row of the region among the photo's.
        box: (x0, y0, x1, y1) in fractions of the photo's width and height; None where nothing
            tells: the size of the query photo is not known, regions came without boxes, or no
            region did better than nothing (`AlignmentHeadConfig.empty_fill`).
        score: cosine of the word and the region; the words' scores add up to the alignment score.
        share: the score divided by the sum of the sizes of all words' scores, so -1 to 1. Where no
            score is negative, this is the word's part of the alignment score. A word that speaks
            against the photo has a negative share, and the sizes of all shares add up to 1, also
            where the alignment score is near 0. All are 0 where all scores are.
    """

    token: str
    start: int
    end: int
    region: int
    box: Box | None
    score: float
    share: float


@dataclass(frozen=True, kw_only=True)
class Hit:
    """One item of an answer.

    Attributes:
        id: the user's own.
        rank: counted from 1, over all pages.
        score: what the order is by.
        per_word: the alignment score divided by the number of words; None without one.
        probability: that the hit belongs to the query, 0 to 1; None where nothing says so: the
            index is not calibrated, or the two are of one modality.
        stages: both stages' ranks and scores.
        uri: of an image, as the user wrote it; None for a text.
        text: the text, or an image's first caption, or None.
        metadata: the user's own.
        evidence: each word's best region, in the text's order; None unless asked for.
    """

    id: str
    rank: int
    score: float
    per_word: float | None
    probability: float | None = None
    stages: Stages
    uri: str | None
    text: str | None
    metadata: dict[str, Any]
    evidence: list[WordEvidence] | None


class StageTimes(NamedTuple):
    """Milliseconds of a search.

    Attributes:
        retrieve: filter, and first stage.
        rerank: second stage, probabilities and evidence included.
        look_up: reading the hits' ids, texts and metadata.
    """

    retrieve: float
    rerank: float
    look_up: float


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """A page of hits, best first.

    Attributes:
        hits: may be fewer than asked for: the index, or what the filter leaves of it, ends.
        reranked: whether the second stage made the order.
        fusion: weight of the alignment score in `score`; None if not reranked.
        candidates: how many items the first stage hands to the second at a time.
        generation: of the index.
        degraded: what was asked for and left out: "rerank" where the index has no tokens, for its
            embeddings were imported without them; "rerank_timeout" where there was no time;
            "rerank_unavailable" where the engine that keeps the index could not give the tokens,
            of texts that an image found not even their number, so that they have no probability;
            "evidence_unavailable" where it could not give those that explain the hits;
            "min_probability" where the probabilities are not reliable, so that no hit was left
            out for its probability.
        match_probability: that what was searched holds anything that belongs to the query, 0 to 1;
            None as the hits' probabilities.
        no_match: whether that is too little to show a hit for, or no hit of the first page was
            likely enough; None where nothing says so, or what says so is not reliable.
        probabilities_reliable: whether the index's calibration may judge this answer, see
            `Calibration.unreliable_because`; None without probabilities.
        unreliable_because: the reason if it may not.
        unknown_fields: Fields of the filter in which no item has a value to compare, where nothing
            passes the filter; of a filter with many fields the first ones alone are looked up.
        took_ms: time by stage.
    """

    hits: list[Hit]
    reranked: bool
    fusion: float | None
    candidates: int
    generation: int
    degraded: list[str]
    match_probability: float | None = None
    no_match: bool | None = None
    unknown_fields: list[str] = field(default_factory=list[str])
    probabilities_reliable: bool | None = None
    unreliable_because: Unreliable | None = None
    took_ms: StageTimes
