"""From untrusted bytes to an upright RGB photo."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, features

from aladin.errors import ConfigError, ImageError, ImageTooLargeError
from aladin.image_cost import BoundedReader, check_cost
from aladin.photo_file import PhotoFile

# What is taken from anybody. By content, not by name; each has a decoder that stops at the
# image's own size.
UPLOAD_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
# What is taken from the owner's disk: research data sets also come as PPM, which has a slow form;
# AVIF is an optional part of Pillow.
FORMATS = (*UPLOAD_FORMATS, "PPM", *(("AVIF",) if features.check("avif") else ()))

# Beyond it Pillow itself warns and then refuses; raising its limit would do so for the whole
# process, and for whoever else uses Pillow there.
MOST_PIXELS = 89_478_485

# How to turn a photo upright, by the orientation that its camera noted.
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


@dataclass(frozen=True, kw_only=True)
class ImageLimits:
    """What a picture may be and cost before it is decoded.

    Attributes:
        max_bytes: of the file.
        max_pixels: width times height, at most `MOST_PIXELS`. Decoding takes 4 to 10 bytes each.
        formats: of `FORMATS`.
    """

    max_bytes: int = 32 * 2**20
    max_pixels: int = 64_000_000
    formats: tuple[str, ...] = FORMATS

    def __post_init__(self) -> None:
        if self.max_pixels > MOST_PIXELS:
            raise ConfigError(f"max_pixels: expected at most {MOST_PIXELS}, got {self.max_pixels}")


DEFAULT_LIMITS = ImageLimits()


def read_image(photo: PhotoFile | Path, limits: ImageLimits = DEFAULT_LIMITS) -> Image.Image:
    """Decode a picture on disk; see `decode_image`.

    Raises:
        ImageError: the file is missing or unreadable, or the picture cannot be used.
    """
    file = PhotoFile(photo) if isinstance(photo, Path) else photo
    return decode_image(file.read(limits.max_bytes), file.source, limits)


def decode_image(
    data: bytes,
    source: str = "image",
    limits: ImageLimits = DEFAULT_LIMITS,
    *,
    at_least_px: int | None = None,
) -> Image.Image:
    """Decode the first frame of a picture to upright 8-bit RGB, without its metadata.

    Keeps no state: any number of threads may decode at the same time.

    Args:
        data: the file's bytes, of one of `limits.formats`.
        source: names the picture in errors.
        limits: bytes and pixels; the pixels are read from the header, before decoding.
        at_least_px: what both sides need to have: a decoder that can leave pixels out may then
            return a smaller picture, in a fraction of the time; None: the picture as it is.

    Raises:
        ImageTooLargeError: too many bytes or pixels, or too much work for them.
        ImageError: empty, not a picture, or cut short.
    """
    if not data:
        raise ImageError(source, "0 bytes, not an image")
    if len(data) > limits.max_bytes:
        raise ImageTooLargeError(source, f"{len(data)} bytes, limit {limits.max_bytes}")
    try:
        with Image.open(BoundedReader(data), formats=limits.formats) as picture:
            check_cost(picture, data, source, limits.max_pixels)
            if at_least_px is not None:
                picture.draft(None, (at_least_px, at_least_px))
            picture.load()
            photo = _to_rgb(_turn_upright(picture))
    except ImageError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ImageTooLargeError(source, f"more pixels than {limits.max_pixels}") from error
    except Image.UnidentifiedImageError as error:
        known = ", ".join(limits.formats)
        raise ImageError(source, f"not an image of a known format ({known})") from error
    except Exception as error:  # decoders raise whatever a damaged file makes them raise
        reason = str(error) or type(error).__name__
        raise ImageError(source, f"damaged or cut short ({reason})") from error
    # Encoders would write some of it out again: comments, and the profile of the colours.
    photo.info.clear()
    return photo


def _turn_upright(picture: Image.Image) -> Image.Image:
    try:
        method = _UPRIGHT.get(picture.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # a broken note is common in old photos, and does not spoil them
        return picture
    return picture if method is None else picture.transpose(method)


def _to_rgb(picture: Image.Image) -> Image.Image:
    if picture.mode.startswith(("I", "F")):  # 16-bit grey; converting would clip, so scale
        values = np.array(picture, dtype=np.float32)
        np.nan_to_num(values, copy=False)
        values *= 1.0 if values.max(initial=0) <= 255 else 255.0 / 65535.0
        np.clip(values, 0, 255, out=values)
        return Image.fromarray(values.astype(np.uint8)).convert("RGB")
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        page = Image.new("RGBA", picture.size, "white")
        return Image.alpha_composite(page, picture).convert("RGB")
    return picture if picture.mode == "RGB" else picture.convert("RGB")
