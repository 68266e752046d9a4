"""Decoding of untrusted bytes to an upright RGB photo."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, ImageFile, features

from aladin_network.errors import AladinError, ConfigError, ImageError, ImageTooLargeError
from aladin_network.photos.files import PhotoFile
from aladin_network.photos.memory import BoundedReader, DecodingMemory, check_cost, decoding_bytes

# Formats accepted from anybody, detected by content, not by name; the decoder of each stops at the
# image's own size.
UPLOAD_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
# Formats accepted from the owner's disk: research data sets also use PPM, which has a slow form;
# AVIF is an optional part of Pillow.
FORMATS = (*UPLOAD_FORMATS, "PPM", *(("AVIF",) if features.check("avif") else ()))

# Above this limit, Pillow itself warns and then refuses; raising its limit would affect the whole
# process, including other users of Pillow.
MOST_PIXELS = 89_478_485

# The longest side that any decoder here supports: that of JPEG.
MOST_SIDE_PX = 65_535

# Number of pixels whose colours are converted at a time, as each of several steps needs memory.
_STRIP_PIXELS = 2**18

# Operation that turns a photo upright, by the orientation in its EXIF data.
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
    """Limits of a picture, checked before it is decoded.

    Attributes:
        max_bytes: Largest size of the file in bytes.
        max_pixels: Maximum of width times height, at most `MOST_PIXELS`. Decoding takes 4 to 17
            bytes per pixel.
        max_side_px: Limit of both width and height. A long thin picture has few pixels, but each
            step on the way to the network's size takes memory by the longer side.
        formats: Accepted formats, among `FORMATS`.
    """

    max_bytes: int = 32 * 2**20
    max_pixels: int = 64_000_000
    max_side_px: int = MOST_SIDE_PX
    formats: tuple[str, ...] = FORMATS

    def __post_init__(self) -> None:
        if self.max_pixels > MOST_PIXELS:
            raise ConfigError(f"max_pixels: expected at most {MOST_PIXELS}, got {self.max_pixels}")


DEFAULT_LIMITS = ImageLimits()


def read_image(photo: PhotoFile | Path, limits: ImageLimits = DEFAULT_LIMITS) -> Image.Image:
    """Decode a picture on disk; see `decode_image`.

    Raises:
        ImageError: If the file is missing or unreadable, or the picture cannot be used.
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
        data: Bytes of the file, in one of the formats `limits.formats`.
        source: Name of the picture in error messages.
        limits: Limits on bytes and pixels; the pixel count is read from the header, before
            decoding.
        at_least_px: Minimum length of both sides: a decoder that can skip pixels may then return a
            smaller picture, in a fraction of the time. None for the picture as it is.

    Raises:
        ImageTooLargeError: If there are too many bytes or pixels, or decoding takes too much work.
        ImageError: If the data is empty, not a picture, or truncated.
    """
    with _opened(data, source, limits, at_least_px) as picture:
        return _decode(picture)


@contextmanager
def decoded_image(
    data: bytes,
    memory: DecodingMemory,
    source: str = "image",
    limits: ImageLimits = DEFAULT_LIMITS,
    *,
    at_least_px: int | None = None,
    room_bytes: int = 0,
) -> Generator[Image.Image]:
    """Decode a picture like `decode_image`, within a limit on the memory of all pictures.

    The memory is reserved from before the picture is decoded until the context ends, so whatever
    is made of the picture is made inside of the context, and the picture is not kept longer.

    Args:
        data: See `decode_image`.
        memory: Where the picture's peak is reserved.
        source: See `decode_image`.
        limits: See `decode_image`.
        at_least_px: See `decode_image`.
        room_bytes: Memory to reserve on top, for what is made of the picture.

    Yields:
        The picture.

    Raises:
        ImageTooLargeError: If `decode_image` raises it, or the picture alone needs more memory than
            there is; also if the system has no memory left for what is made from the picture.
        ImageError: If `decode_image` raises it.
        OverloadedError: If the memory did not become free in time.
        WithdrawnError: If the result is not wanted any more.
    """
    with ExitStack() as reserved:
        with _opened(data, source, limits, at_least_px) as picture:
            needed = decoding_bytes(picture, data) + room_bytes
            reserved.enter_context(memory.reserve(needed, source))
            photo = _decode(picture)
        try:
            yield photo
        except MemoryError as error:
            size = f"{photo.width} x {photo.height}"
            raise ImageTooLargeError(source, f"{size} pixels, too many for the memory") from error
        finally:
            del photo, picture


@contextmanager
def _opened(
    data: bytes, source: str, limits: ImageLimits, at_least_px: int | None
) -> Generator[Image.Image]:
    """Open a picture whose cost is within the limits; every failure is an `ImageError`."""
    if not data:
        raise ImageError(source, "0 bytes, not an image")
    if len(data) > limits.max_bytes:
        raise ImageTooLargeError(source, f"{len(data)} bytes, limit {limits.max_bytes}")
    try:
        with Image.open(BoundedReader(data), formats=limits.formats) as picture:
            check_cost(picture, data, source, limits.max_pixels, limits.max_side_px)
            if at_least_px is not None:
                picture.draft(None, (at_least_px, at_least_px))
            yield picture
    except AladinError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ImageTooLargeError(source, f"more pixels than {limits.max_pixels}") from error
    except Image.UnidentifiedImageError as error:
        known = ", ".join(limits.formats)
        raise ImageError(source, f"not an image of a known format ({known})") from error
    except MemoryError as error:
        raise ImageTooLargeError(source, "decoding it takes more memory than there is") from error
    except Exception as error:  # decoders raise whatever a damaged file makes them raise
        reason = str(error) or type(error).__name__
        raise ImageError(source, f"damaged or cut short ({reason})") from error


def _decode(picture: Image.Image) -> Image.Image:
    picture.load()
    photo = _to_rgb(_turn_upright(picture))
    # Encoders would write some of the metadata out again: comments and the colour profile.
    photo.info.clear()
    return photo


def _turn_upright(picture: Image.Image) -> Image.Image:
    try:
        method = _UPRIGHT.get(picture.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # a broken note is common in old photos, and does not spoil them
        method = None
    if isinstance(picture, ImageFile.ImageFile):
        picture.fp = None  # of a WebP it holds all pixels once more
    if method is None:
        return picture
    turned = picture.transpose(method)
    picture.close()  # its pixels are not needed beside those of the other
    return turned


def _to_rgb(picture: Image.Image) -> Image.Image:
    if picture.mode.startswith(("I", "F")):  # 16-bit grey; converting would clip, so scale
        return _scaled_to_rgb(picture)
    if picture.has_transparency_data:
        return _on_white(picture)
    return picture if picture.mode == "RGB" else picture.convert("RGB")


def _on_white(picture: Image.Image) -> Image.Image:
    """Composite a transparent picture on a white background."""
    photo = Image.new("RGB", picture.size)
    for box in _strips(picture):
        strip = picture.crop(box).convert("RGBA")
        page = Image.new("RGBA", strip.size, "white")
        photo.paste(Image.alpha_composite(page, strip).convert("RGB"), box)
    return photo


def _scaled_to_rgb(picture: Image.Image) -> Image.Image:
    """Convert 16-bit and floating-point grey to 8 bits, scaled by the picture's maximum."""
    largest = max(_strip_values(picture, box).max(initial=0) for box in _strips(picture))
    scale = 1.0 if largest <= 255 else 255.0 / 65535.0
    photo = Image.new("RGB", picture.size)
    for box in _strips(picture):
        values = _strip_values(picture, box)
        values *= scale
        np.clip(values, 0, 255, out=values)
        photo.paste(Image.fromarray(values.astype(np.uint8)).convert("RGB"), box)
    return photo


def _strip_values(picture: Image.Image, box: tuple[int, int, int, int]) -> npt.NDArray[np.float32]:
    values = np.array(picture.crop(box), dtype=np.float32)
    np.nan_to_num(values, copy=False)
    return values


def _strips(picture: Image.Image) -> Iterator[tuple[int, int, int, int]]:
    """Split a picture into boxes of its full width."""
    rows = max(1, _STRIP_PIXELS // max(1, picture.width))
    for top in range(0, picture.height, rows):
        yield 0, top, picture.width, min(top + rows, picture.height)
