"""What a training step works on."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Bool
from torch import Tensor

from aladin.encoders.base import Features, TextBatch

Tensors = TypeVar("Tensors", bound=Features | TextBatch)


class OfflineBatch(NamedTuple):
    """Negatives drawn from mined lists, pair by pair of the batch (AOQ).

    Attributes:
        images_bar: for each pair, a photo that is hard for its caption.
        texts_bar: for each pair, a caption that is hard for its photo.
        images_tilde: the photos of `texts_bar`.
        texts_tilde: a caption of each photo of `images_bar`.
        cross: False where `images_bar` and `texts_bar` belong together, so that the pair has no
            cross terms.
    """

    images_bar: Tensor | Features
    texts_bar: TextBatch | Features
    images_tilde: Tensor | Features
    texts_tilde: TextBatch | Features
    cross: Bool[Tensor, " pairs"]


class Batch(NamedTuple):
    """B photos with K captions each; text n describes image n // K.

    Attributes:
        images: preprocessed photos (B, 3, height, width), or cached encoder output.
        texts: B * K tokenised texts, or cached encoder output.
        negatives: (B, B * K) bool, True where image and text may serve as a negative pair.
        offline: mined negatives of the B pairs, where the stage has them (K = 1).
    """

    images: Tensor | Features
    texts: TextBatch | Features
    negatives: Tensor
    offline: OfflineBatch | None = None

    def to(self, device: torch.device) -> Batch:
        """Move to a device."""
        offline = self.offline
        if offline is not None:
            offline = OfflineBatch(
                to_device(offline.images_bar, device),
                tuple_to_device(offline.texts_bar, device),
                to_device(offline.images_tilde, device),
                tuple_to_device(offline.texts_tilde, device),
                offline.cross.to(device),
            )
        return Batch(
            to_device(self.images, device),
            tuple_to_device(self.texts, device),
            self.negatives.to(device),
            offline,
        )


def to_device(inputs: Tensor | Features, device: torch.device) -> Tensor | Features:
    """Move the input of a tower."""
    return inputs.to(device) if isinstance(inputs, Tensor) else tuple_to_device(inputs, device)


def tuple_to_device(inputs: Tensors, device: torch.device) -> Tensors:
    """Move features or tokenised texts."""
    return type(inputs)(*(part.to(device) for part in inputs))
