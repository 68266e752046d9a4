"""What the network reads in training: photos and captions, or their cached encoder output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from aladin.encoders.base import (
    Features,
    ImageBatch,
    ImageEncoder,
    ImageInput,
    TextBatch,
    TextEncoder,
)
from aladin.feature_cache import FeatureCache
from training.image_items import ImageItems, in_threads


class PhotoInputs(Protocol):
    """Photos by row, in several views."""

    def get(self, rows: Sequence[int], views: Sequence[int]) -> ImageBatch | Features:
        """Return a batch for `AladinModel.encode_images`; view 0 is the photo itself."""
        ...


class TextInputs(Protocol):
    """Captions by row."""

    def get(self, rows: Sequence[int]) -> TextBatch | Features:
        """Return a batch for `AladinModel.encode_texts`."""
        ...


@dataclass(frozen=True)
class CachedPhotos:
    """Encoder output from the cache."""

    cache: FeatureCache
    items: ImageItems

    def get(self, rows: Sequence[int], views: Sequence[int]) -> Features:
        """Return the cached features of a batch."""
        return self.cache.get(
            [self.items.key(row, view) for row, view in zip(rows, views, strict=True)]
        )


@dataclass(frozen=True)
class ReadPhotos:
    """Photos read and preprocessed batch by batch, for encoders that are trained.

    Any network of one configuration preprocesses alike, so these suit all of them. Only the
    photos that threads are at work on are in memory decoded.
    """

    encoder: ImageEncoder
    items: ImageItems

    def get(self, rows: Sequence[int], views: Sequence[int]) -> ImageBatch:
        """Return a batch of the encoder's input.

        Raises:
            ImageError: a photo cannot be read any more.
        """
        return self.encoder.collate(
            list(in_threads(list(zip(rows, views, strict=True)), self._one))
        )

    def _one(self, place: tuple[int, int]) -> ImageInput:
        row, view = place
        return self.encoder.preprocess(self.items.load(row, [view])[0])


@dataclass(frozen=True)
class CachedTexts:
    """Encoder output from the cache."""

    cache: FeatureCache
    keys: list[str]

    def get(self, rows: Sequence[int]) -> Features:
        """Return the cached features of a batch."""
        return self.cache.get([self.keys[row] for row in rows])


@dataclass(frozen=True)
class TokenisedTexts:
    """Captions tokenised batch by batch, for encoders that are trained."""

    encoder: TextEncoder
    texts: list[str]

    def get(self, rows: Sequence[int]) -> TextBatch:
        """Return the tokens of a batch; captions longer than the network takes are cut."""
        return self.encoder.preprocess([self.texts[row] for row in rows], truncate=True)
