"""What a network reads in training: photos and captions, or their cached encoder output.

The output of a frozen encoder comes from a cache, which is filled when a network first needs it;
a trained encoder reads the photos and captions themselves. Encoders share features only if their
weights are equal: a digest of the weights is a part of the cache's key.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, cast

import torch
from PIL import Image
from torch import Tensor, nn

from aladin_network.config import dump_changes
from aladin_network.encoders.base import (
    Features,
    ImageBatch,
    ImageEncoder,
    ImageInput,
    TextBatch,
    TextEncoder,
    concatenate_features,
    to_device,
)
from aladin_network.encoders.tokenized_text import TokenizedTextEncoder
from aladin_network.inference import PHOTOS_AT_A_TIME
from aladin_network.model import AladinModel
from aladin_network.photos.regions import RegionSet
from aladin_network.types import Progress
from aladin_training.batches.feature_cache import FeatureCache, content_digest
from aladin_training.batches.items import ImageItems, map_in_threads
from aladin_training.batches.resident_features import FeatureSource, fastest_source
from aladin_training.parallel.numerics import Precision, mixed_precision

PHOTOS_A_PART = 64
TEXTS_A_PART = 512
# A GPU needs more photos at a time than suit the caches of a CPU; texts are small.
_PHOTOS_AT_A_TIME_ON_GPU = 32


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
        """Return the cached features of a batch."""
        return self.features.get(
            [self.items.key(row, view) for row, view in zip(rows, views, strict=True)]
        )


@dataclass(frozen=True)
class ReadPhotos:
    """Photos that are read and preprocessed batch by batch, for encoders that are trained.

    All networks of one configuration preprocess alike and share these. Only the photos that
    threads are working on are held in memory decoded.
    """

    encoder: ImageEncoder
    items: ImageItems

    def get(self, rows: Sequence[int], views: Sequence[int]) -> ImageBatch:
        """Return a batch of the encoder's input.

        Raises:
            ImageError: If a photo can no longer be read.
        """
        return self.encoder.collate(
            list(map_in_threads(list(zip(rows, views, strict=True)), self._one))
        )

    def _one(self, place: tuple[int, int]) -> ImageInput:
        row, view = place
        return _preprocess(self.encoder, self.items.load(row, [view])[0])


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


class NetworkInputs(NamedTuple):
    """Inputs of one network."""

    photos: PhotoInputs
    texts: TextInputs


class InputStore:
    """Photos and captions of a split, for any network."""

    def __init__(
        self,
        items: ImageItems,
        captions: list[str],
        model: AladinModel,
        cache_root: Path,
        precision: Precision,
        progress: Progress,
    ) -> None:
        """Refer to photos and captions; nothing is encoded yet.

        Args:
            items: Photos, or their regions, by row.
            captions: Captions, and the shorter texts of a training split, by row.
            model: Network that defines how photos and captions are preprocessed.
            cache_root: Folder of all caches.
            precision: Precision of frozen encoders; the cache holds float16 in any case.
            progress: Receives the photos and captions that are encoded.
        """
        self._items = items
        self._captions = captions
        self._cache_root = cache_root
        self._precision: Precision = precision
        self._progress = progress
        self._photos: dict[str, CachedPhotos] = {}
        self._texts: dict[str, CachedTexts] = {}
        # Of encoders that are not frozen, by what their preprocessing depends on.
        self._read_photos: dict[str, ReadPhotos] = {}
        self._tokenised: dict[str, TokenisedTexts] = {}
        self.unencoded = NetworkInputs(
            self._photos_for(model.image.encoder), self._texts_for(model.text.encoder)
        )

    def inputs_of(self, model: AladinModel) -> NetworkInputs:
        """Return the inputs of a network; inputs that two networks share are the same object.

        Args:
            model: Network with the weights for which the inputs are needed.
        """
        image, text = model.image.encoder, model.text.encoder
        return NetworkInputs(
            self._cached_photos(image) if image.frozen else self._photos_for(image),
            self._cached_texts(text) if text.frozen else self._texts_for(text),
        )

    def _photos_for(self, encoder: ImageEncoder) -> ReadPhotos:
        return self._read_photos.setdefault(
            _configuration(encoder), ReadPhotos(encoder, self._items)
        )

    def _texts_for(self, encoder: TokenizedTextEncoder) -> TokenisedTexts:
        key = _configuration(encoder) + encoder.tokenizer.to_str()
        return self._tokenised.setdefault(key, TokenisedTexts(encoder, self._captions))

    def _cached_photos(self, encoder: ImageEncoder) -> CachedPhotos:
        key = image_digest(encoder)
        if key not in self._photos:
            cache = FeatureCache(self._cache_root, key)
            self._fill_photos(encoder, cache)
            keys = [
                self._items.key(row, view)
                for view in range(self._items.views)
                for row in range(len(self._items))
            ]
            features = fastest_source(cache, keys, _device(encoder))
            self._photos[key] = CachedPhotos(features, self._items)
        return self._photos[key]

    def _cached_texts(self, encoder: TokenizedTextEncoder) -> CachedTexts:
        key = text_digest(encoder)
        if key not in self._texts:
            cache = FeatureCache(self._cache_root, key)
            keys = [content_digest(text.encode()) for text in self._captions]
            self._fill_texts(encoder, cache, keys)
            features = fastest_source(cache, keys, _device(encoder))
            self._texts[key] = CachedTexts(features, keys)
        return self._texts[key]

    def _fill_photos(self, encoder: ImageEncoder, cache: FeatureCache) -> None:
        """Add missing photos to the cache, in all their views."""
        views = range(self._items.views)
        missing = [
            (row, absent)
            for row in range(len(self._items))
            if (absent := [view for view in views if self._items.key(row, view) not in cache])
        ]
        self._progress.start(len(missing), "photos")
        for start in range(0, len(missing), PHOTOS_A_PART):
            part = missing[start : start + PHOTOS_A_PART]
            loaded = list(map_in_threads(part, lambda place: self._items.load(*place)))
            for view in views:
                # Two rows may hold the same photo.
                new = {
                    self._items.key(row, view): photos[absent.index(view)]
                    for (row, absent), photos in zip(part, loaded, strict=True)
                    if view in absent and self._items.key(row, view) not in cache
                }
                if new:
                    cache.add(list(new), _encode(encoder, list(new.values()), self._precision))
            self._progress.advance(len(part))

    def _fill_texts(
        self, encoder: TokenizedTextEncoder, cache: FeatureCache, keys: list[str]
    ) -> None:
        """Add missing captions to the cache."""
        missing = {
            key: text for key, text in zip(keys, self._captions, strict=True) if key not in cache
        }
        self._progress.start(len(missing), "captions")
        device = _device(encoder)
        by_length = sorted(missing.items(), key=lambda item: (len(item[1]), item[0]))
        for start in range(0, len(by_length), TEXTS_A_PART):
            part = by_length[start : start + TEXTS_A_PART]
            batch = encoder.preprocess([text for _, text in part], truncate=True)
            with torch.inference_mode(), mixed_precision(self._precision, device):
                features = encoder(to_device(batch, device))
            cache.add([key for key, _ in part], features)
            self._progress.advance(len(part))


def image_digest(encoder: ImageEncoder) -> str:
    """Return a digest of everything that determines a frozen image encoder's output."""
    return _digest(encoder, "")


def text_digest(encoder: TokenizedTextEncoder) -> str:
    """Return a digest of everything that determines a frozen text encoder's output."""
    return _digest(encoder, encoder.tokenizer.to_str())


def _digest(encoder: ImageEncoder | TokenizedTextEncoder, more: str) -> str:
    content = _configuration(encoder) + more + encoder.weights_digest()
    return hashlib.sha256(content.encode()).hexdigest()


def _configuration(encoder: ImageEncoder | TokenizedTextEncoder) -> str:
    # Where the weights come from, and whether they may be trained, does not affect the output.
    config = dataclasses.replace(encoder.config, source=None, frozen=False)
    # Only changed fields: a field added later must not invalidate existing caches.
    return json.dumps(dump_changes(config), sort_keys=True)


@torch.inference_mode()
def _encode(
    encoder: ImageEncoder, photos: Sequence[Image.Image | RegionSet | str], precision: Precision
) -> Features:
    """Encode one part of the photos."""
    device = _device(encoder)
    at_a_time = PHOTOS_AT_A_TIME
    if device.type == "cuda" or encoder.reads == "text":
        at_a_time = _PHOTOS_AT_A_TIME_ON_GPU
    parts: list[Features] = []
    preprocessed = list(map_in_threads(photos, lambda photo: _preprocess(encoder, photo)))
    for start in range(0, len(photos), at_a_time):
        inputs = encoder.collate(preprocessed[start : start + at_a_time])
        if isinstance(inputs, Tensor):
            # Convolutions in this layout are about twice as fast on CPUs.
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        with mixed_precision(precision, device):
            parts.append(encoder(to_device(inputs, device)))
    return concatenate_features(parts)


def _preprocess(encoder: ImageEncoder, item: Image.Image | RegionSet | str) -> ImageInput:
    """Preprocess a photo, its regions, or a document, whichever the encoder reads."""
    return encoder.preprocess(cast(Image.Image, item))


def _device(encoder: object) -> torch.device:
    # An image encoder that shares the weights of the text encoder has none itself.
    owner = getattr(encoder, "text_encoder", encoder)
    return next(cast(nn.Module, owner).parameters()).device
