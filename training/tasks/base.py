"""The contract between a batch, the network's scores and a loss."""

from __future__ import annotations

from typing import ClassVar, NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from aladin.encoders.base import Features, TextBatch

Tensors = TypeVar("Tensors", bound=Features | TextBatch)


class Batch(NamedTuple):
    """B photos with K captions each; text n describes image n // K.

    Attributes:
        images: preprocessed photos (B, 3, height, width), or cached encoder output.
        texts: B * K tokenised texts, or cached encoder output.
        negatives: (B, B * K) bool, True where image and text may serve as a negative pair.
    """

    images: Tensor | Features
    texts: TextBatch | Features
    negatives: Tensor

    def to(self, device: torch.device) -> Batch:
        """Move to a device."""
        return Batch(
            to_device(self.images, device),
            tuple_to_device(self.texts, device),
            self.negatives.to(device),
        )


class PairScores(NamedTuple):
    """Scores of all pairs of a batch; None where no task of the stage needs them.

    Attributes:
        alignment: of the alignment head.
        matching: cosines of the embeddings.
        captions: cosines of the texts' embeddings.
        teacher: what is to be distilled; the own alignment scores where there is no teacher.
    """

    alignment: Float[Tensor, "images texts"] | None
    matching: Float[Tensor, "images texts"] | None
    captions: Float[Tensor, "texts texts"] | None = None
    teacher: Float[Tensor, "images texts"] | None = None


class PairTask(nn.Module):
    """One term of a stage's loss; owns its loss, and so the loss's trained parameters.

    Attributes:
        needs: the fields of `PairScores` that it reads.
        trains: the scores of the network that its gradient is to better.
    """

    needs: ClassVar[frozenset[str]]
    trains: ClassVar[frozenset[str]]

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, scores: PairScores, negatives: Bool[Tensor, "images texts"]) -> Tensor:
        """Return the scalar loss of a batch."""
        raise NotImplementedError

    def rank(self, scores: Tensor | None, negatives: Bool[Tensor, "images texts"]) -> Tensor:
        """Apply a ranking loss to a matrix in which text n belongs to image n // K."""
        images, texts = negatives.shape
        if images == texts:
            return self.loss(scores, negatives)
        text = torch.arange(texts, device=negatives.device)
        positives = torch.stack([text // (texts // images), text], dim=1)  # (texts, 2)
        return self.loss(scores, negatives, positives)


def to_device(inputs: Tensor | Features, device: torch.device) -> Tensor | Features:
    """Move the input of a tower."""
    return inputs.to(device) if isinstance(inputs, Tensor) else tuple_to_device(inputs, device)


def tuple_to_device(inputs: Tensors, device: torch.device) -> Tensors:
    """Move features or tokenised texts."""
    return type(inputs)(*(part.to(device) for part in inputs))
