"""How one term of a query scores items, and how several are joined.

The first stage takes the candidates of one embedding, the weighted sum of those of the terms that
hits have or are like (Rocchio's relevance feedback). A term in `not` chooses no candidates: being
far from it does not make an item relevant. Liked items move the words of texts that are aligned,
and then add nothing themselves; where no text is aligned, they count by their cosines.

Each word of a text that hits have is moved towards the region that fits it best in every item that
hits are like, and is then aligned as usual:

    word' = word + 1/2 mean of its best regions in likes,

L2-normalised. What the marked photos have in common beside the query's words, such as their
background, is not looked for. The factor was chosen on training photos of Flickr8k. On its
validation split this finds more than examples that are compared by their embeddings, which are
therefore left out of the score (`benchmarks/RESULTS.md`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from aladin_index.search.collection import SecondStageQuery
from aladin_index.search.options import SearchOptions
from aladin_index.search.query import Term
from aladin_network.errors import InputError
from aladin_network.scoring.encoding import Encoding
from aladin_network.scoring.fusion import DirectionFusion

# Rocchio's usual weight of all liked items together; those of the other terms come with the query.
_LIKES_WEIGHT = 0.75
# Shorter sums have no direction: the terms cancel each other, or a word is not moved.
_LEAST_LENGTH = 1e-3
_STEP = 0.5
# Moved words find items that the first stage places low: as many candidates at least, unless the
# search says how many. With more, no more right items were found.
MOVED_CANDIDATES = 200


class TermPlan(NamedTuple):
    """How one term scores the candidates.

    Attributes:
        term: The term; if it has a box, its encoding is that of the regions inside.
        embedding: (d_match,) float32, its embedding, L2-normalised.
        stage: Its tokens.
        aligns: Whether the second stage can compare them with the items.
        crosses: Whether the term and the items are of different modalities.
        hubs: Share of the hub correction that applies.
        fusion: Constants of the fusion of both stages' scores.
        weight: Weight of the alignment score in the fusion.
        factor: Factor of the term's score in the total; negative if it counts against a hit.
        is_moved: Whether liked items have moved its words.
    """

    term: Term
    embedding: NDArray[np.float32]
    stage: SecondStageQuery
    aligns: bool
    crosses: bool
    hubs: float
    fusion: DirectionFusion
    weight: float
    factor: float = 1.0
    is_moved: bool = False


def check_joined(options: SearchOptions) -> None:
    if options.lexical:
        raise InputError("lexical: expected a query of one text, got several terms")
    if options.min_probability is not None:
        raise InputError("min_probability: hits of a query of several terms have no probability")


def weighed(terms: Sequence[TermPlan]) -> list[TermPlan]:
    """Give terms the factors of their scores in the sum."""
    likes = sum(each.term.role == "like" for each in terms)
    factors = {"all": 1.0, "not": -1.0, "like": _LIKES_WEIGHT / max(likes, 1)}
    return [
        each._replace(factor=each.term.weight * factors[each.term.role or "all"]) for each in terms
    ]


def joined_embedding(terms: Sequence[TermPlan]) -> tuple[NDArray[np.float32], float]:
    """Return the weighted sum of the terms that choose candidates, and its share of hubs."""
    chosen = [each for each in terms if each.term.role != "not"]
    embedding = np.sum([each.factor * each.embedding for each in chosen], axis=0)
    length = float(np.linalg.norm(embedding))
    if length < _LEAST_LENGTH:
        raise InputError("the terms of the query cancel each other")
    hubs = sum(each.factor * each.hubs for each in chosen) / length
    return (embedding / length).astype(np.float32), hubs


def move_words(terms: Sequence[TermPlan], options: SearchOptions) -> list[TermPlan]:
    """Move the words of texts that are aligned by the liked items that have regions."""
    likes = [
        each.stage.tokens
        for each in terms
        if each.term.role == "like" and not each.crosses and len(each.stage.tokens)
    ]
    if not (likes and options.rerank):
        return list(terms)
    return [
        _with_words(each, moved_words(each.stage.tokens, likes))
        if each.aligns and each.term.role == "all" and each.term.modality == "text"
        else each
        for each in terms
    ]


def _with_words(plan: TermPlan, words: NDArray[np.float32]) -> TermPlan:
    """Return a term with other words, which its evidence shows, too."""
    term = plan.term._replace(encoding=Encoding.of_item(plan.embedding, words))
    stage = plan.stage._replace(tokens=words)
    return plan._replace(term=term, stage=stage, is_moved=True)


def moved_words(
    words: Float[np.ndarray, "words dim"],
    likes: Sequence[Float[np.ndarray, "regions dim"]],
) -> Float[np.ndarray, "words dim"]:
    """Move words towards their best regions in each item; all are L2-normalised."""
    best = [regions[(regions @ words.T).argmax(axis=0)] for regions in likes]
    moved = words + _STEP * np.mean(best, axis=0)
    lengths = np.linalg.norm(moved, axis=1, keepdims=True)
    kept = lengths < _LEAST_LENGTH
    return np.where(kept, words, moved / np.where(kept, 1, lengths)).astype(np.float32)
