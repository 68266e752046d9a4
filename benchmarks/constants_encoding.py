"""What the network takes, on one core: for `benchmarks.constants`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from aladin.images import read_image
from aladin.inference import PHOTOS_AT_A_TIME, encode_photos, encode_texts
from aladin.model import AladinModel
from aladin.query_precision import QueryModels, choose_precision
from benchmarks.one_thread import one_thread
from benchmarks.quiet_time import quiet_median_s, quiet_time
from benchmarks.served_index import SIZES, real_size_model
from index.plan.constants import EncodingConstants

_PHOTOS, _PHOTO_PX, _TEXTS = 64, (500, 375), 20
# A query of 12 words, as in the other measurements.
_QUERY = "two brown dogs run after a ball on the green wet grass"


def measure_encoding(photos: int = _PHOTOS, texts: int = _TEXTS) -> EncodingConstants:
    """Measure photos as a build encodes them, and queries as the service does, one at a time.

    Args:
        photos: that are read, decoded and encoded.
        texts: that are timed.
    """
    model = real_size_model([_QUERY], SIZES["bert-base"])
    precision = choose_precision("auto", torch.device("cpu"))
    asking = QueryModels(precision).for_texts(model)
    with one_thread():
        return EncodingConstants(
            network=f"MobileNetV2 for photos, BERT's base in {precision} for texts",
            photo_s=_photo_s(model, photos),
            text_s=quiet_median_s(lambda _: encode_texts(asking, [_QUERY]), texts),
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
        with quiet_time() as encoded:
            for start in range(0, count, PHOTOS_AT_A_TIME):
                several = min(PHOTOS_AT_A_TIME, count - start)
                encode_photos(model, [read_image(path) for _ in range(several)])
        return encoded.seconds / count
