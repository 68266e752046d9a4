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
        processor = AutoImageProcessor.from_pretrained(source, use_fast=False)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{source}: cannot read its preprocessing ({error})") from error
    size = dict(processor.size)
    crop = dict(processor.crop_size) if getattr(processor, "do_center_crop", False) else None
    shortest_edge = size.get("shortest_edge")
    final = crop or size
    if "height" not in final and shortest_edge is not None:
        final = {"height": shortest_edge, "width": shortest_edge}
    if "height" not in final or not processor.do_normalize:
        raise ConfigError(f"{source}: unsupported preprocessing (size {size}, crop {crop})")
    return ImagePreprocessing(
        height_px=final["height"],
        width_px=final["width"],
        shortest_edge_px=shortest_edge or (size["height"] if crop else None),
        mean=tuple(processor.image_mean),
        std=tuple(processor.image_std),
        resample=Image.Resampling(processor.resample).name.lower(),  # type: ignore[arg-type]
    )


def _window_px(
    width_px: int, height_px: int, config: ImagePreprocessing
) -> tuple[float, float, float, float]:
    if config.shortest_edge_px is None:
        return 0.0, 0.0, float(width_px), float(height_px)
    # Resizing then cropping equals resizing the crop's window: one resample, no rounding.
    scale = min(width_px, height_px) / config.shortest_edge_px
    width, height = config.width_px * scale, config.height_px * scale
    x0, y0 = max(0.0, (width_px - width) / 2), max(0.0, (height_px - height) / 2)
    return x0, y0, min(float(width_px), x0 + width), min(float(height_px), y0 + height)
