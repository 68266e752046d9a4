"""Which pairs of a batch may serve as negatives (C-1 in training/PAPERS.md)."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aladin_network.errors import ShapeError


def negative_mask(
    image_ids: Int[Tensor, " images"], text_image_ids: Int[Tensor, " texts"] | None = None
) -> Bool[Tensor, "images texts"]:
    """Mark the pairs whose image and text do not belong together.

    Two captions of one image in a batch are no negatives of it. The official codes exclude the
    diagonal alone; ``negative_mask(torch.arange(batch))`` gives their mask.

    Args:
        image_ids: Number of each row's image.
        text_image_ids: Number of the image that each column's text describes; None means that
            the batch is a list of pairs, and column n describes row n's image.

    Returns:
        ``N[image, text]``, True at negatives.
    """
    if text_image_ids is None:
        text_image_ids = image_ids
    return image_ids.unsqueeze(1) != text_image_ids.unsqueeze(0)


def diagonal_pairs(
    scores: Float[Tensor, "images texts"], negatives: Bool[Tensor, "images texts"]
) -> Int[Tensor, "pairs 2"]:
    """List the positive pairs of a batch whose row n and column n belong together.

    Raises:
        ShapeError: If the matrix is not square, or the mask has another shape.
    """
    if scores.ndim != 2 or scores.shape[0] != scores.shape[1]:
        raise ShapeError("scores (batch, batch)", tuple(scores.shape))
    check_mask(scores, negatives)
    pair = torch.arange(scores.shape[0], device=scores.device)
    return torch.stack([pair, pair], dim=1)


def hardest_negatives(
    hardness: Float[Tensor, "queries candidates"], negatives: Bool[Tensor, "queries candidates"]
) -> Int[Tensor, " queries"]:
    """Return the column of each query's hardest negative, and 0 for a query that has none.

    Args:
        hardness: What the hardest negative has most of: its score, or by how much it is ahead.
        negatives: True where a candidate may serve as a negative.
    """
    return hardness.masked_fill(~negatives, float("-inf")).argmax(dim=1)


def check_mask(scores: Tensor, negatives: Tensor) -> None:
    """Refuse a mask that would broadcast against the scores.

    Raises:
        ShapeError: If the two shapes differ.
    """
    if scores.shape != negatives.shape:
        raise ShapeError(f"negatives {tuple(scores.shape)}", tuple(negatives.shape))
