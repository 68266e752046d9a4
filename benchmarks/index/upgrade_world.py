"""An index of random photos, networks that it is upgraded to, and what they make of everything."""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from aladin_index.build.builder import build_index
from aladin_index.encode.source_items import ImageItem
from aladin_index.settings import BuildSettings
from aladin_network.checkpoint import load_checkpoint, save_checkpoint
from aladin_network.inference import encode_images, encode_texts
from benchmarks.index.upgrade_traffic import Encodings
from benchmarks.lib.small_collection import random_png, small_model, text_of_words

_PHOTO_PX = 32
_ASKING, _TEXTS = 20, 300
# Sizes of the embeddings and tokens of the networks, which follow one another.
_SIZES = ((32, 32), (48, 40), (40, 24), (24, 48))
_PHOTOS_AT_A_TIME = 64


@dataclass(frozen=True)
class World:
    """What the measurement is made of.

    Attributes:
        index: Folder of the index.
        checkpoints: Checkpoints of the networks, the index's own first.
        networks: What they make of all photos and queries.
        texts: Texts to ask with.
        photos: Photos to ask with.
        new: Photos to be added.
        built: Ids of the photos of the index.
    """

    index: Path
    checkpoints: Sequence[Path]
    networks: Sequence[Encodings]
    texts: Sequence[str]
    photos: dict[str, bytes]
    new: dict[str, bytes]
    built: Sequence[str]


def make_world(folder: Path, photos: int) -> World:
    """Draw the photos, encode them by all networks, and build the index.

    Args:
        folder: Folder for all files.
        photos: Number of photos of the index; a tenth as many are there to be added.
    """
    chance, random_words = np.random.default_rng(0), random.Random(0)
    texts = sorted({text_of_words(random_words) for _ in range(_TEXTS)})
    checkpoints: list[Path] = []
    for number, sizes in enumerate(_SIZES):
        checkpoints.append(folder / f"network-{number}")
        save_checkpoint(checkpoints[-1], small_model(*sizes, " ".join(texts)))
    pictures = folder / "photos"
    pictures.mkdir()
    every: dict[str, bytes] = {}
    items: list[ImageItem] = []
    for number in range(photos):
        data, path = random_png(chance, _PHOTO_PX), pictures / f"{number:06d}.png"
        path.write_bytes(data)
        every[f"photo {number}"] = data
        items.append(
            ImageItem(
                id=f"photo {number}",
                path=path,
                uri=path.name,
                text=random_words.choice(texts),
                metadata={"parity": ("even", "odd")[number % 2]},
            )
        )
    new = {f"new {number}": random_png(chance, _PHOTO_PX) for number in range(photos // 10)}
    asking = {f"query {number}": random_png(chance, _PHOTO_PX) for number in range(_ASKING)}
    networks = [_encodings(each, texts, {**every, **new, **asking}) for each in checkpoints]
    build_index(checkpoints[0], folder / "index", items, None, BuildSettings())
    return World(folder / "index", checkpoints, networks, texts, asking, new, [*every])


def _encodings(checkpoint: Path, texts: Sequence[str], photos: dict[str, bytes]) -> Encodings:
    """Encode everything by one network."""
    loaded = load_checkpoint(checkpoint)
    model = loaded.model
    of_texts = encode_texts(model, texts).embedding
    of_photos: dict[str, Any] = {}
    names = [*photos]
    for start in range(0, len(names), _PHOTOS_AT_A_TIME):
        some = names[start : start + _PHOTOS_AT_A_TIME]
        pictures = [Image.open(io.BytesIO(photos[name])).convert("RGB") for name in some]
        inputs = [model.image.encoder.preprocess(picture) for picture in pictures]
        of_photos.update(zip(some, encode_images(model, inputs).embedding, strict=True))
    return Encodings(loaded.model_id, dict(zip(texts, of_texts, strict=True)), of_photos)
