"""Ranks of the two stages over all pairs, without an index."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aladin.fusion import DirectionFusion, Fusion
from aladin.metrics import Ranks

_QUERIES_AT_A_TIME = 128


def two_stage_ranks(
    match: Float[Tensor, "images texts"],
    second: Float[Tensor, "images texts"],
    fusion: Fusion,
    image_of_text: Int[Tensor, " texts"],
    num_candidates: int | None = 100,
) -> Ranks:
    """Rank the right answers when the best candidates of each query are ordered anew.

    The candidates are a query's best by the first score. They lead, in the order of the second
    stage; all others follow, in the order of the first. Ties count against us in both stages:
    of items with equal first scores the wrong ones become candidates before the right ones, and
    of the wrong ones those that the second stage likes best.

    Args:
        match: the first stage's scores.
        second: what `fusion` mixes with them; with weight 1 it alone orders the candidates.
        fusion: constants of the second stage, per direction.
        image_of_text: row of each text's image; an image may have any number of captions.
        num_candidates: of the first stage; None: every item, the exhaustive order of the
            second stage.

    Returns:
        Ranks, as `aladin.metrics.retrieval_ranks` counts them.
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
    """Rank each query's best right item; a query that has none gets any number."""
    score = fusion.combine(second, match)
    last = _last_candidate(match, num_candidates)  # (queries, 1)
    above, level = match > last, match == last
    # Places left for the items level with the last candidate, which may be more than fit.
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
    """Return the first score of each query's last candidate; -inf where all are candidates."""
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
