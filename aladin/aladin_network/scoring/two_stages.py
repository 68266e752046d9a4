"""Ranks of a two-stage search without an index, and the fusion that is fitted to them."""

from __future__ import annotations

import dataclasses

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aladin_network.scoring.fusion import DirectionFusion, Fusion
from aladin_network.scoring.metrics import Ranks, retrieval_ranks
from aladin_network.types import Direction

# Weights that are tested on the validation split.
_GRID = [step / 20 for step in range(21)]

_QUERIES_AT_A_TIME = 128


def fit_fusion(
    align: Float[Tensor, "images texts"],
    match: Float[Tensor, "images texts"],
    image_of_text: Int[Tensor, " texts"],
    candidates: int = 100,
) -> Fusion:
    """Fit the constants, and choose the weights with the best recalls.

    Args:
        align: Alignment scores of a validation split.
        match: Matching scores of the same pairs.
        image_of_text: Row of each text's image.
        candidates: Number of best candidates by `match` per query that the second stage receives.

    Returns:
        Per direction, the weight with the highest R@1 + R@5 + R@10; of equal ones the largest.
    """
    return Fusion(
        text_to_image=_fit(align, match, image_of_text, candidates, "text_to_image"),
        image_to_text=_fit(align, match, image_of_text, candidates, "image_to_text"),
    )


def _fit(
    align: Tensor, match: Tensor, image_of_text: Tensor, candidates: int, direction: Direction
) -> DirectionFusion:
    axis = 0 if direction == "text_to_image" else 1
    count = min(candidates, match.shape[axis])
    best_match, where = match.topk(count, dim=axis)
    best_align = align.gather(axis, where)
    constants = DirectionFusion(
        align_mean=float(best_align.mean()),
        align_std=_within_query_std(best_align, axis),
        match_mean=float(best_match.mean()),
        match_std=_within_query_std(best_match, axis),
    )
    outside = torch.ones_like(match, dtype=torch.bool).scatter(axis, where, False)

    def hits(weight: float) -> float:
        fused = constants.combine(align, match, weight).masked_fill(outside, float("-inf"))
        ranks = _of(retrieval_ranks(fused, image_of_text), direction)
        return sum(float((ranks < k).double().mean()) for k in (1, 5, 10))

    weight = max(_GRID, key=lambda each: (hits(each), each))
    return dataclasses.replace(constants, weight=weight)


def _within_query_std(values: Tensor, axis: int) -> float:
    return max(float(values.var(dim=axis, correction=0).mean().sqrt()), 1e-6)


def _of(ranks: Ranks, direction: Direction) -> Tensor:
    return ranks.text_to_image if direction == "text_to_image" else ranks.image_to_text


def two_stage_ranks(
    match: Float[Tensor, "images texts"],
    second: Float[Tensor, "images texts"],
    fusion: Fusion,
    image_of_text: Int[Tensor, " texts"],
    num_candidates: int | None = 100,
) -> Ranks:
    """Rank the right answers after each query's best candidates were re-ranked.

    The candidates are a query's best by the first score. They lead, in the order of the second
    stage; all others follow, in the order of the first. Ties count against us in both stages:
    of items with equal first scores the wrong ones become candidates before the right ones, and
    of the wrong ones those that the second stage likes best.

    Args:
        match: Scores of the first stage.
        second: Scores that `fusion` combines with them; with weight 1, they alone order the
            candidates.
        fusion: Constants of the second stage, per direction.
        image_of_text: Row of each text's image; an image may have any number of captions.
        num_candidates: Number of the first stage's candidates, or None for every item: the
            exhaustive order of the second stage.

    Returns:
        Ranks, as `aladin_network.scoring.metrics.retrieval_ranks` counts them.
    """
    n_images, n_texts = match.shape
    images = torch.arange(n_images, device=match.device)
    captioned = torch.bincount(image_of_text, minlength=n_images) > 0
    of_texts = [
        _rank_queries(
            match[:, texts].T,  # (block, images)
            second[:, texts].T,
            image_of_text[texts].unsqueeze(1) == images,
            fusion.text_to_image,
            num_candidates,
        )
        for texts in _blocks(n_texts)
    ]
    of_images = [
        _rank_queries(
            match[rows],  # (block, texts)
            second[rows],
            images[rows].unsqueeze(1) == image_of_text,
            fusion.image_to_text,
            num_candidates,
        )
        for rows in _blocks(n_images)
    ]
    return Ranks(torch.cat(of_texts), torch.cat(of_images)[captioned])


def _rank_queries(
    match: Float[Tensor, "queries items"],
    second: Float[Tensor, "queries items"],
    right: Bool[Tensor, "queries items"],
    fusion: DirectionFusion,
    num_candidates: int | None,
) -> Int[Tensor, " queries"]:
    """Rank each query's best right item; a query without any gets an arbitrary rank."""
    score = fusion.combine(second, match)
    last = _last_candidate(match, num_candidates)  # (queries, 1)
    above, level = match > last, match == last
    # Positions left for the items with the same score as the last candidate, which may be too many.
    places = (match.shape[1] if num_candidates is None else num_candidates) - above.sum(dim=1)
    right_fits = (level & ~right).sum(dim=1) < places
    found = right & (above | (level & right_fits.unsqueeze(1)))
    ahead = ~right & ~(score < _best(score, found))
    reranked = (ahead & above).sum(dim=1) + (ahead & level).sum(dim=1).minimum(places)
    missed = (~right & ~(match < _best(match, right))).sum(dim=1)
    return torch.where(found.any(dim=1), reranked, missed)


def _last_candidate(
    match: Float[Tensor, "queries items"], num_candidates: int | None
) -> Float[Tensor, "queries 1"]:
    """Return the matching score of each query's last candidate; -inf if all are candidates."""
    if num_candidates is None or num_candidates >= match.shape[1]:
        return match.new_full((match.shape[0], 1), float("-inf"))
    return match.topk(num_candidates, dim=1).values[:, -1:]


def _best(
    scores: Float[Tensor, "queries items"], among: Bool[Tensor, "queries items"]
) -> Float[Tensor, "queries 1"]:
    return scores.masked_fill(~among, float("-inf")).amax(dim=1, keepdim=True)


def _blocks(count: int) -> list[slice]:
    return [
        slice(start, start + _QUERIES_AT_A_TIME) for start in range(0, count, _QUERIES_AT_A_TIME)
    ]
