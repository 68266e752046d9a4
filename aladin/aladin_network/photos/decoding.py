"""Decoding of untrusted bytes to an upright RGB photo: one policy for all photos.

A picture with more pixels than the limit is refused, unless it is a JPEG: its decoder can skip
pixels, and returns a half, a quarter or an eighth of its size. The limit therefore concerns decoded
pixels; `check_cost` limits the work on all others. Of a camera RAW the embedded JPEG is decoded. A
file that is cut short is used if at most a tenth of the picture is missing, as viewers show it.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, ImageFile

from aladin_network.errors import AladinError, ConfigError, ImageError, ImageTooLargeError
from aladin_network.photos.fields import Details, over
from aladin_network.photos.files import PhotoFile
from aladin_network.photos.formats import (
    FORMATS,
    is_raw,
    missing_decoder,
    raw_preview,
    register_heif,
)
from aladin_network.photos.grey import GreyRange, grey_to_rgb, stated_range, strips
from aladin_network.photos.memory import (
    BoundedReader,
    MemoryBudget,
    check_cost,
    decoding_bytes,
    lacks_scans,
    shrink_jpeg,
)
from aladin_network.photos.metadata import file_details

# The longest side that any decoder here supports: that of JPEG.
MOST_SIDE_PX = 65_535
MOST_PIXELS = MOST_SIDE_PX**2

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
_SIDEWAYS = (5, 6, 7, 8)

# Share of a picture's rows that may be missing in a file that is cut short.
_MOST_MISSING = 0.1
# Formats whose decoders here write rows as they come; what is missing remains black, or grey in a
# JPEG.
_IN_ROWS = frozenset({"JPEG", "MPO", "PNG", "BMP", "TIFF", "PPM"})
_END_OF_JPEG = b"\xff\xd9"
# Height of the blocks in which a JPEG is decoded, and of their borders.
_BLOCK_ROWS, _BORDER_ROWS = 16, 3


@dataclass(frozen=True, kw_only=True)
class ImageLimits:
    """Limits of a picture, checked before it is decoded.

    Attributes:
        max_bytes: Largest size of the file in bytes.
        max_pixels: Maximum of width times height of the decoded picture, at most `MOST_PIXELS`; a
            JPEG with more is decoded at a reduced size. Decoding takes 4 to 17 bytes per pixel.
        max_side_px: Limit of both width and height of the decoded picture. A long thin picture has
            few pixels, but each step on the way to the network's size takes memory by the longer
            side.
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

# Metadata field of a photo that is used although its file is cut short.
DAMAGE = "damage"


@dataclass(frozen=True)
class _Photo:
    """A picture with what its file tells about it.

    Attributes:
        picture: The picture; of a camera RAW its preview.
        size_px: Width and height in the file, before a JPEG is shrunk; upright once it is decoded.
        metadata: Fields of `aladin_network.photos.fields`; before it is decoded, those that a RAW
            tells outside of its preview.
    """

    picture: Image.Image
    size_px: tuple[int, int]
    metadata: Details


@dataclass(frozen=True)
class OpenedPhoto(_Photo):
    """A picture within the limits, not decoded yet.

    Attributes:
        data: Bytes of the picture's file; of a camera RAW those of its preview.
        orientation: Orientation by EXIF of a RAW whose preview does not tell it, or 1.
    """

    data: bytes
    orientation: int = 1

    @property
    def is_upright(self) -> bool:
        """Whether the picture needs no turning, as far as the header tells."""
        try:
            # Not the method of the PNG class, which decodes all pixels to find the data that follow
            # them.
            exif = Image.Image.getexif(self.picture)
        except Exception:  # broken EXIF data are common in old photos, and do not spoil them
            return self.orientation not in _UPRIGHT
        return exif.get(ExifTags.Base.Orientation, self.orientation) not in _UPRIGHT


@dataclass(frozen=True)
class DecodedPhoto(_Photo):
    """An upright RGB photo, of fewer pixels than `size_px` if a JPEG was shrunk.

    Attributes:
        damage: What is missing in a file that is cut short, or None.
    """

    damage: str | None = None

    def details(self, *, exif: bool) -> Details:
        """Return what is stored with the photo: its damage, and with `exif` its metadata."""
        damage: Details = {} if self.damage is None else {DAMAGE: self.damage}
        return {**(self.metadata if exif else {}), **damage}


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
        limits: Limits on bytes and pixels; the size is read from the header, before decoding.
        at_least_px: Minimum length of both sides: a decoder that can skip pixels may then return a
            smaller picture, in a fraction of the time. None for the picture as it is.

    Raises:
        ImageTooLargeError: If there are too many bytes or pixels, or decoding takes too much work.
        ImageError: If the data is empty, not a picture, or lacks more than a tenth of it.
    """
    with opened_image(data, source, limits, at_least_px) as opened:
        return _decode(opened).picture


@contextmanager
def decoded_image(
    data: bytes,
    memory: MemoryBudget,
    source: str = "image",
    limits: ImageLimits = DEFAULT_LIMITS,
    *,
    at_least_px: int | None = None,
    room_bytes: int = 0,
) -> Generator[DecodedPhoto]:
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
        with opened_image(data, source, limits, at_least_px) as opened:
            needed = decoding_bytes(opened.picture, opened.data) + room_bytes
            reserved.enter_context(memory.reserve(needed, source))
            photo = _decode(opened)
        try:
            yield photo
        except MemoryError as error:
            size = f"{photo.picture.width} x {photo.picture.height}"
            raise ImageTooLargeError(source, f"{size} pixels, too many for the memory") from error
        finally:
            del photo, opened


def read_details(data: bytes, source: str, limits: ImageLimits = DEFAULT_LIMITS) -> Details:
    """Return what a photo tells of itself, as `DecodedPhoto` has it; only a PNG is decoded for it.

    Raises:
        ImageError: If `decode_image` raises it, as far as that shows in the header.
    """
    with opened_image(data, source, limits) as opened:
        picture = opened.picture
        if picture.format == "PNG":
            picture.load()  # they may follow the pixels
        exif = None
        with suppress(Exception):
            exif = picture.getexif()
        return over(opened.metadata, file_details(exif, picture))


@contextmanager
def opened_image(
    data: bytes,
    source: str = "image",
    limits: ImageLimits = DEFAULT_LIMITS,
    at_least_px: int | None = None,
) -> Generator[OpenedPhoto]:
    """Open a picture whose cost is within the limits, without decoding it.

    Args:
        data: See `decode_image`, as for the other arguments.
        source: See `decode_image`.
        limits: See `decode_image`.
        at_least_px: See `decode_image`.

    Raises:
        ImageTooLargeError: If `decode_image` raises it.
        ImageError: If `decode_image` raises it, or a decoder fails inside of the context.
    """
    if not data:
        raise ImageError(source, "0 bytes, not an image")
    if len(data) > limits.max_bytes:
        raise ImageTooLargeError(source, f"{len(data)} bytes, limit {limits.max_bytes}")
    with _decoders(source, limits):
        orientation, metadata = 1, Details()
        if "RAW" in limits.formats and is_raw(data):
            data, orientation, metadata = raw_preview(data, source)
        picture = _identified(data, limits.formats)
        # Pillow would take the thumbnail of a RAW for the picture.
        if picture is None or (picture.format == "TIFF" and is_raw(data)):
            known = ", ".join(limits.formats)
            reason = missing_decoder(data) or f"not an image of a known format ({known})"
            raise ImageError(source, reason)
        with picture:
            size_px = picture.size
            if picture.format in ("JPEG", "MPO"):
                shrink_jpeg(picture, limits.max_pixels, limits.max_side_px, at_least_px)
            check_cost(picture, data, source, limits.max_pixels, limits.max_side_px)
            yield OpenedPhoto(picture, size_px, metadata, data, orientation)


@contextmanager
def _decoders(source: str, limits: ImageLimits) -> Generator[None]:
    """Silence decoders inside the block, and turn what they raise into an `ImageError`."""
    if _IGNORED not in warnings.filters:  # not yet, or another filter list is in use
        cast("list[tuple[Any, ...]]", warnings.filters).insert(0, _IGNORED)
    quiet = _DECODING.set(True)
    try:
        yield
    except AladinError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ImageTooLargeError(source, f"more pixels than {limits.max_pixels}") from error
    except MemoryError as error:
        raise ImageTooLargeError(source, "decoding it takes more memory than there is") from error
    except Exception as error:  # decoders raise whatever a damaged file makes them raise
        reason = str(error) or type(error).__name__
        raise ImageError(source, f"damaged or cut short ({reason})") from error
    finally:
        _DECODING.reset(quiet)


# Whether the running code decodes a photo.
_DECODING: ContextVar[bool] = ContextVar("decoding", default=False)


class _OfPillow:
    """Matches the modules of Pillow while a photo is decoded, in place of a regular expression.

    Pillow warns of odd metadata, without the name of the photo, on the terminal or in a notebook;
    what it cannot read is missing in the metadata anyway. `warnings.catch_warnings` would catch the
    warnings of other threads, too.
    """

    def match(self, module: str) -> bool:
        """Tell whether a warning of a module is ignored."""
        return _DECODING.get() and module.startswith("PIL.")


_IGNORED: tuple[Any, ...] = ("ignore", None, UserWarning, _OfPillow(), 0)


def _identified(data: bytes, formats: tuple[str, ...]) -> ImageFile.ImageFile | None:
    """Open a picture by the first format that knows its content.

    Unlike `Image.open`, this does not compare the size with a limit of the whole process.
    """
    Image.preinit()
    for name in formats:
        if name not in Image.OPEN:
            register_heif() if name == "HEIF" else Image.init()
        plugin = Image.OPEN.get(name)
        if plugin is None:
            continue
        factory, accepts = plugin
        # A text says why the format is not supported here.
        if accepts is not None and accepts(data[:16]) is not True:
            continue
        with suppress(SyntaxError, IndexError, TypeError, struct.error):
            return factory(BoundedReader(data), "")
    return None


def _decode(opened: OpenedPhoto) -> DecodedPhoto:
    orientation = opened.orientation
    picture, missing = _loaded(opened)
    grey_range = stated_range(picture)
    try:
        exif = picture.getexif()
        orientation = exif.get(ExifTags.Base.Orientation, orientation)
    except Exception:  # broken EXIF data are common in old photos, and do not spoil them
        exif = None
    metadata = over(opened.metadata, file_details(exif, picture))
    if isinstance(picture, ImageFile.ImageFile):
        picture.fp = None  # of a WebP it holds all pixels once more
    upright = picture
    if orientation in _UPRIGHT:
        upright = picture.transpose(_UPRIGHT[orientation])
        picture.close()  # its pixels are not needed beside those of the other
    photo = to_rgb(upright, grey_range)
    # Encoders would write some of the metadata out again: comments and the colour profile.
    photo.info.clear()
    width, height = opened.size_px
    size_px = (height, width) if orientation in _SIDEWAYS else (width, height)
    return DecodedPhoto(photo, size_px, metadata, missing)


def _loaded(opened: OpenedPhoto) -> tuple[Image.Image, str | None]:
    """Decode a picture; if its file is cut short, return what is missing, too.

    Pillow's own switch for such files concerns all threads of the process.
    """
    picture = opened.picture
    try:
        picture.load()
        return picture, None
    except OSError as error:
        if "truncated" not in str(error) or picture.format not in _IN_ROWS:
            raise
    if picture.format in ("JPEG", "MPO"):
        return _ended(opened)
    cast(ImageFile.ImageFile, picture).tile = []  # decoded as far as it goes
    empty = sum(int(_inside(picture, box, 0, 0).all(axis=1).sum()) for box in strips(picture))
    return picture, _missing(empty / picture.height)


def _ended(opened: OpenedPhoto) -> tuple[Image.Image, str | None]:
    """Decode a JPEG without an end; what is missing is grey."""
    if lacks_scans(opened.picture, opened.data):
        raise OSError("scans of all pixels are missing")
    scale, *_ = getattr(opened.picture, "decoderconfig", ()) or (1,)
    wide, high = opened.size_px
    opened.picture.close()  # not to be in memory twice
    picture = _identified(opened.data + _END_OF_JPEG, ("JPEG",))
    assert picture is not None, "it was opened before"
    if scale > 1:
        picture.draft(None, (max(1, wide // scale), max(1, high // scale)))
    picture.load()
    width, height = picture.size
    grey = 0
    for box in reversed(list(strips(picture))):
        rows: npt.NDArray[np.bool_] = np.flip(_grey(picture, box).all(axis=1))
        grey += len(rows) if rows.all() else int(rows.argmin())
        if not rows.all():
            break
    # The blocks to the right of the last one; its border has some of its colour.
    row = max(0, height - grey - _BORDER_ROWS)
    last = _grey(picture, (0, row, width, row + 1))[0, ::-1]
    blocks = 0 if last.all() else int(last.argmin()) * _BLOCK_ROWS // scale
    return picture, _missing(grey / height + blocks / (width * height))


def _grey(picture: Image.Image, box: tuple[int, int, int, int]) -> npt.NDArray[np.bool_]:
    return _inside(picture, box, 127, 128)  # of CMYK the values are inverted


def _inside(
    picture: Image.Image, box: tuple[int, int, int, int], least: int, most: int
) -> npt.NDArray[np.bool_]:
    """Tell of which pixels of a strip all values are inside of a range."""
    values = np.asarray(picture.crop(box))
    found = (values >= least) & (values <= most)
    return np.asarray(found.reshape(*found.shape[:2], -1).all(axis=2))


def _missing(share: float) -> str:
    if share > _MOST_MISSING:
        raise OSError(f"{share:.0%} of the picture is missing")
    return f"cut short: {share:.1%} of the picture is missing" if share else "cut short at its end"


def to_rgb(picture: Image.Image, grey_range: GreyRange | None = None) -> Image.Image:
    """Convert a picture of any mode to 8-bit RGB as `decode_image` does; transparency is white."""
    if picture.mode.startswith(("I", "F")):  # 16-bit grey; converting would clip, so scale
        return grey_to_rgb(picture, grey_range or GreyRange())
    if picture.has_transparency_data:
        return _on_white(picture)
    return picture if picture.mode == "RGB" else picture.convert("RGB")


def _on_white(picture: Image.Image) -> Image.Image:
    """Composite a transparent picture on a white background."""
    photo = Image.new("RGB", picture.size)
    for box in strips(picture):
        strip = picture.crop(box).convert("RGBA")
        page = Image.new("RGBA", strip.size, "white")
        photo.paste(Image.alpha_composite(page, strip).convert("RGB"), box)
    return photo
