"""From untrusted bytes to an upright RGB photo."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from aladin.errors import ImageError, ImageTooLargeError
from aladin.photo_file import PhotoFile

# Formats by content, not by name; each has a decoder that stops at the image's own size.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")


@dataclass(frozen=True, kw_only=True)
class ImageLimits:
    """What a picture may cost before it is decoded."""

    max_bytes: int = 32 * 2**20
    max_pixels: int = 64_000_000


DEFAULT_LIMITS = ImageLimits()


def read_image(photo: PhotoFile | Path, limits: ImageLimits = DEFAULT_LIMITS) -> Image.Image:
    """Decode a picture on disk; see `decode_image`.

    Raises:
        ImageError: the file is missing or unreadable, or the picture cannot be used.
    """
    file = PhotoFile(photo) if isinstance(photo, Path) else photo
    return decode_image(file.read(limits.max_bytes), file.source, limits)


def decode_image(
    data: bytes, source: str = "image", limits: ImageLimits = DEFAULT_LIMITS
) -> Image.Image:
    """Decode the first frame of a picture to upright 8-bit RGB.

    Args:
        data: the file's bytes, of one of `FORMATS`.
        source: names the picture in errors.
        limits: bytes and pixels; the pixels are read from the header, before decoding.

    Raises:
        ImageTooLargeError: too many bytes or pixels.
        ImageError: empty, not a picture, or cut short.
    """
    if not data:
        raise ImageError(source, "0 bytes, not an image")
    if len(data) > limits.max_bytes:
        raise ImageTooLargeError(source, f"{len(data)} bytes, limit {limits.max_bytes}")
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as picture:
            pixels = picture.width * picture.height
            if pixels > limits.max_pixels:
                size = f"{picture.width} x {picture.height}"
                raise ImageTooLargeError(source, f"{size} pixels, limit {limits.max_pixels}")
            picture.load()
            return _to_rgb(ImageOps.exif_transpose(picture))
    except ImageError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ImageTooLargeError(source, f"more pixels than {limits.max_pixels}") from error
    except Image.UnidentifiedImageError as error:
        raise ImageError(
            source, f"not an image of a known format ({', '.join(FORMATS)})"
        ) from error
    except Exception as error:  # decoders raise whatever a damaged file makes them raise
        raise ImageError(source, f"damaged or cut short ({error})") from error


def _to_rgb(picture: Image.Image) -> Image.Image:
    if picture.mode.startswith(("I", "F")):  # 16-bit grey; converting would clip, so scale
        values = np.asarray(picture, dtype=np.float32)
        top = 65535.0 if values.max(initial=0) > 255 else 255.0
        return Image.fromarray((values * (255.0 / top)).clip(0, 255).astype(np.uint8)).convert(
            "RGB"
        )
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        page = Image.new("RGBA", picture.size, "white")
        return Image.alpha_composite(page, picture).convert("RGB")
    return picture.convert("RGB")
