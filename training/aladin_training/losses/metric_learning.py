"""The losses of the package pytorch-metric-learning, on the scores of a batch."""

from __future__ import annotations

import importlib
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from aladin_network.errors import ConfigError
from aladin_training.losses.negatives import check_pairs


class MetricLearningLoss(nn.Module):
    """A loss of pytorch-metric-learning in both directions, with the scores as its similarities.

    Photos are the anchors of one direction and captions those of the other; the mean of the two is
    the loss. It sees similarities, whatever its own distance is, and each pair of a batch as a
    positive, a negative or neither. Losses that need labels or embeddings do not fit.

    Attributes:
        rectangular: True, as the loss accepts positive pairs off the diagonal.
    """

    rectangular: ClassVar[bool] = True

    def __init__(self, name: str = "NTXentLoss", **options: Any) -> None:
        """Build the loss.

        Args:
            name: Class in ``pytorch_metric_learning.losses``.
            options: Its own arguments.

        Raises:
            ConfigError: If the package is missing, or has no loss of the name that fits.
        """
        super().__init__()
        try:
            package = importlib.import_module("pytorch_metric_learning").__name__
        except ImportError as error:
            raise ConfigError(
                "loss 'metric_learning' needs a package: pip install pytorch-metric-learning"
            ) from error
        losses, distances = (
            importlib.import_module(f"{package}.{each}") for each in ("losses", "distances")
        )
        if not hasattr(losses, name):
            raise ConfigError(f"metric_learning: pytorch_metric_learning has no loss {name!r}")
        # Several losses insist on this class. Without its normalisation it is the dot product.
        distance = distances.CosineSimilarity()
        distance.normalize_embeddings = False
        try:
            self._loss = getattr(losses, name)(**options, distance=distance)
            self(torch.eye(2), ~torch.eye(2, dtype=torch.bool))
        except (AssertionError, LookupError, NotImplementedError, ValueError) as error:
            raise ConfigError(f"metric_learning: {name} does not take scores ({error})") from error

    def forward(
        self,
        scores: Float[Tensor, "images texts"],
        negatives: Bool[Tensor, "images texts"],
        positives: Int[Tensor, "pairs 2"] | None = None,
    ) -> Float[Tensor, ""]:
        """Average the losses of both directions.

        Args:
            scores: Scores; larger is more similar. Most of these losses assume cosines.
            negatives: True where a pair may serve as a negative.
            positives: (row, column) of each positive pair, or None for the diagonal.

        Raises:
            ShapeError: If `negatives` has not the scores' shape, or the scores are not square
                although no `positives` are given.
        """
        check_pairs(scores, negatives, positives)
        if positives is None:
            positives = torch.arange(len(scores), device=scores.device).repeat(2, 1).T
        of_images = self._one_direction(scores, negatives, positives)
        of_texts = self._one_direction(scores.T, negatives.T, positives.flip(1))
        return (of_images + of_texts) / 2

    def _one_direction(self, scores: Tensor, negatives: Tensor, positives: Tensor) -> Tensor:
        """Apply the loss; rows are the anchors.

        The similarity is a dot product of embeddings. With rows of the scores as those of the
        anchors, and unit vectors as those of the candidates, it is the scores.
        """
        candidates = torch.eye(scores.shape[1], dtype=scores.dtype, device=scores.device)
        pairs = (*positives.unbind(1), *negatives.nonzero().unbind(1))
        return self._loss(scores, indices_tuple=pairs, ref_emb=candidates)
