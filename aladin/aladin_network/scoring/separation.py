"""Measures of how well a score separates matching pairs from all others."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aladin_network.scoring.metrics import retrieval_ranks

_TEXTS_AT_A_TIME = 256
_IMAGES_AT_A_TIME = 256


class RankSummary(NamedTuple):
    """Centre of a list of ranks, which count from 1.

    Attributes:
        median: Median rank, rounded down like all median ranks.
        mean: Mean, not rounded.
    """

    median: float
    mean: float


class QueryScores(NamedTuple):
    """Scores of the queries of one direction, each (queries,) float64.

    Attributes:
        positive: Mean score of what belongs to the query.
        negative: Mean score of all other candidates; -inf without any.
        hardest: Highest score of these; -inf without any.
    """

    positive: Tensor
    negative: Tensor
    hardest: Tensor


class Separation(NamedTuple):
    """Scores of the queries of both directions.

    Attributes:
        image_to_text: Images that have a text, in their order.
    """

    text_to_image: QueryScores
    image_to_text: QueryScores


def separation_of_queries(
    scores: Float[Tensor, "images texts"], image_of_text: Int[Tensor, " texts"]
) -> Separation:
    """Summarise for each query the scores of its matches and of all others.

    >>> scores = torch.tensor([[0.75, 0.25, 0.5], [0.0, 0.25, 1.0]])
    >>> separation_of_queries(scores, torch.tensor([0, 0, 1])).image_to_text.hardest.tolist()
    [0.5, 0.25]

    Args:
        scores: Scores, where larger is more similar.
        image_of_text: Row of each text's image; an image may have any number of captions.
    """
    n_images, n_texts = scores.shape
    of_images: list[QueryScores] = []
    highest = scores.new_full((n_texts,), float("-inf"), dtype=torch.float64)
    for rows in torch.arange(n_images, device=scores.device).split(_IMAGES_AT_A_TIME):
        block = scores[rows].double()  # (block, texts)
        own = image_of_text == rows.unsqueeze(1)
        others = block.masked_fill(own, float("-inf"))
        highest = torch.maximum(highest, others.amax(dim=0))
        count = own.sum(dim=1)
        sum_own = block.masked_fill(~own, 0).sum(dim=1)
        summary = QueryScores(
            sum_own / count,
            _mean_of_others(block.masked_fill(own, 0).sum(dim=1), n_texts - count),
            others.amax(dim=1),
        )
        asks = count > 0
        of_images.append(QueryScores(*(values[asks] for values in summary)))
    own_of_texts = _of_pairs(scores, image_of_text).double()
    sum_others = scores.sum(dim=0, dtype=torch.float64) - own_of_texts
    rest = torch.full_like(own_of_texts, n_images - 1)
    return Separation(
        text_to_image=QueryScores(own_of_texts, _mean_of_others(sum_others, rest), highest),
        image_to_text=QueryScores(*map(torch.cat, zip(*of_images, strict=True))),
    )


def mean_difference(
    scores: Float[Tensor, "images texts"], image_of_text: Int[Tensor, " texts"]
) -> float:
    """Compute DBL's MD: mean score of positive pairs minus that of all others.

    The paper does not define it. This is the mean score of the positive pairs minus that of all
    other pairs, which fits the range of its tables.

    >>> scores = torch.tensor([[0.9, 0.7, 0.2], [0.1, 0.3, 0.5]])
    >>> round(mean_difference(scores, torch.tensor([0, 0, 1])), 6)
    0.5

    Args:
        scores: Scores, where larger is more similar.
        image_of_text: Row of each text's image; an image may have any number of captions.

    Returns:
        The difference, in the scores' own unit; 0 if one of the two kinds has no pair.
    """
    n_positives = scores.shape[1]
    n_others = scores.numel() - n_positives
    if n_positives == 0 or n_others == 0:
        return 0.0
    positives = float(_of_pairs(scores, image_of_text).double().sum())
    # Row by row: a float32 sum of everything would lose digits, and float64 needs a copy.
    others = float(scores.sum(dim=1).double().sum()) - positives
    return positives / n_positives - others / n_others


def cross_retrieval_ranks(
    scores: Float[Tensor, "images texts"], image_of_text: Int[Tensor, " texts"]
) -> Int[Tensor, " texts"]:
    """Rank each positive pair in both directions at once (AOQ, figure 5).

    With r_i the rank of the pair's image among the images and r_t that of its text among the
    texts, both from 1 and against wrong candidates only, the paper takes max(5 r_i - 4, r_t):
    there are five texts an image, so 5 (r_i - 1) + 1 puts r_i on the texts' scale. Here the 5
    is the number of texts divided by the number of images, and what it makes of r_i is rounded
    up, so that a fraction counts against us, as ties do.

    >>> scores = torch.tensor([[0.9, 0.4, 0.5], [0.1, 0.6, 0.7]])
    >>> cross_retrieval_ranks(scores, torch.tensor([0, 0, 1]))
    tensor([1, 3, 1])

    Args:
        scores: Scores, where larger is more similar.
        image_of_text: Row of each text's image; an image may have any number of captions.

    Returns:
        Ranks from 1, one a text: a text belongs to one image, so it stands for their pair.
    """
    n_images, n_texts = scores.shape
    wrong_images = retrieval_ranks(scores, image_of_text).text_to_image
    scaled = -(-wrong_images * n_texts // n_images)  # rounded up, in integers
    return torch.maximum(scaled, _wrong_texts_ahead(scores, image_of_text)) + 1


def summarize_cross_ranks(ranks: Int[Tensor, " pairs"]) -> RankSummary:
    """Return median and mean of at least one rank."""
    return RankSummary(float(ranks.double().quantile(0.5).floor()), float(ranks.double().mean()))


def _wrong_texts_ahead(
    scores: Float[Tensor, "images texts"], image_of_text: Int[Tensor, " texts"]
) -> Int[Tensor, " texts"]:
    """Count for each text the texts of other images that its image ranks at least as high."""
    right = _of_pairs(scores, image_of_text)
    ahead: list[Tensor] = []
    for texts in torch.arange(scores.shape[1], device=scores.device).split(_TEXTS_AT_A_TIME):
        images = image_of_text[texts]
        behind = scores[images] < right[texts].unsqueeze(1)  # (block, texts)
        wrong = image_of_text != images.unsqueeze(1)
        ahead.append((~behind & wrong).sum(dim=1))
    return torch.cat(ahead)


def _mean_of_others(total: Tensor, count: Tensor) -> Tensor:
    return (total / count.clamp(min=1)).masked_fill(count == 0, float("-inf"))


def _of_pairs(
    scores: Float[Tensor, "images texts"], image_of_text: Int[Tensor, " texts"]
) -> Float[Tensor, " texts"]:
    return scores[image_of_text, torch.arange(scores.shape[1], device=scores.device)]
