"""What networks read in training, by row: photos and captions, or cached outputs of encoders."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast

from PIL import Image

from aladin_network.encoders.base import (
    Features,
    ImageBatch,
    ImageEncoder,
    ImageInput,
    LayerStates,
    TextBatch,
    TextEncoder,
)
from aladin_network.photos.regions import RegionSet
from aladin_training.batches.feature_cache import FeatureSource
from aladin_training.batches.items import ImageItems, map_in_threads

logger = logging.getLogger(__name__)

CUT = "are longer than the network reads, and cut (max_tokens of its text encoder)"

_TEXTS_A_PART = 4096


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
    """Cached output of an image encoder."""

    features: FeatureSource
    items: ImageItems

    def get(self, rows: Sequence[int], views: Sequence[int]) -> Features:
        """Return the cached features of a batch; in place of a new crop, those of the photo."""
        own = self.items.views
        return self.features.get(
            [
                self.items.key(row, view if view < own else 0)
                for row, view in zip(rows, views, strict=True)
            ]
        )


@dataclass(frozen=True)
class CachedStates:
    """Cached states that enter the last layers of an image encoder, which are trained."""

    features: FeatureSource
    items: ImageItems

    def get(self, rows: Sequence[int], views: Sequence[int]) -> LayerStates:
        """Return the cached states of a batch."""
        return LayerStates(CachedPhotos(self.features, self.items).get(rows, views).states)


@dataclass(frozen=True)
class ReadPhotos:
    """Photos that are read and preprocessed batch by batch, for encoders that are trained.

    All networks of one configuration preprocess alike and share these. Only the photos that
    threads are working on are held in memory decoded.
    """

    encoder: ImageEncoder
    items: ImageItems

    def get(self, rows: Sequence[int], views: Sequence[int]) -> ImageBatch:
        """Return a batch of the encoder's input."""
        return self.encoder.collate(
            list(map_in_threads(list(zip(rows, views, strict=True)), self._one))
        )

    def _one(self, place: tuple[int, int]) -> ImageInput:
        row, view = place
        return preprocess(self.encoder, self.items.load(row, [view])[0])


@dataclass(frozen=True)
class CachedTexts:
    """Cached output of a text encoder."""

    features: FeatureSource
    keys: list[str]

    def get(self, rows: Sequence[int]) -> Features:
        """Return the cached features of a batch."""
        return self.features.get([self.keys[row] for row in rows])


@dataclass(frozen=True)
class TokenisedTexts:
    """Captions that are tokenised batch by batch, for encoders that are trained."""

    encoder: TextEncoder
    texts: list[str]

    def get(self, rows: Sequence[int]) -> TextBatch:
        """Return the tokens of a batch; captions that are too long for the network are cut."""
        return self.encoder.preprocess([self.texts[row] for row in rows], truncate=True)


def warn_of_long_captions(encoder: TextEncoder, captions: Sequence[str]) -> None:
    """Log how many captions are longer than a network reads: they are cut."""
    parts = range(0, len(captions), _TEXTS_A_PART)
    count = sum(encoder.count_too_long(captions[n : n + _TEXTS_A_PART]) for n in parts)
    if count:
        logger.warning("%d of %d captions %s", count, len(captions), CUT)


class NetworkInputs(NamedTuple):
    """Inputs of one network."""

    photos: PhotoInputs
    texts: TextInputs


def preprocess(encoder: ImageEncoder, item: Image.Image | RegionSet) -> ImageInput:
    """Preprocess a photo, its regions, or a document, whichever the encoder reads."""
    return encoder.preprocess(cast(Image.Image, item))
