"""Queries of several parts: what hits have, what they do not have, items to be like.

The first stage takes the candidates of one embedding, the weighted sum of those of the parts that
hits have or are like (Rocchio's relevance feedback).
A part that hits do not have does not affect retrieval: being far from an unwanted part does not
make an item relevant.

The second stage adds up the parts' scores. That of a part which can be aligned is the fusion of
both stages; of another, such as a photo where photos are searched, the cosine, standardised over
the candidates, as is the fusion of a box of a photo. Examples move the words of texts
(`aladin_index.search.feedback`), which are then ordered by the alignment alone, and add nothing
themselves; where no text is aligned, they count by their cosines. A part that hits do not have
counts by what its score exceeds its usual level, the mean less one standard deviation of the
candidates: an item that lacks it gains nothing by lacking it clearly.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from aladin_index.search.candidates import Found, ValidPart, ValidSearch
from aladin_index.search.collection import Collection
from aladin_index.search.deadline import OutOfTimeError, RerankDeadline
from aladin_index.search.feedback import MOVED_CANDIDATES, move_words
from aladin_index.search.file_collection import FileCollection
from aladin_index.search.query import EncodedParts, Term
from aladin_index.search.results import Role
from aladin_network.errors import EngineUnavailableError, InputError
from aladin_network.scoring.encoding import Encoding

# Rocchio's usual weight of all examples together; those of the parts come with the query.
_EXAMPLES_WEIGHT = 0.75
# Shorter sums have no direction: the parts cancel each other.
_LEAST_LENGTH = 1e-3


class PartScores(NamedTuple):
    """Scores of one part for some items.

    Attributes:
        score: (items,) float32, what the part adds to the items' scores.
        match: (items,) float32, cosines of the embeddings.
        align: (items,) float32, alignment scores, or None if the part was not aligned; both
            without the correction of hubs, which `score` contains.
    """

    score: NDArray[np.float32]
    match: NDArray[np.float32]
    align: NDArray[np.float32] | None

    def take(self, places: NDArray[np.int64]) -> PartScores:
        """Return the scores at some places."""
        align = None if self.align is None else self.align[places]
        return PartScores(self.score[places], self.match[places], align)


class ScoredParts(NamedTuple):
    """Scores of candidates by all parts.

    Attributes:
        total: (items,) float32, the sum of the parts' scores.
        parts: Scores of each part.
        reranked: Whether a part was aligned.
        degraded: Why no part was, although one could be, or None.
    """

    total: NDArray[np.float32]
    parts: Sequence[PartScores]
    reranked: bool
    degraded: Literal["rerank", "rerank_timeout", "rerank_unavailable"] | None


def join_parts(query: EncodedParts, searches: Sequence[ValidSearch]) -> ValidSearch:
    """Make one search of those of the parts.

    Args:
        query: The parts.
        searches: Each part as a search of its own, with the same options and target.

    Returns:
        The search, whose `query` has an embedding and no tokens.

    Raises:
        InputError: If no part says what hits have or are like, the embeddings of the parts cancel
            each other, or an option is given that does not apply.
    """
    if not any(part.role in ("all", "like") for part in query.parts):
        raise InputError("not: expected a part in all or like beside it, got none")
    lead, options = searches[0], searches[0].options
    if options.lexical:
        raise InputError("lexical: expected a query of one text, got several parts")
    if options.min_probability is not None:
        raise InputError("min_probability: hits of a query of several parts have no probability")
    num_examples = sum(part.role == "like" for part in query.parts)
    weights = [_weight(part.role, part.weight, num_examples) for part in query.parts]
    chosen = [
        (weight, search)
        for part, weight, search in zip(query.parts, weights, searches, strict=True)
        if part.role != "not"
    ]
    embedding = np.sum([weight * search.embedding for weight, search in chosen], axis=0)
    dim, collection = lead.collection.entry.embedding_dim, lead.collection
    length = float(np.linalg.norm(embedding[:dim]))
    if length < _LEAST_LENGTH:
        raise InputError("the parts of the query cancel each other")
    embedding = (embedding / length).astype(np.float32)
    no_tokens = np.zeros((0, collection.entry.token_dim), dtype=np.float32)
    takes_all = any(search.is_exhaustive for search in searches)
    searches, moves = move_words(query, searches)
    candidates = lead.candidates
    if any(moves) and options.candidates is None:
        candidates = max(candidates, MOVED_CANDIDATES)
    items = [search.query.own_id for search in searches if not search.is_crossing]
    found = collection.items.by_ids([each for each in items if each is not None])
    return replace(
        lead,
        query=Term(
            Encoding.of_item(embedding[:dim], no_tokens),
            lead.modality,
            decode_ms=query.decode_ms,
            encode_ms=query.encode_ms,
        ),
        candidates=max(collection.count, 1) if takes_all else candidates,
        embedding=embedding,
        tokens=no_tokens,
        second_stage=chosen[0][1].second_stage if len(chosen) == 1 else None,
        is_crossing=any(search.is_crossing for search in searches),
        reranks=True,  # by the parts' scores, in whole blocks of candidates
        is_exhaustive=False,
        calibration=None,
        pool_size=0,
        own_rows=tuple(item.row for item in found if item is not None),
        parts=tuple(
            ValidPart(part.role, weight, search, is_moved)
            for part, weight, search, is_moved in zip(
                query.parts, weights, searches, moves, strict=True
            )
        ),
    )


def _weight(role: Role, weight: float, num_examples: int) -> float:
    """Return the factor of a part's score in the sum."""
    if role == "all":
        return weight
    return -weight if role == "not" else weight * _EXAMPLES_WEIGHT / num_examples


def score_parts(search: ValidSearch, found: Found, clock: RerankDeadline) -> ScoredParts:
    """Score candidates by all parts; without time for the second stage, by the cosines.

    Args:
        search: Search with parts.
        found: Its candidates.
        clock: Stops the scoring at the search's deadline.
    """
    rows, options = found.rows, search.options
    able = [part.search.second_stage is not None and options.rerank for part in search.parts]
    align: list[NDArray[np.float32] | None] = [None] * len(able)
    degraded: Literal["rerank", "rerank_timeout", "rerank_unavailable"] | None = None
    try:
        align = _align(search, rows, able, clock)
    except OutOfTimeError:
        degraded = "rerank_timeout"
    except EngineUnavailableError:
        degraded = "rerank_unavailable"
    if options.rerank and search.is_crossing and search.is_aligned and not any(able):
        degraded = "rerank"
    blocks = [
        slice(start, start + found.candidates)
        for start in range(0, len(rows), found.candidates or 1)
    ]
    parts: list[PartScores] = []
    is_moved = any(
        part.is_moved and each is not None for part, each in zip(search.parts, align, strict=True)
    )
    for part, match, aligned in zip(search.parts, _match(search, rows), align, strict=True):
        biases = _biases(search.collection, part.search, rows)
        corrected = match if biases is None else match - part.search.embedding[-2] * biases[:, 0]
        score = np.zeros(len(rows), dtype=np.float32)
        # Examples that have moved words count by them alone.
        for block in () if is_moved and part.role == "like" else blocks:
            of_block = None if aligned is None else aligned[block]
            score[block] = part.weight * _part_score(part, corrected[block], of_block)
        shown = aligned if aligned is None or biases is None else aligned + biases[:, 1]
        parts.append(PartScores(score, match, shown))
    total = np.stack([part.score for part in parts]).sum(axis=0)
    reranked = any(each is not None for each in align)
    return ScoredParts(total, parts, reranked, degraded)


def _part_score(
    part: ValidPart, match: NDArray[np.float32], align: NDArray[np.float32] | None
) -> NDArray[np.float32]:
    """Return the scores of one block of candidates before they are weighted."""
    fusion, score = part.search.fusion, match
    if align is not None and part.is_moved and part.search.options.fusion is None:
        score = (align - fusion.align_mean) / fusion.align_std
    elif align is not None:
        score = fusion.combine(align, match, part.search.weight)
    if align is None or not part.search.is_crossing:  # scores without fitted constants
        score = (score - score.mean()) / (score.std() or 1)
    if part.role != "not":
        return score
    return np.maximum(score - (score.mean() - score.std()), 0)


def _align(
    search: ValidSearch, rows: NDArray[np.int64], able: Sequence[bool], clock: RerankDeadline
) -> list[NDArray[np.float32] | None]:
    """Return the alignment scores of the parts that have them."""
    began, scored = time.perf_counter(), sum(able) * len(rows)
    found: list[NDArray[np.float32] | None] = []
    for part, is_able in zip(search.parts, able, strict=True):
        of_part = part.search
        align = partial(search.collection.align, of_part.tokens, of_part.modality)
        guarded = clock.guard(align, search.direction, scored, search.deadline_s)
        found.append(guarded(rows) if is_able and len(rows) else None)
    if scored:
        clock.observe(search.direction, scored, time.perf_counter() - began)
    return found


def _match(search: ValidSearch, rows: NDArray[np.int64]) -> Float[np.ndarray, "parts rows"]:
    """Return the cosines of the parts."""
    queries = np.stack([part.search.query.encoding.embedding[0] for part in search.parts])
    if len(rows) == 0:
        return np.empty((len(queries), 0), dtype=np.float32)
    return queries @ search.collection.embeddings(rows.tolist()).T


def _biases(
    collection: Collection, search: ValidSearch, rows: NDArray[np.int64]
) -> Float[np.ndarray, "rows 2"] | None:
    """Return what a hubness correction subtracts from the scores of a search, or None."""
    if not search.is_crossing or not isinstance(collection, FileCollection):
        return None
    if not collection.entry.corrected:
        return None
    return collection.biases(search.tokens, search.modality, rows)
