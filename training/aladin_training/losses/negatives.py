"""Which pairs of a batch may serve as negatives (C-1 in training/PAPERS.md)."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Bool, Float, Int, Shaped
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


class PairView(NamedTuple):
    """A matrix of images and texts as the positive pairs of a batch see it.

    Attributes:
        own: Value of each pair itself.
        of_image: Row of each pair's image: the image with all texts.
        of_text: Column of each pair's text: the text with all images.
    """

    own: Shaped[Tensor, " pairs"]
    of_image: Shaped[Tensor, "pairs texts"]
    of_text: Shaped[Tensor, "pairs images"]


def by_pairs(
    matrix: Shaped[Tensor, "images texts"], positives: Int[Tensor, "pairs 2"] | None
) -> PairView:
    """Look at a matrix from each positive pair.

    Args:
        matrix: Scores, or a mask.
        positives: (row, column) of each pair, or None for the diagonal, of which nothing is copied.
    """
    if positives is None:
        return PairView(matrix.diagonal(), matrix, matrix.T)
    row, column = positives.unbind(dim=1)
    return PairView(matrix[row, column], matrix[row], matrix.T[column])


def hardest_negatives(
    hardness: Float[Tensor, "queries candidates"], negatives: Bool[Tensor, "queries candidates"]
) -> Int[Tensor, " queries"]:
    """Return the column of each query's hardest negative, and 0 for a query that has none.

    Args:
        hardness: What the hardest negative has most of: its score, or by how much it is ahead.
        negatives: True where a candidate may serve as a negative.
    """
    return hardness.masked_fill(~negatives, float("-inf")).argmax(dim=1)


def check_pairs(
    scores: Tensor, negatives: Tensor, positives: Int[Tensor, "pairs 2"] | None = None
) -> None:
    """Refuse scores without a diagonal of pairs, and a mask that would broadcast against them.

    Raises:
        ShapeError: If the scores are not square although no `positives` are given, or the mask has
            another shape.
    """
    if positives is None and (scores.ndim != 2 or scores.shape[0] != scores.shape[1]):
        raise ShapeError("scores (batch, batch)", tuple(scores.shape))
    check_mask(scores, negatives)


def check_mask(scores: Tensor, negatives: Tensor) -> None:
    """Refuse a mask that would broadcast against the scores.

    Raises:
        ShapeError: If the two shapes differ.
    """
    if scores.shape != negatives.shape:
        raise ShapeError(f"negatives {tuple(scores.shape)}", tuple(negatives.shape))
