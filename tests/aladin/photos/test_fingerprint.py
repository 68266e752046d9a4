"""Fingerprints of pictures: their bits, what keeps them, and what does not."""

from __future__ import annotations

import io
import math
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image, ImageEnhance

from aladin_network.photos.fingerprint import (
    ALIKE_BITS,
    COPY_BITS,
    COPY_LOW_BITS,
    different_bits,
    fingerprint,
    unpack,
)


def scene(seed: int, width_px: int = 480, height_px: int = 360) -> Image.Image:
    """Draw a picture with shapes of all sizes, as photos have them."""
    random = np.random.default_rng(seed)
    picture = np.zeros((height_px, width_px, 3))
    for cells in (2, 4, 8, 16, 32):
        noise = random.random((cells, cells, 3)) * 255 / math.sqrt(cells)
        layer = Image.fromarray(noise.astype(np.uint8)).resize(
            (width_px, height_px), Image.Resampling.BICUBIC
        )
        picture += np.asarray(layer, dtype=np.float64)
    picture *= 255 / picture.max()
    return Image.fromarray(picture.astype(np.uint8))


def saved(picture: Image.Image, quality: int) -> Image.Image:
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=quality)
    return Image.open(io.BytesIO(file.getvalue())).convert("RGB")


def margins(picture: Image.Image, share: float) -> Image.Image:
    """Cut a share off each edge."""
    x, y = round(picture.width * share), round(picture.height * share)
    return picture.crop((x, y, picture.width - x, picture.height - y))


COPIES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "compressed": lambda picture: saved(picture, 30),
    "half": lambda picture: saved(picture.resize((240, 180), Image.Resampling.LANCZOS), 80),
    "stretched": lambda picture: picture.resize((224, 224), Image.Resampling.BICUBIC),
    "brighter": lambda picture: ImageEnhance.Brightness(picture).enhance(1.2),
    "darker": lambda picture: ImageEnhance.Brightness(picture).enhance(0.8),
    "more contrast": lambda picture: ImageEnhance.Contrast(picture).enhance(1.2),
    "grey": lambda picture: picture.convert("L").convert("RGB"),
    "cropped": lambda picture: margins(picture, 0.01),
}


def bits_between(first: Image.Image, second: Image.Image) -> tuple[int, int]:
    """How many bits differ: of all, and of the lowest frequencies."""
    pair = [fingerprint(first), fingerprint(second)]
    words = unpack([each for each in pair if each is not None])
    assert len(words) == 2
    return int(different_bits(words[:1], words[1:])[0]), int(
        np.bitwise_count(words[0, 0] ^ words[1, 0])
    )


@pytest.mark.parametrize("change", COPIES.values(), ids=COPIES.keys())
def test_a_copy_is_near(change: Callable[[Image.Image], Image.Image]) -> None:
    for seed in range(4):
        picture = scene(seed)
        bits, low = bits_between(picture, change(picture))
        assert bits <= COPY_BITS and low <= COPY_LOW_BITS


def test_other_pictures_mirrored_and_turned_ones_are_far() -> None:
    pictures = [scene(seed) for seed in range(8)]
    for picture in pictures[1:]:
        assert bits_between(pictures[0], picture)[0] > ALIKE_BITS
    mirrored = pictures[0].transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    assert bits_between(pictures[0], mirrored)[0] > ALIKE_BITS
    turned = pictures[0].transpose(Image.Transpose.ROTATE_180)
    assert bits_between(pictures[0], turned)[0] > ALIKE_BITS


def test_bits_are_the_signs_of_the_frequencies_the_lowest_first() -> None:
    picture = scene(3, 32, 32).convert("L")
    values = np.asarray(picture, dtype=np.float64)

    def sign(u: int, v: int) -> bool:
        total = 0.0
        for y in range(32):
            for x in range(32):
                wave = math.cos(math.pi * u * (2 * y + 1) / 64)
                total += values[y, x] * wave * math.cos(math.pi * v * (2 * x + 1) / 64)
        return total > 0

    low = [(u, v) for u in range(8) for v in range(8)]
    high = [(u, v) for u in range(16) for v in range(16) if max(u, v) >= 8]
    expected = [False, *(sign(u, v) for u, v in (low + high)[1:])]
    found = fingerprint(picture.convert("RGB"))
    assert found is not None and len(found) == 64
    assert np.unpackbits(np.frombuffer(bytes.fromhex(found), dtype=np.uint8)).tolist() == expected


def test_an_empty_picture_has_none() -> None:
    assert fingerprint(Image.new("RGB", (100, 50), (12, 40, 200))) is None
    noise = np.random.default_rng(0).integers(126, 130, (400, 400, 3), dtype=np.uint8)
    assert fingerprint(Image.fromarray(noise)) is None
