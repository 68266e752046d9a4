"""The input of a training step."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from aladin_network.encoders.base import Features, ImageBatch, TextBatch, to_device


class OfflineBatch(NamedTuple):
    """Negatives drawn from mined lists, pair by pair of the batch (AOQ).

    Attributes:
        images_bar: For each pair, a photo that is hard for its caption.
        texts_bar: For each pair, a caption that is hard for its photo.
        images_tilde: The photos of `texts_bar`.
        texts_tilde: A caption of each photo of `images_bar`.
        cross: False where `images_bar` and `texts_bar` match, so that the pair has no cross terms.
    """

    images_bar: ImageBatch | Features
    texts_bar: TextBatch | Features
    images_tilde: ImageBatch | Features
    texts_tilde: TextBatch | Features
    cross: Bool[Tensor, " pairs"]


class Batch(NamedTuple):
    """B photos with K captions each; text n describes image n // K.

    Attributes:
        images: Collated photos, or cached encoder output.
        texts: B * K tokenised texts, or cached encoder output.
        negatives: (B, B * K) bool, True where image and text may serve as a negative pair.
        offline: Mined negatives of the B pairs, if the stage uses them (K = 1).
        others: The same batch for networks with other inputs: the cached output of their own
            encoders, which differ from the trained network's.
    """

    images: ImageBatch | Features
    texts: TextBatch | Features
    negatives: Tensor
    offline: OfflineBatch | None = None
    others: Mapping[str, Batch] = MappingProxyType({})

    def for_network(self, network: str) -> Batch:
        """Return the batch as another network reads it.

        Args:
            network: A key of `others`; any other name stands for the trained network's own inputs.
        """
        return self.others.get(network, self)._replace(others=self.others)

    def to(self, device: torch.device) -> Batch:
        """Move to a device."""
        offline = self.offline
        if offline is not None:
            offline = OfflineBatch(
                to_device(offline.images_bar, device),
                to_device(offline.texts_bar, device),
                to_device(offline.images_tilde, device),
                to_device(offline.texts_tilde, device),
                offline.cross.to(device),
            )
        return Batch(
            to_device(self.images, device),
            to_device(self.texts, device),
            self.negatives.to(device),
            offline,
            {name: batch.to(device) for name, batch in self.others.items()},
        )
