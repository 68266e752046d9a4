"""The input of a training step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from aladin_network.encoders.base import Features, ImageBatch, TextBatch, to_device

P = TypeVar("P")
P2 = TypeVar("P2")
T = TypeVar("T")
T2 = TypeVar("T2")
C = TypeVar("C")
C2 = TypeVar("C2")


class OfflinePairs(NamedTuple, Generic[P, T, C]):
    """Negatives drawn from mined lists for each pair (i, t) of a batch (AOQ).

    Attributes:
        images_bar: For each pair, a photo that is hard for its caption.
        texts_bar: For each pair, a caption that is hard for its photo.
        images_tilde: The photos of `texts_bar`.
        texts_tilde: A random caption of each photo of `images_bar`.
        cross: Whether (images_bar, texts_bar) and (images_tilde, texts_tilde) may serve as
            negative pairs; otherwise the loss drops the pair's cross terms.
    """

    images_bar: P
    texts_bar: T
    images_tilde: P
    texts_tilde: T
    cross: C

    def map(
        self, photos: Callable[[P], P2], texts: Callable[[T], T2], cross: Callable[[C], C2]
    ) -> OfflinePairs[P2, T2, C2]:
        """Replace photos, texts and the mask."""
        return OfflinePairs(
            photos(self.images_bar),
            texts(self.texts_bar),
            photos(self.images_tilde),
            texts(self.texts_tilde),
            cross(self.cross),
        )


# Rows of photos and captions, and what a network reads of them.
OfflineRows = OfflinePairs[list[int], list[int], list[bool]]
OfflineBatch = OfflinePairs[ImageBatch | Features, TextBatch | Features, Tensor]


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
        """Return the batch as another network reads it."""
        return self.others.get(network, self)._replace(others=self.others)

    def to(self, device: torch.device) -> Batch:
        """Move to a device."""
        offline = self.offline
        if offline is not None:
            offline = offline.map(
                lambda photos: to_device(photos, device),
                lambda texts: to_device(texts, device),
                lambda cross: cross.to(device),
            )
        return Batch(
            to_device(self.images, device),
            to_device(self.texts, device),
            self.negatives.to(device),
            offline,
            {name: batch.to(device) for name, batch in self.others.items()},
        )
