"""Structured results of the tools: small enough for the context of a model.

Scores are rounded to six decimals. Fields without a value are left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, Field

from aladin_index.search.options import SearchOptions
from aladin_index.search.results import Box, Role, SearchAnswer, SearchHit, SuggestedPart
from aladin_index.search.unreliable import unreliable_reason
from aladin_service.mcp.arguments import MAX_OFFSET, ItemKind
from aladin_service.search.answers import Item, WordMapsAnswer

_DECIMALS = 6
MAX_TEXT_CHARS = 1000
_MAX_METADATA_CHARS = 1500

_DEGRADED = {
    "rerank": "ordered by the first stage only: the index has no tokens",
    "rerank_timeout": "ordered by the first stage only: there was no time for the second",
    "rerank_unavailable": "ordered by the first stage only: the tokens could not be read",
    "min_probability": "min_probability was not applied: the probabilities are not reliable",
    "lexical": "lexical was not applied: an index in a vector database has no words",
}


class Hit(BaseModel):
    """A photo or a text that was found."""

    id: Annotated[str, Field(description="Id for the other tools.")]
    rank: Annotated[int, Field(description="Rank by relevance, from 1, over all pages.")]
    score: Annotated[
        float,
        Field(
            description="Relevance, which orders the hits: larger is better. May be negative, and"
            " is no probability; compare it within one answer only."
        ),
    ]
    probability: Annotated[
        float | None,
        Field(description="Probability that the hit matches the query, if the index has them."),
    ] = None
    text: Annotated[
        str | None,
        Field(
            description="The text itself, or the stored caption of a photo; cut after"
            f" {MAX_TEXT_CHARS} characters."
        ),
    ] = None
    uri: Annotated[str | None, Field(description="Where the photo comes from.")] = None
    metadata: Annotated[
        dict[str, Any], Field(description="Metadata, the fields that filters use.")
    ] = {}
    omitted_metadata: Annotated[
        list[str],
        Field(description="Fields that are too long to be listed; get_photo returns a photo's."),
    ] = []
    parts: Annotated[
        list[float] | None,
        Field(description="What each part of the query adds to `score`, in the order of `parts`."),
    ] = None
    found: Annotated[
        Box | None,
        Field(description="Where the part of a photo was found in this photo, as `box`."),
    ] = None
    found_in: Annotated[
        dict[str, list[str]] | None,
        Field(description="Rare words of the query by the field of the hit that has them."),
    ] = None


class Part(BaseModel):
    """A part of a query of several."""

    role: Annotated[Role, Field(description="all: hits have it; not: hits do not have it.")]
    text: str | None = None
    id: str | None = None
    box: Box | None = None


class SearchResult(BaseModel):
    """A page of hits, best first unless `sort` orders them."""

    found: ItemKind
    hits: list[Hit]
    next_offset: Annotated[
        int | None, Field(description="The offset of the next page; absent on the last one.")
    ] = None
    no_match: Annotated[
        bool | None,
        Field(description="True: probably nothing in the index matches; say so to the user."),
    ] = None
    parts: Annotated[list[Part] | None, Field(description="The parts of a query of several.")] = (
        None
    )
    notes: Annotated[
        list[str], Field(description="What to know about this answer, such as unknown fields.")
    ] = []


class ExplainedWord(BaseModel):
    """A word, and the region of the photo that fits it best."""

    word: str
    score: Annotated[
        float, Field(description="Its cosine with the region; they add up to `align`.")
    ]
    share: Annotated[
        float,
        Field(
            description="Its part of the alignment score, from -1 to 1; negative if it speaks"
            " against the photo."
        ),
    ]
    box: Annotated[
        Box | None,
        Field(description="x0, y0, x1, y1 in fractions of the photo's width and height."),
    ] = None


class Explanation(BaseModel):
    """Why a photo and a text fit: each word and the region that it was found in."""

    photo_id: str
    text: str
    align: Annotated[float, Field(description="Alignment of words and regions, a sum of cosines.")]
    match: Annotated[float, Field(description="Cosine of the whole text and the whole photo.")]
    words: list[ExplainedWord]


class ShownPhoto(BaseModel):
    """A photo of the index; the picture itself is an image of the answer."""

    id: str
    caption: str | None = None
    uri: str | None = None
    metadata: dict[str, Any] = {}
    media_type: str


def search_result(answer: SearchAnswer, found: ItemKind, options: SearchOptions) -> SearchResult:
    """Shorten the answer of a search.

    Probabilities that are not reliable are left out, and a note says why.

    Args:
        answer: Answer of the service.
        found: Kind of its hits.
        options: Options of the search.
    """
    # A least probability leaves out hits of a page that need not be the last one.
    may_be_short = options.min_probability is not None and len(answer.hits) > 0
    following = options.offset + options.k
    more = len(answer.hits) == options.k or may_be_short
    judged = answer.probabilities_reliable is True
    return SearchResult(
        found=found,
        hits=[_hit(hit, judged=judged) for hit in answer.hits],
        next_offset=following if more and following <= MAX_OFFSET else None,
        no_match=answer.no_match,
        parts=None
        if answer.parts is None
        else [
            Part(role=part.role, text=part.text, id=part.id, box=part.box) for part in answer.parts
        ],
        notes=_notes(answer),
    )


def explanation(photo_id: str, maps: WordMapsAnswer) -> Explanation:
    """Shorten the comparison of a text and a photo to the best region of each word."""
    return Explanation(
        photo_id=photo_id,
        text=maps.text,
        align=round(maps.align, _DECIMALS),
        match=round(maps.match, _DECIMALS),
        words=[
            ExplainedWord(
                word=word.text,
                score=round(word.score, _DECIMALS),
                share=round(word.share, 4),
                box=_rounded_box(maps.regions[word.region].box),
            )
            for word in maps.words
        ],
    )


def shown_photo(item: Item, media_type: str) -> ShownPhoto:
    """Describe a photo with all its metadata."""
    return ShownPhoto(
        id=item.id,
        caption=item.text,
        uri=item.uri,
        metadata=item.metadata,
        media_type=media_type,
    )


def _hit(hit: SearchHit, *, judged: bool) -> Hit:
    kept, omitted = _short_metadata(hit.metadata)
    return Hit(
        id=hit.id,
        rank=hit.rank,
        score=round(hit.score, _DECIMALS),
        probability=_rounded(hit.probability) if judged else None,
        text=short_text(hit.text),
        # A photo without a URI of its own has its id there.
        uri=None if hit.uri == hit.id else hit.uri,
        metadata=kept,
        omitted_metadata=omitted,
        parts=None if hit.parts is None else [round(part.score, _DECIMALS) for part in hit.parts],
        found=_rounded_box(_found(hit)),
        found_in={found.field: found.words for found in hit.stages.lexical or []} or None,
    )


def _found(hit: SearchHit) -> Box | None:
    """Return where the query's box, or that of its first part with one, was found."""
    return next((each.found for each in (hit, *(hit.parts or ())) if each.found), None)


def short_text(text: str | None) -> str | None:
    """Cut a long text."""
    if text is None or len(text) <= MAX_TEXT_CHARS:
        return text
    return text[: MAX_TEXT_CHARS - 1] + "…"


def _short_metadata(metadata: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Keep the fields that fit, the shortest first; return them and the names of the others."""
    lengths = {name: len(json.dumps(value)) + len(name) for name, value in metadata.items()}
    kept: set[str] = set()
    room = _MAX_METADATA_CHARS
    for name in sorted(lengths, key=lengths.__getitem__):
        room -= lengths[name]
        if room < 0:
            break
        kept.add(name)
    return (
        {name: value for name, value in metadata.items() if name in kept},
        [name for name in metadata if name not in kept],
    )


def _notes(answer: SearchAnswer) -> list[str]:
    notes: list[str] = []
    if answer.unknown_fields:
        named = ", ".join(answer.unknown_fields)
        notes.append(f"no item has the metadata fields {named}; index_info lists those that exist")
    if answer.probabilities_reliable is False:
        why = unreliable_reason(answer.unreliable_because)
        notes.append(f"this answer has no probabilities: {why}")
    notes += [_DEGRADED.get(each, f"left out: {each}") for each in answer.degraded]
    if answer.suggestion is not None:
        notes.append(_split_note(answer.suggestion))
    return notes


def _split_note(parts: Sequence[SuggestedPart]) -> str:
    """Name the arguments that split a negated query, which is searched as it stands."""
    wanted = next(part.text for part in parts if part.role == "all")
    unwanted = [part.text for part in parts if part.role == "not"]
    return (
        "the words of a negation are searched for like others; to exclude them, search with"
        f" query={json.dumps(wanted)} and not={json.dumps(unwanted)}"
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DECIMALS)


def _rounded_box(box: Box | None) -> Box | None:
    if box is None:
        return None
    x0, y0, x1, y1 = (round(side, 4) for side in box)
    return x0, y0, x1, y1
