"""What the network reads in training: photos and captions, or their cached encoder output."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import torch
from PIL import Image
from torch import Tensor

from aladin.encoders.base import Features, ImageEncoder, TextBatch, TextEncoder
from aladin.errors import ImageError
from aladin.feature_cache import FeatureCache, content_digest
from aladin.images import decode_image
from aladin.inference import PHOTOS_AT_A_TIME
from aladin.photo_file import PhotoFile
from aladin.progress import Progress
from training.precision import Precision, computing
from training.views import apply_view

logger = logging.getLogger(__name__)

PHOTOS_A_PART = 64
TEXTS_A_PART = 512
_THREADS = min(8, os.cpu_count() or 1)  # decoding releases the interpreter lock

S = TypeVar("S")
T = TypeVar("T")


class PhotoInputs(Protocol):
    """Photos by row, in several views."""

    def get(self, rows: Sequence[int], views: Sequence[int]) -> Tensor | Features:
        """Return a batch for `AladinModel.encode_images`; view 0 is the photo itself."""
        ...


class TextInputs(Protocol):
    """Captions by row."""

    def get(self, rows: Sequence[int]) -> TextBatch | Features:
        """Return a batch for `AladinModel.encode_texts`."""
        ...


@dataclass(frozen=True)
class CachedPhotos:
    """Encoder output from the cache; ``keys[view][row]``."""

    cache: FeatureCache
    keys: list[list[str]]

    def get(self, rows: Sequence[int], views: Sequence[int]) -> Features:
        """Return the cached features of a batch."""
        return self.cache.get([self.keys[view][row] for row, view in zip(rows, views, strict=True)])


@dataclass(frozen=True)
class DecodedPhotos:
    """Preprocessed photos in memory, for encoders that are trained; ``pixels[view][row]``."""

    pixels: list[list[Tensor]]

    def get(self, rows: Sequence[int], views: Sequence[int]) -> Tensor:
        """Return (B, 3, height, width) pixels."""
        return torch.stack([self.pixels[view][row] for row, view in zip(rows, views, strict=True)])


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


def prepare_photos(
    photos: Sequence[PhotoFile],
    encoder: ImageEncoder,
    encoder_digest: str,
    cache_root: Path,
    views: Sequence[str],
    precision: Precision,
    progress: Progress,
) -> tuple[PhotoInputs, list[int]]:
    """Make photos ready: through the cache if the encoder is frozen, in memory otherwise.

    Args:
        photos: where their bytes are.
        encoder: the image encoder.
        encoder_digest: see `FeatureCache`.
        cache_root: folder of all caches.
        views: of `view_names`.
        precision: a frozen encoder computes in; the cache keeps float16 anyway.
        progress: told of photos.

    Returns:
        The inputs of the usable photos, and their rows among `photos`; a damaged photo is left
        out with a warning.

    Raises:
        ImageError: a photo file cannot be read.
    """
    progress.start(len(photos), "photos")
    if encoder.frozen:
        cache = FeatureCache(cache_root, encoder_digest)
        return _cache_photos(photos, encoder, cache, views, precision, progress)
    pixels: list[list[Tensor]] = [[] for _ in views]
    usable: list[int] = []
    for row, content in enumerate(_in_threads(photos, PhotoFile.read)):
        progress.advance()
        photo = _try_decode(content, photos[row])
        if photo is None:
            continue
        usable.append(row)
        digest = content_digest(content)
        for of_view, view in zip(pixels, views, strict=True):
            of_view.append(encoder.preprocess(apply_view(photo, view, digest)))
    return DecodedPhotos(pixels), usable


def prepare_texts(
    texts: list[str],
    encoder: TextEncoder,
    encoder_digest: str,
    cache_root: Path,
    precision: Precision,
    progress: Progress,
) -> TextInputs:
    """Make captions ready: through the cache if the encoder is frozen.

    Args:
        texts: captions.
        encoder: the text encoder.
        encoder_digest: see `FeatureCache`.
        cache_root: folder of all caches.
        precision: a frozen encoder computes in.
        progress: told of captions.
    """
    if not encoder.frozen:
        return TokenisedTexts(encoder, texts)
    cache = FeatureCache(cache_root, encoder_digest)
    keys = [content_digest(text.encode()) for text in texts]
    missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in cache}
    progress.start(len(missing), "captions")
    by_length = sorted(missing.items(), key=lambda item: (len(item[1]), item[0]))
    for part in _chunks(by_length, TEXTS_A_PART):
        batch = encoder.preprocess([text for _, text in part], truncate=True)
        with torch.inference_mode(), computing(precision, batch.ids.device):
            features = encoder(batch)
        cache.add([key for key, _ in part], features)
        progress.advance(len(part))
    return CachedTexts(cache, keys)


def _cache_photos(
    photos: Sequence[PhotoFile],
    encoder: ImageEncoder,
    cache: FeatureCache,
    views: Sequence[str],
    precision: Precision,
    progress: Progress,
) -> tuple[PhotoInputs, list[int]]:
    keys: list[list[str]] = [[] for _ in views]
    usable: list[int] = []
    for part in _chunks(list(enumerate(photos)), PHOTOS_A_PART):
        contents = list(_in_threads([file for _, file in part], PhotoFile.read))
        found = [[content_digest(content, view) for content in contents] for view in views]
        decoded: list[Image.Image | None] = [None] * len(part)
        if any(key not in cache for of_view in found for key in of_view):
            with ThreadPoolExecutor(_THREADS) as pool:
                decoded = list(pool.map(_try_decode, contents, [file for _, file in part]))
        for view, of_view in zip(views, found, strict=True):
            new = {
                key: apply_view(photo, view, content_digest(content))
                for key, photo, content in zip(of_view, decoded, contents, strict=True)
                if photo is not None and key not in cache
            }
            if new:
                cache.add(list(new), _encode(encoder, list(new.values()), precision))
        for row, (number, _) in enumerate(part):
            if found[0][row] in cache:
                usable.append(number)
                for kept, of_view in zip(keys, found, strict=True):
                    kept.append(of_view[row])
        progress.advance(len(part))
    return CachedPhotos(cache, keys), usable


@torch.inference_mode()
def _encode(encoder: ImageEncoder, photos: list[Image.Image], precision: Precision) -> Features:
    """Encode the photos of one part, which a photo's size makes equally long."""
    parts: list[Features] = []
    for batch in _chunks(photos, PHOTOS_AT_A_TIME):
        pixels = torch.stack([encoder.preprocess(photo) for photo in batch])
        # Convolutions in this layout are about twice as fast on CPUs.
        pixels = pixels.contiguous(memory_format=torch.channels_last)
        with computing(precision, pixels.device):
            parts.append(encoder(pixels))
    return Features(*(torch.cat(values) for values in zip(*parts, strict=True)))


def _try_decode(content: bytes, file: PhotoFile) -> Image.Image | None:
    try:
        return decode_image(content, file.source)
    except ImageError as error:
        logger.warning("left out: %s", error)
        return None


def _in_threads(items: Sequence[S], work: Callable[[S], T]) -> Iterator[T]:
    """Map over items in a few threads, in order, with bounded look-ahead."""
    with ThreadPoolExecutor(_THREADS) as pool:
        for chunk in _chunks(list(items), 256):
            yield from pool.map(work, chunk)


def _chunks(items: list[T], size: int) -> list[list[T]]:
    return [items[start : start + size] for start in range(0, len(items), size)]
