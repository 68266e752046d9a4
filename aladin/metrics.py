"""Retrieval metrics with one convention: ties count against us (objectives 0.5)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class Ranks(NamedTuple):
    """0-based rank of the right answer for each query.

    Attributes:
        text_to_image: for each text, the rank of its image.
        image_to_text: for each image that has a caption, the rank of its best caption.
    """

    text_to_image: Int[Tensor, " texts"]
    image_to_text: Int[Tensor, " images"]


class DirectionMetrics(NamedTuple):
    """Metrics of one direction: recalls in percent, ranks counted from 1."""

    r1: float
    r5: float
    r10: float
    median_rank: float
    mean_rank: float


class RetrievalMetrics(NamedTuple):
    """Metrics of both directions."""

    text_to_image: DirectionMetrics
    image_to_text: DirectionMetrics

    @property
    def rsum(self) -> float:
        """Sum of the six recalls, at most 600."""
        return sum(sum(direction[:3]) for direction in self)


def retrieval_ranks(
    scores: Float[Tensor, "images texts"], image_of_text: Int[Tensor, " texts"]
) -> Ranks:
    """Rank the right answers of all queries of a score matrix.

    >>> scores = torch.tensor([[0.9, 0.8, 0.1], [0.2, 0.8, 0.7]])
    >>> retrieval_ranks(scores, torch.tensor([0, 0, 1])).text_to_image
    tensor([0, 1, 0])

    Args:
        scores: larger is more similar.
        image_of_text: row of each text's image; an image may have any number of captions.

    Returns:
        Ranks; a wrong candidate with an equal score outranks the right one.
    """
    n_images, n_texts = scores.shape
    own = torch.zeros(n_images, n_texts, dtype=torch.bool, device=scores.device)
    own[image_of_text, torch.arange(n_texts, device=scores.device)] = True
    captioned = own.any(dim=1)
    right_text = scores.masked_fill(~own, float("-inf")).amax(dim=1, keepdim=True)  # (images, 1)
    right_image = scores.gather(0, image_of_text.unsqueeze(0))  # (1, texts)
    return Ranks(
        text_to_image=(_at_least(scores, right_image) & ~own).sum(dim=0),
        image_to_text=(_at_least(scores, right_text) & ~own).sum(dim=1)[captioned],
    )


def summarize(ranks: Ranks) -> RetrievalMetrics:
    """Turn ranks into recalls (percent), median and mean rank."""
    return RetrievalMetrics(*(_direction(of_queries) for of_queries in ranks))


def retrieval_metrics(
    scores: Float[Tensor, "images texts"], image_of_text: Int[Tensor, " texts"]
) -> RetrievalMetrics:
    """Compute recalls and ranks of a score matrix; see `retrieval_ranks`.

    >>> perfect = torch.eye(3)
    >>> retrieval_metrics(perfect, torch.arange(3)).rsum
    600.0
    >>> retrieval_metrics(torch.ones(3, 3), torch.arange(3)).text_to_image.r1
    0.0
    """
    return summarize(retrieval_ranks(scores, image_of_text))


def folded_metrics(
    scores: Float[Tensor, "images texts"], image_of_text: Int[Tensor, " texts"], folds: int = 5
) -> RetrievalMetrics:
    """Average the metrics of contiguous blocks of images with their texts (COCO's "1K").

    Args:
        scores: larger is more similar.
        image_of_text: row of each text's image.
        folds: number of blocks; the last ones are one image smaller if it does not divide.

    Returns:
        The mean over the blocks, each ranked among itself.
    """
    blocks: list[RetrievalMetrics] = []
    for rows in torch.arange(scores.shape[0], device=scores.device).tensor_split(folds):
        inside = torch.isin(image_of_text, rows)
        blocks.append(retrieval_metrics(scores[rows][:, inside], image_of_text[inside] - rows[0]))
    return RetrievalMetrics(
        *(
            DirectionMetrics(*(sum(values) / folds for values in zip(*direction, strict=True)))
            for direction in zip(*blocks, strict=True)
        )
    )


class Interval(NamedTuple):
    """A difference with its 95 % bootstrap interval."""

    difference: float
    low: float
    high: float


def paired_bootstrap(
    ours: Ranks,
    theirs: Ranks,
    image_of_text: Int[Tensor, " texts"],
    resamples: int = 1000,
    seed: int = 0,
) -> Interval:
    """Bootstrap the difference of two rsums over the photos, captions drawn with their photo.

    Args:
        ours: ranks of the system that is claimed to be better.
        theirs: ranks of the other one, for the same queries.
        image_of_text: row of each text's image; every image has a caption.
        resamples: number of draws of as many photos, with replacement.
        seed: of the draws.

    Returns:
        rsum of `ours` minus rsum of `theirs`, in points, and its 95 % interval.
    """
    n_images = ours.image_to_text.shape[0]
    gain_text = _hits(ours.text_to_image) - _hits(theirs.text_to_image)  # (texts,)
    gain_image = _hits(ours.image_to_text) - _hits(theirs.image_to_text)  # (images,)
    gain_of_texts = torch.zeros(n_images, dtype=torch.float64).index_add_(
        0, image_of_text, gain_text
    )
    captions = torch.bincount(image_of_text, minlength=n_images).double()

    def rsum_difference(drawn: Tensor) -> Tensor:
        of_texts = gain_of_texts[drawn].sum(-1) / captions[drawn].sum(-1)
        return 100 * (of_texts + gain_image[drawn].mean(-1))

    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(n_images, (resamples, n_images), generator=generator)
    low, high = rsum_difference(drawn).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64))
    return Interval(float(rsum_difference(torch.arange(n_images))), float(low), float(high))


def _at_least(
    scores: Float[Tensor, "images texts"], right: Float[Tensor, ...]
) -> Bool[Tensor, "images texts"]:
    return scores >= right


def _direction(ranks: Int[Tensor, " queries"]) -> DirectionMetrics:
    if ranks.numel() == 0:
        return DirectionMetrics(0.0, 0.0, 0.0, 0.0, 0.0)
    recalls = (100 * float((ranks < k).double().mean()) for k in (1, 5, 10))
    median = float(ranks.double().quantile(0.5).floor()) + 1
    return DirectionMetrics(
        *recalls, median_rank=median, mean_rank=float(ranks.double().mean()) + 1
    )


def _hits(ranks: Int[Tensor, " queries"]) -> Float[Tensor, " queries"]:
    """A query's share of rsum: how many of R@1, R@5, R@10 it hits."""
    return sum((ranks < k).double() for k in (1, 5, 10))  # type: ignore[return-value]
