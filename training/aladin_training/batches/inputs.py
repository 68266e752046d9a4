"""What a network reads in training: photos and captions, or their cached encoder output."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, cast

import torch
from PIL import Image
from torch import Tensor, nn

from aladin_network.config import dump_changes
from aladin_network.encoders.base import (
    DividedEncoder,
    Features,
    ImageBatch,
    ImageEncoder,
    ImageInput,
    LayerStates,
    TextBatch,
    TextEncoder,
    concatenate_features,
    to_device,
)
from aladin_network.inference import PHOTOS_AT_A_TIME
from aladin_network.model import AladinModel
from aladin_network.photos.regions import RegionSet
from aladin_network.types import Progress
from aladin_training.batches.feature_cache import (
    FeatureCache,
    FeatureSource,
    content_digest,
    fastest_source,
)
from aladin_training.batches.items import ImageItems, map_in_threads
from aladin_training.parallel.numerics import Precision, chosen_dtype, mixed_precision

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

    Only the photos that threads are working on are held in memory decoded.
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


PHOTOS_A_PART = 64
TEXTS_A_PART = 512
Encoder = ImageEncoder | TextEncoder

# A GPU needs more photos at a time than suit the caches of a CPU; texts are small.
_PHOTOS_AT_A_TIME_ON_GPU = 32


class Caches(NamedTuple):
    """How and where the outputs of frozen encoders are kept, in float16 at any precision.

    `last_layers` is the number of the image encoder's last layers that some network is trained
    from, on cached states; frozen encoders are then computed from these states, too.
    """

    root: Path
    precision: Precision
    last_layers: int | None = None

    def of_photos(self, encoder: ImageEncoder) -> FeatureCache:
        """Open the cache of an image encoder's output."""
        how = "" if self.last_layers is None else f":last {self.last_layers} layers from states"
        return self.open(encoder, image_digest(encoder), how)

    def open(self, encoder: Encoder, digest: str, how: str = "") -> FeatureCache:
        """Open the cache of what an encoder computes in one way, which is a part of its key."""
        dtype = chosen_dtype(self.precision, _device(encoder))
        return FeatureCache(self.root, f"{digest}:{dtype}{how}")


class InputStore:
    """Photos and captions of a split, for any network."""

    def __init__(
        self,
        items: ImageItems,
        captions: list[str],
        model: AladinModel,
        caches: Caches,
        progress: Progress,
    ) -> None:
        """Refer to photos and captions; nothing is encoded yet."""
        self._items = items
        self._captions = captions
        self._caches = caches
        self._progress = progress
        self._states: dict[str, CachedStates] = {}
        self._photos: dict[str, CachedPhotos] = {}
        self._texts: dict[str, CachedTexts] = {}
        # Of encoders that are not frozen, by what their preprocessing depends on.
        self._read_photos: dict[str, ReadPhotos] = {}
        self._tokenised: dict[str, TokenisedTexts] = {}
        self.unencoded = NetworkInputs(
            self._read(model.image.encoder), self._texts_for(model.text.encoder)
        )

    def inputs_of(self, model: AladinModel) -> NetworkInputs:
        """Return the inputs of a network; inputs that two networks share are the same object."""
        image, text = model.image.encoder, model.text.encoder
        return NetworkInputs(
            self._photos_for(image),
            self._cached_texts(text) if text.frozen else self._texts_for(text),
        )

    def _photos_for(self, encoder: ImageEncoder) -> PhotoInputs:
        if encoder.frozen:
            return self._cached_photos(encoder)
        return self._read(encoder) if encoder.last_layers is None else self._cached_states(encoder)

    def _read(self, encoder: ImageEncoder) -> ReadPhotos:
        return self._read_photos.setdefault(
            _configuration(encoder), ReadPhotos(encoder, self._items)
        )

    def _texts_for(self, encoder: TextEncoder) -> TokenisedTexts:
        key = _configuration(encoder) + encoder.tokenizer.to_str()
        return self._tokenised.setdefault(key, TokenisedTexts(encoder, self._captions))

    def _cached_photos(self, encoder: ImageEncoder) -> CachedPhotos:
        key = image_digest(encoder)
        if key not in self._photos:
            cache, last_layers = self._caches.of_photos(encoder), self._caches.last_layers
            if not all(each in cache for each in self._keys):
                if last_layers is None:
                    self._fill_photos(cache, encoder)
                else:
                    self._fill_from_states(cache, encoder, last_layers)
            features = fastest_source(cache, self._keys, _device(encoder))
            self._photos[key] = CachedPhotos(features, self._items)
        return self._photos[key]

    def _cached_states(self, encoder: ImageEncoder) -> CachedStates:
        """Return the states that enter the last layers of a divided encoder."""
        key = cast(DividedEncoder, encoder).states_digest()
        if key not in self._states:
            cache = self._caches.open(encoder, key)
            self._fill_photos(cache, encoder, states=True)
            features = fastest_source(cache, self._keys, _device(encoder))
            self._states[key] = CachedStates(features, self._items)
        return self._states[key]

    @property
    def _keys(self) -> list[str]:
        """Keys of all photos in all views."""
        views, rows = range(self._items.views), range(len(self._items))
        return [self._items.key(row, view) for view in views for row in rows]

    def _cached_texts(self, encoder: TextEncoder) -> CachedTexts:
        key = text_digest(encoder)
        if key not in self._texts:
            cache = self._caches.open(encoder, key)
            keys = [content_digest(text.encode()) for text in self._captions]
            self._fill_texts(encoder, cache, keys)
            features = fastest_source(cache, keys, _device(encoder))
            self._texts[key] = CachedTexts(features, keys)
        return self._texts[key]

    def _fill_photos(
        self, cache: FeatureCache, encoder: ImageEncoder, states: bool = False
    ) -> None:
        """Add the output of an encoder for missing photos, in all their views."""
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
                    photos_of_view = list(new.values())
                    cache.add(
                        list(new), _encode(encoder, photos_of_view, self._caches.precision, states)
                    )
            self._progress.advance(len(part))

    def _fill_from_states(
        self, cache: FeatureCache, encoder: ImageEncoder, last_layers: int
    ) -> None:
        """Add the output of an encoder for missing photos, from the states of its last layers."""
        encoder.divide(last_layers)
        states = self._cached_states(encoder).features
        missing = [key for key in dict.fromkeys(self._keys) if key not in cache]
        device = _device(encoder)
        self._progress.start(len(missing), "views of photos")
        for start in range(0, len(missing), PHOTOS_A_PART):
            keys = missing[start : start + PHOTOS_A_PART]
            batch = LayerStates(states.get(keys).states.to(device))
            with torch.inference_mode(), mixed_precision(self._caches.precision, device):
                cache.add(keys, encoder(batch))
            self._progress.advance(len(keys))
        encoder.divide(None)

    def _fill_texts(self, encoder: TextEncoder, cache: FeatureCache, keys: list[str]) -> None:
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
            with torch.inference_mode(), mixed_precision(self._caches.precision, device):
                features = encoder(to_device(batch, device))
            cache.add([key for key, _ in part], features)
            self._progress.advance(len(part))


def image_digest(encoder: ImageEncoder) -> str:
    """Return a digest of everything that determines a frozen image encoder's output."""
    return _digest(encoder, "")


def text_digest(encoder: TextEncoder) -> str:
    """Return a digest of everything that determines a frozen text encoder's output."""
    return _digest(encoder, encoder.tokenizer.to_str())


def _digest(encoder: Encoder, more: str) -> str:
    content = _configuration(encoder) + more + encoder.weights_digest()
    return hashlib.sha256(content.encode()).hexdigest()


def _configuration(encoder: Encoder) -> str:
    # Where the weights come from, and whether they may be trained, does not affect the output.
    config = dataclasses.replace(encoder.config, source=None, frozen=False)
    # Only changed fields: a field added later must not invalidate existing caches.
    return json.dumps(dump_changes(config), sort_keys=True)


@torch.inference_mode()
def _encode(
    encoder: ImageEncoder,
    photos: Sequence[Image.Image | RegionSet],
    precision: Precision,
    states: bool = False,
) -> Features:
    """Encode one part of the photos, or return the states that enter the encoder's last layers."""
    device = _device(encoder)
    at_a_time = _PHOTOS_AT_A_TIME_ON_GPU if device.type == "cuda" else PHOTOS_AT_A_TIME
    parts: list[Features] = []
    preprocessed = list(map_in_threads(photos, lambda photo: preprocess(encoder, photo)))
    for start in range(0, len(photos), at_a_time):
        inputs = encoder.collate(preprocessed[start : start + at_a_time])
        if isinstance(inputs, Tensor):
            # Convolutions in this layout are about twice as fast on CPUs.
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        with mixed_precision(precision, device):
            batch = to_device(inputs, device)
            parts.append(_states(encoder, batch) if states else encoder(batch))
    return concatenate_features(parts)


def _states(encoder: ImageEncoder, batch: object) -> Features:
    """Return what enters the last layers in the form in which it is cached."""
    states = cast(DividedEncoder, encoder).layer_states(batch).values
    mask = torch.ones(states.shape[:2], dtype=torch.bool, device=states.device)
    return Features(states, mask, mask)


def _device(encoder: object) -> torch.device:
    # An image encoder that shares the weights of the text encoder has none itself.
    owner = getattr(encoder, "text_encoder", encoder)
    return next(cast(nn.Module, owner).parameters()).device
