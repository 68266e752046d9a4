"""The answer to a search, in this process, in JSON and in the Python clients.

The searcher makes these dataclasses without validating them: pydantic validates only the JSON of
others, and describes it, by `SEARCH_ANSWER`. What an answer has many of is not frozen, which would
take three times as long to make. A client reads answers without torch, so neither does
this module import it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from aladin_index.facts import FieldCount

# x0, y0, x1, y1 in fractions of a photo's width and height.
Box = tuple[float, float, float, float]


# What a term of a query says of the hits: that they have it, that they do not, or that they are
# like an item.
Role = Literal["all", "not", "like"]


@dataclass(slots=True, kw_only=True)
class Stage:
    """Rank and score of a hit in one stage.

    In an index with a hubness correction the ranks are those of the corrected scores, and the score
    is the cosine, or the alignment score that the evidence adds up to.

    The second stage's rank counts among the items that it scored together: a block of candidates,
    or the page if it does not decide the order.
    """

    rank: int
    score: float


@dataclass(slots=True, kw_only=True)
class FieldWords:
    """Words of the query that a field of a hit has."""

    field: Annotated[
        str,
        Field(
            description="`text`, `uri` for the name of the file, or `metadata.` and the name of the"
            " field."
        ),
    ]
    words: Annotated[list[str], Field(description="Without case and accents.")]


@dataclass(slots=True, kw_only=True)
class HitStages:
    """Both stages' ranks and scores.

    `align` is null between two images (unless searched by a box) or two texts, and for a query of
    several terms, whose `match` is that of the weighted sum of their embeddings.
    """

    match: Stage
    align: Stage | None
    lexical: Annotated[
        list[FieldWords] | None,
        Field(
            description="Where the hit has rare words of the query, empty if nowhere; null unless"
            " searched by `lexical`."
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A word, the region that fits it best, and the cosine of the two."""

    token: str
    start: Annotated[int, Field(description="First character of the word in the text.")]
    end: Annotated[int, Field(description="The character after its last.")]
    region: int
    box: Annotated[
        Box | None,
        Field(description="x0, y0, x1, y1 in fractions of the photo's width and height."),
    ]
    score: Annotated[float, Field(description="The words' scores add up to `stages.align.score`.")]
    share: Annotated[
        float,
        Field(
            description="The score divided by the sum of the absolute values of all words'"
            " scores: the word's part of the alignment score, negative for a word that"
            " contradicts the photo; 0 if all scores are."
        ),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionEvidence:
    """A region inside the box of a query, the best region of a hit, and the cosine of the two."""

    query_region: Annotated[int, Field(description="Number in the query's photo.")]
    query_box: Annotated[Box, Field(description="In fractions of the query's photo.")]
    region: Annotated[int, Field(description="Number of the region in the hit.")]
    box: Annotated[
        Box | None,
        Field(description="In fractions of the hit's photo; null if its size is unknown."),
    ]
    score: Annotated[float, Field(description="The scores add up to the hit's alignment score.")]
    share: Annotated[float, Field(description="As that of a word, see `Evidence`.")]


Cosines = Annotated[
    list[float], Field(description="Cosine with each region, rounded to four decimals.")
]


@dataclass(frozen=True, kw_only=True)
class BestRegion:
    """The region of a photo that fits something of a query best."""

    score: Annotated[float, Field(description="The scores add up to `align`.")]
    share: Annotated[
        float, Field(description="The score divided by the sum of all scores' absolute values.")
    ]
    region: int


@dataclass(frozen=True, kw_only=True)
class MappedWord(BestRegion):
    """A whole word of a text, compared with every region; its tokens' cosines are added up."""

    text: str
    start: Annotated[int, Field(description="First character of the word in the text.")]
    end: Annotated[int, Field(description="The character after its last.")]
    cosines: Cosines


@dataclass(frozen=True, kw_only=True)
class MappedQueryRegion(BestRegion):
    """A region inside the box of the query's photo, compared with every region of another photo."""

    box: Annotated[Box, Field(description="In fractions of the query's photo.")]
    cosines: Cosines


@dataclass(slots=True, kw_only=True)
class HitTerm:
    """Scores of a hit by one term of a query of several."""

    score: Annotated[
        float,
        Field(
            description="What the term adds to the hit's `score`; negative if it counts against it,"
            " 0 for examples that have moved the words of a text instead."
        ),
    ]
    match: Annotated[float, Field(description="Cosine of the embeddings.")]
    align: Annotated[
        float | None,
        Field(
            description="Alignment score, beside examples of the words that they have moved; null"
            " if the term was not aligned."
        ),
    ]
    evidence: list[Evidence] | None
    found: Annotated[Box | None, Field(description="Where the term's box was found.")] = None
    region_evidence: list[RegionEvidence] | None = None


@dataclass(slots=True, kw_only=True)
class Stack:
    """Photos that are shown as one: of one moment, or copies."""

    count: int
    ids: Annotated[
        list[str], Field(description="Those that pass the filter, the one that is shown first.")
    ]


@dataclass(slots=True, kw_only=True)
class SearchHit:
    """One item found."""

    id: str
    rank: Annotated[int, Field(description="Counted from 1, over all pages.")]
    score: Annotated[float, Field(description="Score that decides the order.")]
    per_word: Annotated[
        float | None,
        Field(description="Alignment score by word, or by region inside the query's box."),
    ]
    probability: Annotated[
        float | None,
        Field(
            description="Probability that the hit belongs to the query, 0 to 1; null if the index"
            " is not calibrated, between two images or two texts, and if the answer's"
            " `probabilities_reliable` is false."
        ),
    ] = None
    stages: HitStages
    uri: str | None
    text: Annotated[str | None, Field(description="The text itself, or an image's first caption.")]
    metadata: dict[str, Any]
    size_px: Annotated[
        tuple[int, int] | None,
        Field(description="Width and height of an image, upright; null for a text."),
    ] = None
    evidence: Annotated[
        list[Evidence] | None,
        Field(
            description="Null unless requested by `explain`, and if the model's alignment was not"
            " trained; of a query of several terms, each term has its own."
        ),
    ]
    found: Annotated[
        Box | None,
        Field(
            description="Where the part of a photo that was searched for by `box` was found in this"
            " photo: x0, y0, x1, y1 in fractions of its width and height. Null without a box, for a"
            " text, and if the places of the photo's regions are unknown."
        ),
    ] = None
    region_evidence: Annotated[
        list[RegionEvidence] | None,
        Field(
            description="For each region inside the box of the query the region of this photo that"
            " fits it best. Null unless photos are searched by `box` and `explain` is set."
        ),
    ] = None
    terms: Annotated[
        list[HitTerm] | None,
        Field(
            description="Scores by the terms of the query, in the order of the answer's `terms`;"
            " null for a query of one."
        ),
    ] = None
    stack: Annotated[
        Stack | None,
        Field(
            description="The photos that the hit stands for, if it stands for several, best first;"
            " null unless requested by `stack`."
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTerm:
    """A term of the query; a photo has neither a text nor an id."""

    role: Annotated[Role, Field(description="Field that the term came in.")]
    weight: Annotated[
        float,
        Field(description="Factor of the term's score; negative if it counts against a hit."),
    ]
    text: str | None
    id: str | None
    box: Annotated[Box | None, Field(description="Part of the photo, if given.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestedTerm:
    """A term of the search that is suggested for a text with a negation."""

    role: Annotated[Literal["all", "not"], Field(description="Field that the term would come in.")]
    text: str
    source: Annotated[str, Field(description="The words of the text that it was made of.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadWords:
    """Words of the query that were read as a filter."""

    words: Annotated[
        str, Field(description="As they were written; in `unread`, they stay words of the query.")
    ]
    start: Annotated[int, Field(description="Their first character in the text.")]
    filter: Annotated[dict[str, Any], Field(description="What hits pass, beside `filter`.")]

    @property
    def end(self) -> int:
        """The character after their last."""
        return self.start + len(self.words)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldFacet:
    """How often the values of a field are among the items that are nearest to a query."""

    among: Annotated[int, Field(description="Number of these items.")]
    values: Annotated[
        list[FieldCount], Field(description="The most frequent first, at most 50 of them.")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalMs:
    """Milliseconds by part; `total` also counts the time between the parts."""

    decode: float
    encode: float
    total: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TookMs(TotalMs):
    """Milliseconds by part of a search."""

    retrieve: float
    rerank: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAnswer:
    """A page of hits, best first unless `sort` orders them."""

    hits: list[SearchHit]
    reranked: Annotated[bool, Field(description="Whether the second stage decided the order.")]
    fusion: Annotated[float | None, Field(description="Weight of the alignment score in `score`.")]
    lexical: Annotated[
        float,
        Field(description="Weight of rare words in `score`: the default, unless it was given."),
    ] = 0.0
    candidates: Annotated[
        int, Field(description="Items that the first stage passed to the second.")
    ]
    generation: Annotated[int, Field(description="Generation of the index.")]
    degraded: Annotated[
        list[str],
        Field(
            description="What was requested and left out: rerank if the index has no tokens;"
            " rerank_timeout if there was no time; rerank_unavailable and evidence_unavailable if"
            " the vector database could not return the tokens; explain if the model's alignment"
            " was not trained, so that there is no evidence; lexical and stack if the index is in a"
            " vector database, which has no words and no stacks; min_probability if the"
            " probabilities are not reliable, so that no hit was left out. Empty if nothing was"
            " left out."
        ),
    ]
    no_match: Annotated[
        bool | None,
        Field(
            description="Whether nothing matches, judging by the scores of the best candidates, or"
            " `min_probability` left no hit of the first page; null as `probability`, and if"
            " nothing passes the filter."
        ),
    ] = None
    probabilities_reliable: Annotated[
        bool | None,
        Field(
            description="Whether the index's calibration may judge this answer. If false, there are"
            " no probabilities, `no_match` is null and `min_probability` leaves nothing out; null"
            " if the index is not calibrated, and between two images or two texts."
        ),
    ] = None
    unreliable_because: Annotated[
        str | None,
        Field(
            description="Why `probabilities_reliable` is false: other_photos, most photos of the"
            " index are of other data than the calibration was fitted on; no_alignment, it judges"
            " by the scores of both stages, and the second gave none; several_terms or box, it was"
            " fitted to queries of one term and to whole photos. Otherwise null."
        ),
    ] = None
    unknown_fields: Annotated[
        list[str],
        Field(
            description="If nothing passes the filter, its fields in which no item has a text, a"
            " number or a bool; also the field of `sort` if no item has a value there. Empty"
            " otherwise."
        ),
    ] = field(default_factory=list[str])
    terms: Annotated[
        list[AnswerTerm] | None,
        Field(
            description="The terms of the query: those of `all`, `not` and `like`, in this order;"
            " null for a query of one."
        ),
    ] = None
    read: Annotated[
        list[ReadWords],
        Field(
            description="Dates and places in the words that were read as filters, see `read_words`;"
            " the other words were searched for. Of several dates, one has to fit."
        ),
    ] = field(default_factory=list[ReadWords])
    searched: Annotated[
        str | None,
        Field(description="The words that both stages searched for, if others were read."),
    ] = None
    warnings: Annotated[
        list[Literal["language"]],
        Field(
            description="What may be wrong with the query: language, if the model's vocabulary does"
            " not have the words of its script, so that hits are next to random."
        ),
    ] = field(default_factory=list[Literal["language"]])
    facets: Annotated[
        dict[str, FieldFacet] | None,
        Field(
            description="By field, how often its values are among the items that are nearest to"
            " the query, as many as `candidates` says, and those with rare words of it: items that"
            " pass the filter but for its conditions on the field itself. Null without `facets`."
        ),
    ] = None
    suggestion: Annotated[
        list[SuggestedTerm] | None,
        Field(
            description="A search of several terms that the text may mean, if it negates something"
            ' in English ("two people, no dog"): what hits have, and what they do not have. It was'
            " not applied: the hits are those of the whole text. Otherwise null."
        ),
    ] = None
    took_ms: TookMs


# Reads, validates, writes and describes an answer as JSON.
SEARCH_ANSWER = TypeAdapter(SearchAnswer)
