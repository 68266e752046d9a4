"""A collection that is indexed in less than a second: random photos, texts, a small network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from aladin.checkpoint import save_checkpoint
from benchmarks.small_model import small_model
from index.building.source_items import ImageItem, TextItem

_WORDS = ["a", "red", "green", "blue", "dog", "bird", "boat", "runs", "flies", "by", "the", "sea"]
_PHOTO_PX = 64


def save_small_network(folder: Path) -> None:
    """Write the checkpoint of a network of some thousand random weights."""
    save_checkpoint(folder, small_model(16, 16, " ".join(_WORDS)))


def write_photos(folder: Path, count: int) -> list[ImageItem]:
    """Write photos of random pixels, one of them broken, and describe them."""
    folder.mkdir()
    random = np.random.default_rng(0)
    items: list[ImageItem] = []
    for number in range(count):
        path = folder / f"{number:04d}.png"
        pixels = random.integers(0, 256, (_PHOTO_PX, _PHOTO_PX, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path, compress_level=0)
        metadata = {"number": number, "parity": ("even", "odd")[number % 2], "tags": ["a", "b"]}
        items.append(ImageItem(id=f"photo {number}", path=path, uri=path.name, metadata=metadata))
    items[count // 2].path.write_bytes(b"broken")
    return items


def make_texts(count: int) -> list[TextItem]:
    """Make texts of one to eight words."""
    random = np.random.default_rng(1)
    return [
        TextItem(id=f"text {number}", text=" ".join(random.choice(_WORDS, 1 + number % 8)))
        for number in range(count)
    ]
