"""What the network takes, on one core: for `benchmarks.constants`."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from aladin.images import read_image
from aladin.inference import encode_photos, encode_texts
from aladin.model import AladinModel
from benchmarks.one_thread import one_thread
from benchmarks.served_index import SIZES, real_size_model
from benchmarks.timing import time_in_turn
from index.plan.constants import EncodingConstants

NETWORK = "MobileNetV2 for photos, BERT's base for texts, random weights, float32"
_PHOTOS, _PHOTO_PX, _TEXTS = 64, (500, 375), 40
# A query of 12 words, as in the other measurements.
_QUERY = "two brown dogs run after a ball on the green wet grass"


def measure_encoding(photos: int = _PHOTOS, texts: int = _TEXTS) -> EncodingConstants:
    """Measure photos as a build encodes them, and queries one at a time.

    Args:
        photos: that are read, decoded and encoded.
        texts: that are timed.
    """
    model = real_size_model([_QUERY], SIZES["bert-base"])
    with one_thread():
        times = time_in_turn({"text": lambda _: encode_texts(model, [_QUERY])}, texts)
        return EncodingConstants(
            network=NETWORK,
            photo_s=_photo_s(model, photos),
            text_s=float(np.median(times["text"])) / 1000,
        )


def _photo_s(model: AladinModel, count: int) -> float:
    random = np.random.default_rng(0)
    width, height = _PHOTO_PX
    with tempfile.TemporaryDirectory() as folder:
        # Smooth, so that its file has the length of a photo's.
        small = random.integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
        path = Path(folder) / "photo.jpg"
        Image.fromarray(small).resize(_PHOTO_PX, Image.Resampling.BICUBIC).save(path, quality=90)
        encode_photos(model, [read_image(path)])  # the first call prepares kernels
        started = time.perf_counter()
        for start in range(0, count, 2):
            encode_photos(model, [read_image(path) for _ in range(start, min(start + 2, count))])
        return (time.perf_counter() - started) / count
