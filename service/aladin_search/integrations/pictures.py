"""Photos in the forms that other libraries hand around: pictures, arrays, paths, URLs."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image, ImageOps

from aladin_network.errors import AladinError, ImageTooLargeError, InputError
from aladin_network.photos.decoding import DEFAULT_LIMITS, decode_image, read_image, to_rgb

_FETCH_S = 20.0
_IN_MESSAGE = 80


def picture_of(value: Any) -> Image.Image:
    """Return a photo as an upright RGB picture, as an index decodes it.

    Args:
        value: One of: a picture of Pillow; a uint8 array or tensor with the shape (height, width,
            3) or (3, height, width); the path of a file; an http(s) URL, which is fetched; a data
            URL; a mapping with the single key ``image`` and one of these.

    Raises:
        ImageError: If the photo is missing or damaged.
        ImageTooLargeError: If it has too many bytes or pixels.
        InputError: If the value is of another kind, or the URL cannot be fetched.
    """
    if isinstance(value, Image.Image):
        return to_rgb(ImageOps.exif_transpose(value))
    if isinstance(value, Mapping) and set(value) == {"image"}:
        return picture_of(value["image"])
    if isinstance(value, Path):
        return read_image(value)
    if isinstance(value, str):
        if value.startswith("data:"):
            return decode_image(_data_url(value), "data URL")
        if value.startswith(("http://", "https://")):
            return decode_image(_fetched(value), _short(value))
        return read_image(Path(value))
    if hasattr(value, "__array__"):
        return _of_array(np.asarray(value))
    raise InputError(
        "photo: expected a PIL image, a uint8 array, a path, a URL or a data URL, got "
        f"{type(value).__name__}"
    )


def _of_array(values: np.ndarray[Any, Any]) -> Image.Image:
    shape = tuple(values.shape)
    if values.dtype != np.uint8 or len(shape) != 3 or 3 not in (shape[0], shape[2]):
        raise InputError(
            "photo: expected a uint8 array with the shape (height, width, 3) or (3, height, "
            f"width), got {values.dtype} with the shape {shape}"
        )
    if shape[2] != 3:
        values = values.transpose(1, 2, 0)
    return Image.fromarray(np.ascontiguousarray(values))


def _data_url(url: str) -> bytes:
    header, comma, content = url.partition(",")
    if not comma or not header.endswith(";base64"):
        raise InputError(f"photo: expected a data URL in base64, got {_short(url)!r}")
    try:
        return base64.b64decode(content, validate=True)
    except binascii.Error as error:
        raise InputError(f"photo: invalid base64 in {_short(url)!r} ({error})") from error


def _fetched(url: str) -> bytes:
    """Return the body of a URL's answer, at most as many bytes as a photo may have."""
    limit, parts, size = DEFAULT_LIMITS.max_bytes, list[bytes](), 0
    try:
        with httpx.stream("GET", url, follow_redirects=True, timeout=_FETCH_S) as answer:
            answer.raise_for_status()
            for part in answer.iter_bytes():
                size += len(part)
                if size > limit:
                    raise ImageTooLargeError(_short(url), f"more than {limit} bytes")
                parts.append(part)
    except AladinError:
        raise
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"photo: {_short(url)!r} cannot be fetched ({reason})") from error
    return b"".join(parts)


def _short(url: str) -> str:
    return url if len(url) <= _IN_MESSAGE else f"{url[:_IN_MESSAGE]}..."
