"""From a decoded photo to the image encoder's input, the same everywhere."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor
from transformers import AutoImageProcessor

from aladin.config import ImagePreprocessing
from aladin.errors import CheckpointError, ConfigError

_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


def preprocess_photo(
    photo: Image.Image, config: ImagePreprocessing
) -> Float[Tensor, "3 height width"]:
    """Resize, crop and normalise an RGB photo."""
    x0, y0, x1, y1 = _window_px(photo.width, photo.height, config)
    size = (config.width_px, config.height_px)
    if (photo.width, photo.height) != size or (x0, y0, x1, y1) != (0, 0, *size):
        photo = photo.resize(size, _FILTERS[config.resample], box=(x0, y0, x1, y1))
    values = np.asarray(photo, dtype=np.float32) / 255  # (height, width, 3)
    values = (values - np.array(config.mean, dtype=np.float32)) / np.array(
        config.std, dtype=np.float32
    )
    return torch.from_numpy(np.ascontiguousarray(values.transpose(2, 0, 1)))


def input_window(
    width_px: int, height_px: int, config: ImagePreprocessing
) -> tuple[float, float, float, float]:
    """Return the part of a photo that the network sees, in fractions of its size."""
    x0, y0, x1, y1 = _window_px(width_px, height_px, config)
    return x0 / width_px, y0 / height_px, x1 / width_px, y1 / height_px


def read_preprocessing(source: str) -> ImagePreprocessing:
    """Read the preprocessing that comes with a pretrained encoder.

    Args:
        source: local folder or hub name.

    Raises:
        CheckpointError: there is none, or it cannot be read.
        ConfigError: it does something that `ImagePreprocessing` cannot express.
    """
    try:
        processor = AutoImageProcessor.from_pretrained(source, backend="pil")
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{source}: cannot read its preprocessing ({error})") from error
    size = dict(processor.size)
    crop = dict(processor.crop_size) if getattr(processor, "do_center_crop", False) else None
    shortest_edge = size.get("shortest_edge")
    final = crop or size
    if "height" not in final and shortest_edge is not None:
        final = {"height": shortest_edge, "width": shortest_edge}
    squashed_then_cropped = crop is not None and shortest_edge is None
    if "height" not in final or not processor.do_normalize or squashed_then_cropped:
        raise ConfigError(f"{source}: unsupported preprocessing (size {size}, crop {crop})")
    return ImagePreprocessing(
        height_px=final["height"],
        width_px=final["width"],
        shortest_edge_px=shortest_edge,
        mean=tuple(processor.image_mean),
        std=tuple(processor.image_std),
        resample=Image.Resampling(processor.resample).name.lower(),  # type: ignore[arg-type]
    )


def _window_px(
    width_px: int, height_px: int, config: ImagePreprocessing
) -> tuple[float, float, float, float]:
    if config.shortest_edge_px is None:
        return 0.0, 0.0, float(width_px), float(height_px)
    # Resizing and then cropping is one resample of the crop's window. Sizes are rounded as by the
    # processors of pretrained encoders, so that these see what they were trained on.
    shortest = min(width_px, height_px)
    (x0, x1), (y0, y1) = (
        _kept_px(side, int(config.shortest_edge_px * side / shortest), wanted)
        for side, wanted in ((width_px, config.width_px), (height_px, config.height_px))
    )
    return x0, y0, x1, y1


def _kept_px(side: int, resized: int, wanted: int) -> tuple[float, float]:
    """Return the part of a side that is left if `wanted` of `resized` pixels are kept."""
    start = max(0, (resized - wanted) // 2)
    stop = min(resized, start + wanted)
    return side * start / resized, side * stop / resized
