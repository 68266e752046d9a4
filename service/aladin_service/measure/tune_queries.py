"""Reads and encodes the queries that an index is tuned with."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from aladin_index.encode.region_sources import check_regions
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.measure.fidelity import TuneQueries, queries_of_encoding
from aladin_network.encoders.readers import PhotoInput
from aladin_network.errors import DataError, ImageError, InputError
from aladin_network.inference import Network, encode_images, encode_texts
from aladin_network.photos.decoding import DEFAULT_LIMITS, read_image
from aladin_network.scoring.encoding import Encoding
from aladin_network.types import Modality
from aladin_service.item_sources import image_items, text_items
from aladin_training.data.records import SkippedPhoto, log_skipped
from aladin_training.data.regions import RegionStore

_TEXTS_AT_A_TIME = 64
T = TypeVar("T")


def queries_of(
    source: Path, count: int, regions: RegionStore | None = None
) -> Callable[[Network], Mapping[Modality, TuneQueries]]:
    """Return a function that reads and encodes at most `count` queries of each modality.

    They are drawn evenly from lines of text (``.txt``), or from any source that an index is built
    from: captions are queries for photos, and photos for texts.
    """

    def read(model: Network) -> Mapping[Modality, TuneQueries]:
        queries: dict[Modality, TuneQueries] = {}
        texts = _sample(_texts(source), count)
        if texts:
            queries["text"] = queries_of_encoding(_encode_texts(model, texts), "text")
        if source.suffix.lower() != ".txt":
            items = _items(lambda: image_items(source, None, regions))
            photos = _sample((item for item in items if isinstance(item, ImageItem)), count)
            if photos:
                inputs = _preprocessed(model, photos, regions)
                if not inputs:
                    raise InputError(f"{source}: none of {len(photos)} photos can be read")
                queries["image"] = queries_of_encoding(encode_images(model, inputs), "image")
        if not queries:
            raise InputError(f"{source}: expected texts or photos as queries, got none")
        return queries

    return read


def _texts(source: Path) -> Iterable[str]:
    if source.suffix.lower() == ".txt":
        try:
            lines = source.read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise DataError(source, None, f"cannot be read as text ({error})") from error
        return [line.strip() for line in lines if line.strip()]
    items = _items(lambda: text_items(source, None, report=False))
    return (item.text for item in items if isinstance(item, TextItem))


def _items(read: Callable[[], Iterable[T]]) -> Iterable[T]:
    """Yield items; nothing if the source contains none of this kind."""
    try:
        yield from read()
    except DataError:
        return


def _sample(items: Iterable[T], count: int) -> list[T]:
    """Draw `count` items with equal probability, keeping at most that many in memory."""
    generator = random.Random(0)
    sample: list[T] = []
    for place, item in enumerate(items):
        if place < count:
            sample.append(item)
        elif (slot := generator.randrange(place + 1)) < count:
            sample[slot] = item
    return sample


def _preprocessed(
    model: Network, items: list[ImageItem], regions: RegionStore | None
) -> list[PhotoInput]:
    encoder = model.image.encoder
    check_regions(model, regions)
    if regions is None:
        found: list[PhotoInput] = []
        for item in items:
            try:
                found.append(encoder.preprocess(read_image(item.photo, DEFAULT_LIMITS)))
            except ImageError as error:
                log_skipped(SkippedPhoto(item.id, error.reason))
        return found
    keys = [item.regions_key for item in items if item.regions_key is not None]
    return [encoder.preprocess(regions.read(key)) for key in keys]


def _encode_texts(model: Network, texts: list[str]) -> Encoding:
    return Encoding.concatenate(
        [
            encode_texts(model, texts[start : start + _TEXTS_AT_A_TIME], truncate=True)
            for start in range(0, len(texts), _TEXTS_AT_A_TIME)
        ]
    )
