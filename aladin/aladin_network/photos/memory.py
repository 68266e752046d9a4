"""Limits of the cost of decoding: of a single picture, and of all pictures at a time.

The size of a picture does not bound the work: a few bytes can request a thousand passes over all
pixels, a tile far larger than the picture, or millions of steps of an interpreted parser. The cost
is estimated from the header, and pictures that cost too much are refused.
"""

from __future__ import annotations

import io
import math
import multiprocessing
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from PIL import Image, TiffImagePlugin

from aladin_network.errors import AladinError, ImageError, ImageTooLargeError, OverloadedError

# Steps of Pillow's parsers in Python: markers, chunks and directories. A photo of 32 MB in chunks
# of 1 kB needs fewer; at some microseconds each, more would add up to minutes.
_MAX_READS = 100_000

# A progressive JPEG has about ten scans, each of which passes over all pixels. Small pictures may
# have more, as their passes are cheap.
_MAX_PASSES = 32

_JPEG_SCALES = (1, 2, 4, 8)  # by which its decoder can shrink a picture
_BITS_PER_SAMPLE, _SAMPLES_PER_PIXEL = 258, 277
_TILE_WIDTH, _TILE_LENGTH = 322, 323

# Bytes that Pillow uses for a pixel of a decoded picture, by mode; other modes use 4.
_STORED_BYTES = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16L": 2, "I;16B": 2, "I;16N": 2}
_RGB_BYTES = 4
# libwebp keeps two canvases, and returns a copy from which Pillow makes its own.
_WEBP_BYTES = 17
# The decoders of HEIC and AVIF keep the picture in its coded form, of up to 16 bits per value.
_HEIF_BYTES = 12
# A GIF's first frame, and the frame to be shown next.
_GIF_BYTES = 2
# libjpeg keeps all coefficients of a picture that has several scans: two bytes each.
_COEFFICIENT_BYTES = 2
# Row buffers, tables, and the strips in which colours are converted.
_FIXED_BYTES = 6 * 2**20
# Shrinking a picture, for a network or a drawing, needs an intermediate picture of its full height
# and the target width.
_SHRINKING_BYTES = 4 * 1024
# Segments of a JPEG without a length: fill bytes, restarts and the start of the picture.
_JPEG_BARE = {0x01, 0xFF, *range(0xD0, 0xD9)}

# Enough for a picture of 89 million pixels in any format.
DEFAULT_BYTES = 2 * 2**30
_MOST_BYTES_PER_PIXEL = 24

# Seconds between two checks whether the result is still wanted, while a picture waits for memory.
_LOOK_S = 0.1
# Reported to clients whose wait was unsuccessful: other pictures are probably decoded by then.
_RETRY_AFTER_S = 1.0

_DEMAND: ContextVar[_Demand | None] = ContextVar("demand", default=None)


class BoundedReader(io.BytesIO):
    """A file in memory with a limited number of reads."""

    _left = _MAX_READS

    def read(self, size: int | None = -1, /) -> bytes:
        """Read like `io.BytesIO`."""
        self._left -= 1
        if self._left < 0:
            raise OSError(f"more than {_MAX_READS} parts")
        return super().read(size)


def shrink_jpeg(
    picture: Image.Image, max_pixels: int, max_side_px: int, at_least_px: int | None
) -> None:
    """Have a JPEG decoded at the largest size within the limits, or at the least size wanted.

    `draft` is called on the opened picture; with `at_least_px` both sides keep that length.
    """
    width, height = picture.size
    fits = [
        scale
        for scale in _JPEG_SCALES
        if -(-width // scale) * -(-height // scale) <= max_pixels
        and -(-max(width, height) // scale) <= max_side_px
    ]
    scale = min(fits, default=_JPEG_SCALES[-1])
    if at_least_px is not None:
        most = max(1, min(width, height) // at_least_px)
        scale = max(scale, *(each for each in _JPEG_SCALES if each <= most))
    if scale > 1:
        picture.draft(None, (max(1, width // scale), max(1, height // scale)))


def check_cost(
    picture: Image.Image, data: bytes, source: str, max_pixels: int, max_side_px: int
) -> None:
    """Refuse a picture that would be too expensive to decode.

    The limits concern a JPEG at the reduced size at which it is decoded.
    """
    pixels = picture.width * picture.height
    if pixels > max_pixels:
        size = f"{picture.width} x {picture.height}"
        raise ImageTooLargeError(source, f"{size} pixels, limit {max_pixels}")
    if max(picture.size) > max_side_px:
        size = f"{picture.width} x {picture.height}"
        raise ImageTooLargeError(source, f"{size} pixels, limit {max_side_px} for each side")
    if isinstance(picture, TiffImagePlugin.TiffImageFile):
        _check_tiles(picture, source, max_pixels)
    if picture.format in ("JPEG", "MPO") or picture.info.get("compression") == "jpeg":
        # This pair of bytes does not occur inside coded pixels, so each one starts a scan.
        scans = data.count(b"\xff\xda")
        # All coefficients are read, whatever the size at which they are decoded.
        scale, *_ = getattr(picture, "decoderconfig", ()) or (1,)
        pixels *= scale**2
        if scans * pixels > _MAX_PASSES * max_pixels:
            raise ImageTooLargeError(source, f"{scans} scans of {pixels} pixels each")
    if any(tile[0] == "bmp_rle" for tile in getattr(picture, "tile", ())):
        # Pillow decodes it in Python, for seconds, and blocks the process meanwhile.
        raise ImageError(source, "a BMP with run-length encoding, expected a plain one")


def decoding_bytes(picture: Image.Image, data: bytes) -> int:
    """Return an upper bound of the peak memory for decoding a picture to RGB.

    Room to shrink the decoded picture to a network's size is part of it; the file is not.
    """
    pixels = picture.width * picture.height
    stored = _STORED_BYTES.get(picture.mode, 4)
    # Turned upright, then converted to RGB; the picture before each step is freed after it.
    after = max(2 * stored, stored + _RGB_BYTES)
    if picture.format == "WEBP":
        after = max(after, _WEBP_BYTES)
    elif picture.format in ("HEIF", "AVIF"):
        after = max(after, _HEIF_BYTES)
    elif picture.format == "GIF":
        after += _GIF_BYTES
    needed = pixels * after + 2 * len(data)  # the decoder of WebP has copies of the file
    if picture.format in ("JPEG", "MPO") and _comes_in_scans(picture, data):
        # `draft` skips pixels once all coefficients have been read, so all of them are kept.
        scale, *_ = getattr(picture, "decoderconfig", ()) or (1,)
        coefficients = _COEFFICIENT_BYTES * getattr(picture, "layers", 4) * pixels * scale**2
        needed = max(needed, coefficients + pixels * stored)
    elif isinstance(picture, TiffImagePlugin.TiffImageFile):
        needed = max(needed, pixels * stored + _tiff_buffer_bytes(picture))
    return needed + _FIXED_BYTES + _SHRINKING_BYTES * max(picture.size)


def _comes_in_scans(picture: Image.Image, data: bytes) -> bool:
    """Tell whether the components of a JPEG are spread over several scans."""
    if "progressive" in picture.info:
        return True
    place = _first_scan(data)
    # Where it cannot be told, the worse of the two.
    return place is None or data[place + 4] < getattr(picture, "layers", 4)


def lacks_scans(picture: Image.Image, data: bytes) -> bool:
    """Tell whether a JPEG that is cut short lacks whole scans.

    The scans of a progressive JPEG add coefficients, or bits of them, to all pixels: what is
    missing at the end of the last one is fine detail.
    """
    found: set[tuple[int, int]] = set()  # components and coefficients with all their bits
    place = _first_scan(data)
    while place is not None and 0 <= place < len(data) - 5:
        end = place + 5 + 2 * data[place + 4]
        first, last, bits = (*data[end : end + 3], 0, 0, 0xFF)[:3]
        if bits & 0x0F == 0:
            found.update(
                (component, coefficient)
                for component in data[place + 5 : end : 2]
                for coefficient in range(first, min(last, 63) + 1)
            )
        place = data.find(b"\xff\xda", place + 2)
    return len(found) < 64 * getattr(picture, "layers", 4)


def _first_scan(data: bytes) -> int | None:
    """Return the position of the first scan of a JPEG, not of a thumbnail in its metadata."""
    place = 2
    while place + 4 < len(data) and data[place] == 0xFF:
        kind = data[place + 1]
        if kind == 0xDA:
            return place
        length = int.from_bytes(data[place + 2 : place + 4], "big")
        place += 1 if kind == 0xFF else 2 if kind in _JPEG_BARE else 2 + length
    return None


def _tiff_buffer_bytes(picture: TiffImagePlugin.TiffImageFile) -> int:
    """Return the largest buffer libtiff may need: one strip may hold the whole picture."""
    width, length = _tile_size(picture)
    bits = picture.tag_v2.get(_BITS_PER_SAMPLE, 8)
    depths = bits if isinstance(bits, tuple) else (bits,)
    samples = max(picture.tag_v2.get(_SAMPLES_PER_PIXEL, 1), len(depths))
    pixels = max(picture.width * picture.height, width * length)
    return pixels * max(4, samples * max(depths) // 8)


def _tile_size(picture: TiffImagePlugin.TiffImageFile) -> tuple[int, int]:
    width, length = (int(picture.tag_v2.get(tag, 0)) for tag in (_TILE_WIDTH, _TILE_LENGTH))
    return width, length


def _check_tiles(picture: TiffImagePlugin.TiffImageFile, source: str, max_pixels: int) -> None:
    """Refuse tiles larger than the pixel limit; each is decoded as a whole into a buffer."""
    width, length = _tile_size(picture)
    if width * length > max_pixels:
        raise ImageTooLargeError(source, f"tiles of {width} x {length} pixels, limit {max_pixels}")


class MemoryLimitError(ImageTooLargeError):
    """A picture that alone needs more memory to decode than the limit for all pictures."""

    def __init__(self, source: str, needed: int, limit: int) -> None:
        super().__init__(source, f"decoding it takes {needed} bytes of memory, limit {limit}")


class WithdrawnError(AladinError):
    """The client that requested a picture has disconnected."""

    def __init__(self) -> None:
        super().__init__("the request was withdrawn")


@dataclass(frozen=True)
class _Demand:
    """Condition and time limit of a result; see `wanted_while`."""

    is_wanted: Callable[[], bool]
    until_s: float


@contextmanager
def wanted_while(is_wanted: Callable[[], bool], until_s: float = math.inf) -> Generator[None]:
    """Limit how long this thread waits for memory inside the block.

    Args:
        is_wanted: Whether somebody still waits for the result; called from this thread.
        until_s: When waiting ends with an `OverloadedError`, by `time.monotonic`.
    """
    token = _DEMAND.set(_Demand(is_wanted, until_s))
    try:
        yield
    finally:
        _DEMAND.reset(token)


def is_still_wanted() -> Callable[[], bool]:
    """Return a check for other threads whether the current context's result is wanted."""
    demand = _DEMAND.get()
    return _always if demand is None else demand.is_wanted


def _always() -> bool:
    return True


def check_wanted() -> None:
    """Stop work whose result is no longer wanted.

    Raises:
        WithdrawnError: If the context is one of `wanted_while`, and its result is not wanted.
    """
    demand = _DEMAND.get()
    if demand is not None and not demand.is_wanted():
        raise WithdrawnError


@runtime_checkable
class MemoryBudget(Protocol):
    """Memory for decoding pictures."""

    def reserve(self, size: int, source: str) -> AbstractContextManager[None]:
        """Hold some bytes for a picture inside the block; see `DecodingMemory.reserve`."""
        ...


def bytes_for_pixels(pixels: int) -> int:
    """Return the size of a budget that is enough for a picture of some pixels in any format."""
    return max(DEFAULT_BYTES, _MOST_BYTES_PER_PIXEL * pixels)


class DecodingMemory:
    """A memory budget, reserved in parts for decoding pictures; thread-safe.

    Reservations are granted in the order in which they were asked for, so a large picture is not
    overtaken by small ones for ever. A thread must not ask for a second reservation while it holds
    one: two such threads could wait for each other.

    Attributes:
        max_bytes: Sum of all reservations at any time.
        patience_s: Longest time that a reservation is waited for.
    """

    @classmethod
    def for_pixels(cls, pixels: int) -> DecodingMemory:
        """Return a budget that is enough for a picture of some pixels in any format."""
        return cls(bytes_for_pixels(pixels))

    def __init__(self, max_bytes: int = DEFAULT_BYTES, patience_s: float = math.inf) -> None:
        self.max_bytes = max_bytes
        self.patience_s = patience_s
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        self._held = 0

    @property
    def held_bytes(self) -> int:
        """Sum of the current reservations in bytes."""
        return self._held

    @contextmanager
    def reserve(self, size: int, source: str) -> Generator[None]:
        """Hold memory for a picture inside the block, waiting until it is free.

        Args:
            size: Bytes to reserve.
            source: Names the picture in errors.

        Raises:
            MemoryLimitError: If the picture alone needs more memory than there is.
            OverloadedError: If the memory did not become free in time.
            WithdrawnError: If the result is not wanted any more; see `wanted_while`.
        """
        if size > self.max_bytes:
            raise MemoryLimitError(source, size, self.max_bytes)
        self._take(size)
        try:
            yield
        finally:
            with self._changed:
                self._held -= size
                self._changed.notify_all()

    def _take(self, size: int) -> None:
        demand = _DEMAND.get()
        until_s = time.monotonic() + self.patience_s
        if demand is not None:
            until_s = min(until_s, demand.until_s)
        place = object()
        with self._changed:
            self._waiting.append(place)
            try:
                while self._waiting[0] is not place or self._held + size > self.max_bytes:
                    check_wanted()
                    left_s = until_s - time.monotonic()
                    if left_s <= 0:
                        raise OverloadedError(_RETRY_AFTER_S)
                    self._changed.wait(min(left_s, _LOOK_S))
                self._held += size
            finally:
                self._waiting.remove(place)
                self._changed.notify_all()


# Parts in which processes share a budget.
_PARTS = 64


class SharedDecodingMemory:
    """A memory budget of several processes, which inherit it when they start.

    It is reserved in parts of a 64th, rounded up, in the order in which it was asked for.
    """

    def __init__(self, max_bytes: int) -> None:
        processes = multiprocessing.get_context("spawn")
        self.max_bytes = max_bytes
        # Who takes several parts takes them all before the next one takes any.
        self._turn, self._free = processes.Lock(), processes.Semaphore(_PARTS)

    @contextmanager
    def reserve(self, size: int, source: str) -> Generator[None]:
        """Hold memory for a picture inside the block, waiting until it is free.

        Raises:
            MemoryLimitError: If the picture alone needs more memory than there is.
        """
        if size > self.max_bytes:
            raise MemoryLimitError(source, size, self.max_bytes)
        parts = math.ceil(_PARTS * size / self.max_bytes)
        with self._turn:
            for _ in range(parts):
                self._free.acquire()
        try:
            yield
        finally:
            for _ in range(parts):
                self._free.release()
