"""Broken pictures and bombs: a picture or one clear error, whatever was done to the file."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from aladin_network.errors import ImageError, ImageTooLargeError
from aladin_network.photos.decoding import ImageLimits, decode_image
from aladin_network.photos.formats import UPLOAD_FORMATS
from benchmarks.lib.broken_images import bombs, broken_images, seeds

LIMITS = ImageLimits(formats=UPLOAD_FORMATS)
SMALL = ImageLimits(formats=UPLOAD_FORMATS, max_pixels=1_000_000)
# Named here because making them takes a moment, which every process that collects would spend.
LARGE = [
    "png of 2.5 billion pixels",
    "jpeg of 4 billion pixels",
    "gif of 4 billion pixels",
    "webp of 268 million pixels",
    "bmp of 4 billion pixels",
    "tiff with a tile of 3 billion pixels",
]

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:PIL")


@pytest.mark.parametrize("name", list(seeds()))
def test_unbroken_pictures_are_decoded(name: str) -> None:
    photo = decode_image(seeds()[name], limits=LIMITS)
    assert photo.mode == "RGB"
    assert photo.size == ((47, 61) if "exif" in name or "alpha" in name else (61, 47))
    assert not photo.info


@pytest.mark.parametrize("count", [90, pytest.param(2000, marks=pytest.mark.slow)])
def test_broken_pictures_are_pictures_or_one_clear_error(count: int) -> None:
    outcomes = Counter[str]()
    for image in broken_images(count, seed=7):
        started = time.perf_counter()
        try:
            outcomes[decode_image(image.data, limits=SMALL).mode] += 1
        except ImageError as error:
            assert str(error).startswith("image: ")
            outcomes[type(error).__name__] += 1
        assert time.perf_counter() - started < 10, image.name
    assert sum(outcomes.values()) == count
    assert set(outcomes) == {"RGB", "ImageError", "ImageTooLargeError"}
    assert min(outcomes.values()) > 2  # the corpus has some of each


def test_every_large_picture_is_tested() -> None:
    names = [name for name in bombs() if "billion pixels" in name or "68 million" in name]
    assert [name for name in names if not name.startswith("tiff of")] == LARGE


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        *((name, "pixels") for name in LARGE),
        ("jpeg of a thousand scans", "1005 scans of 59290000 pixels"),
        ("png of a million chunks", "more than 100000 parts"),
        ("jpeg of a million comments", "more than 100000 parts"),
        ("gif of comments", "more than 100000 parts"),
    ],
)
def test_a_bomb_is_refused(name: str, reason: str) -> None:
    with pytest.raises(ImageError, match=reason) as caught:
        decode_image(bombs()[name], limits=LIMITS)
    assert isinstance(caught.value, ImageTooLargeError) is ("pixels" in reason)
