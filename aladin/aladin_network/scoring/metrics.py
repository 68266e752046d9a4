"""Retrieval metrics; ties count against the right answer (C-2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

_IMAGES_AT_A_TIME = 256


class Ranks(NamedTuple):
    """0-based rank of the right answer for each query.

    Attributes:
        text_to_image: Rank of the image for each text.
        image_to_text: Rank of the best caption for each image that has a caption.
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
    scores: Float[Tensor, "images texts"],
    image_of_text: Int[Tensor, " texts"],
    ties: Literal["against", "for"] = "against",
) -> Ranks:
    """Compute the ranks of the right answers of all queries of a score matrix.

    >>> scores = torch.tensor([[0.9, 0.8, 0.1], [0.2, 0.8, 0.7]])
    >>> retrieval_ranks(scores, torch.tensor([0, 0, 1])).text_to_image
    tensor([0, 1, 0])

    Args:
        scores: Scores, where larger is more similar.
        image_of_text: Row of each text's image; an image may have any number of captions.
        ties: "against": a wrong candidate with an equal score outranks the right one; "for": it
            does not, and a network that gives all pairs one score is perfect (C-2).

    Returns:
        Ranks.
    """
    n_images, n_texts = scores.shape
    right = scores[image_of_text, torch.arange(n_texts, device=scores.device)]  # (texts,)
    best = scores.new_full((n_images,), float("-inf"))
    best = best.scatter_reduce(0, image_of_text, right, "amax")  # (images,)
    ahead_of_image = torch.zeros_like(image_of_text)
    ahead_of_texts: list[Tensor] = []
    # In blocks of images: counting in a whole matrix would take eight bytes per pair.
    for rows in torch.arange(n_images, device=scores.device).split(_IMAGES_AT_A_TIME):
        block = scores[rows]
        wrong = image_of_text != rows.unsqueeze(1)  # (block, texts)
        ahead_of_image += (_outranks(block, right, ties) & wrong).sum(dim=0)
        ahead_of_texts.append((_outranks(block, best[rows].unsqueeze(1), ties) & wrong).sum(dim=1))
    captioned = torch.bincount(image_of_text, minlength=n_images) > 0
    return Ranks(text_to_image=ahead_of_image, image_to_text=torch.cat(ahead_of_texts)[captioned])


def summarize(ranks: Ranks) -> RetrievalMetrics:
    """Summarise ranks as recalls (percent), median and mean rank."""
    return RetrievalMetrics(*(_direction(of_queries) for of_queries in ranks))


def _outranks(
    scores: Float[Tensor, "images texts"],
    right: Float[Tensor, ...],
    ties: Literal["against", "for"],
) -> Bool[Tensor, "images texts"]:
    # "Not below" rather than "at least": a NaN score also counts against the right answer.
    return ~(scores < right) if ties == "against" else ~(scores <= right)


def retrieval_metrics(
    scores: Float[Tensor, "images texts"],
    image_of_text: Int[Tensor, " texts"],
    ties: Literal["against", "for"] = "against",
) -> RetrievalMetrics:
    """Compute recalls and ranks of a score matrix; see `retrieval_ranks`.

    >>> perfect = torch.eye(3)
    >>> retrieval_metrics(perfect, torch.arange(3)).rsum
    600.0
    >>> retrieval_metrics(torch.ones(3, 3), torch.arange(3)).text_to_image.r1
    0.0
    """
    return summarize(retrieval_ranks(scores, image_of_text, ties))


def folded_metrics(
    scores: Float[Tensor, "images texts"], image_of_text: Int[Tensor, " texts"], folds: int = 5
) -> RetrievalMetrics:
    """Average the metrics of contiguous blocks of images with their texts (COCO's "1K")."""
    return mean_metrics(
        [
            retrieval_metrics(scores[block.images, block.texts], block.image_of_text)
            for block in fold_blocks(scores.shape[0], image_of_text, folds)
        ]
    )


class Block(NamedTuple):
    """A part of a split that is evaluated on its own.

    Attributes:
        images: Column of the images' rows, to be broadcast against `texts`.
        texts: Rows of the texts of these images.
        image_of_text: Row within the block of each of these texts' image.
    """

    images: Int[Tensor, "block 1"]
    texts: Int[Tensor, " block_texts"]
    image_of_text: Int[Tensor, " block_texts"]

    def inside(self, scores: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Cut the block out of some scores of the whole split, (images, texts) each."""
        return {name: each[self.images, self.texts] for name, each in scores.items()}


def fold_blocks(n_images: int, image_of_text: Int[Tensor, " texts"], folds: int) -> list[Block]:
    """Cut a split into contiguous blocks of images with their texts.

    Args:
        n_images: Number of images of the split.
        image_of_text: Row of each text's image.
        folds: Number of blocks; the last ones are one image smaller if the number of images is not
            a multiple.

    Returns:
        The blocks that have a text: one without has no query.
    """
    blocks: list[Block] = []
    for rows in torch.arange(n_images, device=image_of_text.device).tensor_split(folds):
        texts = torch.isin(image_of_text, rows).nonzero().squeeze(1)
        if texts.numel():
            blocks.append(Block(rows.unsqueeze(1), texts, image_of_text[texts] - rows[0]))
    return blocks


def ranks_in_blocks(
    rank: Callable[[Block], dict[str, Ranks]],
    n_images: int,
    image_of_text: Int[Tensor, " texts"],
    folds: int,
) -> dict[str, Ranks]:
    """Rank the queries of each block of a split among the block's own items, see `fold_blocks`.

    Args:
        rank: Ranks one block's queries by several scores.
        n_images: Number of images of the split.
        image_of_text: Row of each text's image.
        folds: Number of blocks.

    Returns:
        The ranks of all queries of the split in its own order, by score.
    """
    blocks = fold_blocks(n_images, image_of_text, folds)
    parts = [rank(block) for block in blocks]
    merged: dict[str, Ranks] = {}
    for name in parts[0]:
        of_texts = torch.empty_like(image_of_text)
        for block, part in zip(blocks, parts, strict=True):
            of_texts[block.texts] = part[name].text_to_image
        of_images = torch.cat([part[name].image_to_text for part in parts])
        merged[name] = Ranks(of_texts, of_images)
    return merged


def mean_metrics(blocks: Sequence[RetrievalMetrics]) -> RetrievalMetrics:
    """Average the metrics of at least one block, each metric separately."""
    return RetrievalMetrics(
        *(
            DirectionMetrics(
                *(sum(values) / len(blocks) for values in zip(*direction, strict=True))
            )
            for direction in zip(*blocks, strict=True)
        )
    )


def _direction(ranks: Int[Tensor, " queries"]) -> DirectionMetrics:
    if ranks.numel() == 0:
        return DirectionMetrics(0.0, 0.0, 0.0, 0.0, 0.0)
    recalls = (100 * float((ranks < k).double().mean()) for k in (1, 5, 10))
    median = float(ranks.double().quantile(0.5).floor()) + 1
    return DirectionMetrics(
        *recalls, median_rank=median, mean_rank=float(ranks.double().mean()) + 1
    )
