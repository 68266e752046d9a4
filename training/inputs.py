"""What the network reads in training: photos and captions, or their cached encoder output."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import torch
from PIL import Image, ImageOps
from torch import Tensor

from aladin.encoders.base import Features, ImageEncoder, TextBatch, TextEncoder
from aladin.errors import ImageError
from aladin.feature_cache import FeatureCache, content_digest
from aladin.images import decode_image, read_image
from aladin.progress import Progress

logger = logging.getLogger(__name__)

PHOTOS_A_PART = 64
TEXTS_A_PART = 512

T = TypeVar("T")


class PhotoInputs(Protocol):
    """Photos by row."""

    def get(self, rows: Sequence[int], mirrored: Sequence[bool]) -> Tensor | Features:
        """Return a batch for `AladinModel.encode_images`."""
        ...


class TextInputs(Protocol):
    """Captions by row."""

    def get(self, rows: Sequence[int]) -> TextBatch | Features:
        """Return a batch for `AladinModel.encode_texts`."""
        ...


@dataclass(frozen=True)
class CachedPhotos:
    """Encoder output from the cache; ``keys[mirrored][row]``."""

    cache: FeatureCache
    keys: tuple[list[str], list[str]]

    def get(self, rows: Sequence[int], mirrored: Sequence[bool]) -> Features:
        """Return the cached features of a batch."""
        return self.cache.get(
            [self.keys[flip][row] for row, flip in zip(rows, mirrored, strict=True)]
        )


@dataclass(frozen=True)
class DecodedPhotos:
    """Preprocessed photos in memory, for encoders that are trained."""

    pixels: list[Tensor]

    def get(self, rows: Sequence[int], mirrored: Sequence[bool]) -> Tensor:
        """Return (B, 3, height, width) pixels."""
        return torch.stack(
            [
                self.pixels[row].flip(-1) if flip else self.pixels[row]
                for row, flip in zip(rows, mirrored, strict=True)
            ]
        )


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
    paths: Sequence[Path],
    encoder: ImageEncoder,
    encoder_digest: str,
    cache_root: Path,
    mirror: bool,
    progress: Progress,
) -> tuple[PhotoInputs, list[int]]:
    """Make photos ready: through the cache if the encoder is frozen, in memory otherwise.

    Args:
        paths: photo files.
        encoder: the image encoder.
        encoder_digest: see `FeatureCache`.
        cache_root: folder of all caches.
        mirror: also cache the mirrored photos.
        progress: told of photos.

    Returns:
        The inputs of the usable photos, and their rows among `paths`; a damaged photo is left
        out with a warning.
    """
    if encoder.frozen:
        return _cache_photos(paths, encoder, encoder_digest, cache_root, mirror, progress)
    progress.start(len(paths), "photos")
    pixels: list[Tensor] = []
    usable: list[int] = []
    for row, photo in enumerate(_in_threads(paths, _try_read)):
        progress.advance()
        if photo is not None:
            pixels.append(encoder.preprocess(photo))
            usable.append(row)
    return DecodedPhotos(pixels), usable


def prepare_texts(
    texts: list[str],
    encoder: TextEncoder,
    encoder_digest: str,
    cache_root: Path,
    progress: Progress,
) -> TextInputs:
    """Make captions ready: through the cache if the encoder is frozen.

    Args:
        texts: captions.
        encoder: the text encoder.
        encoder_digest: see `FeatureCache`.
        cache_root: folder of all caches.
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
        with torch.inference_mode():
            features = encoder(batch)
        cache.add([key for key, _ in part], features)
        progress.advance(len(part))
    return CachedTexts(cache, keys)


def _cache_photos(
    paths: Sequence[Path],
    encoder: ImageEncoder,
    encoder_digest: str,
    cache_root: Path,
    mirror: bool,
    progress: Progress,
) -> tuple[PhotoInputs, list[int]]:
    cache = FeatureCache(cache_root, encoder_digest)
    variants = ("", "mirrored") if mirror else ("",)
    progress.start(len(paths) * len(variants), "photos")
    keys: tuple[list[str], list[str]] = ([], [])
    usable: list[int] = []
    for part in _chunks(list(enumerate(paths)), PHOTOS_A_PART):
        contents = list(_in_threads([path for _, path in part], _read_bytes))
        found = [
            [content_digest(content, variant) for content in contents]
            for variant in ("", "mirrored")
        ]
        wanted = [found[flip][row] for flip in range(len(variants)) for row in range(len(part))]
        photos: list[Image.Image | None] = [None] * len(part)
        if any(key not in cache for key in wanted):
            sources = [
                (content, str(path)) for content, (_, path) in zip(contents, part, strict=True)
            ]
            photos = list(_in_threads(sources, _try_decode))
        for flip in range(len(variants)):
            new = {
                found[flip][row]: ImageOps.mirror(photo) if flip else photo
                for row, photo in enumerate(photos)
                if photo is not None and found[flip][row] not in cache
            }
            if new:
                pixels = torch.stack([encoder.preprocess(photo) for photo in new.values()])
                with torch.inference_mode():
                    features = encoder(pixels)
                cache.add(list(new), features)
            progress.advance(len(part))
        for row, (number, _) in enumerate(part):
            if found[0][row] in cache:
                usable.append(number)
                keys[0].append(found[0][row])
                keys[1].append(found[1][row])
    return CachedPhotos(cache, keys), usable


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ImageError(str(path), error.strerror or "cannot be read") from error


def _try_read(path: Path) -> Image.Image | None:
    try:
        return read_image(path)
    except ImageError as error:
        logger.warning("left out: %s", error)
        return None


def _try_decode(source: tuple[bytes, str]) -> Image.Image | None:
    try:
        return decode_image(*source)
    except ImageError as error:
        logger.warning("left out: %s", error)
        return None


def _in_threads(items: Sequence[T], work: object) -> Iterator:  # type: ignore[type-arg]
    """Map over items in a few threads (decoding releases the interpreter lock), in order."""
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        for chunk in _chunks(list(items), 256):  # bounded look-ahead
            yield from pool.map(work, chunk)  # type: ignore[arg-type]


def _chunks(items: list[T], size: int) -> list[list[T]]:
    return [items[start : start + size] for start in range(0, len(items), size)]
