"""Formats of photos: those that can be decoded here, and what is missing for the others.

JPEG, PNG, WebP, GIF, BMP, TIFF and AVIF are decoded by Pillow, HEIC by pi-heif. Of a camera RAW the
embedded JPEG is used, which the extra ``raw`` finds.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress

from PIL import Image, features

from aladin_network.errors import ImageError, is_installed
from aladin_network.photos.fields import Details
from aladin_network.photos.metadata import file_details

HAS_AVIF = bool(features.check("avif"))
HAS_RAW = is_installed("rawpy")

# Formats accepted from anybody, detected by content, not by name; the decoder of each stops at the
# image's own size. HEIF is the format of HEIC files.
UPLOAD_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "HEIF")
# Formats accepted from the owner's disk: research data sets also use PPM, which has a slow form.
# AVIF decodes whatever size its stream has; it comes before HEIF, among whose files it knows its
# own. RAW stands for the preview in a camera's RAW file.
FORMATS = (
    *("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM"),
    *(("AVIF",) if HAS_AVIF else ()),
    "HEIF",
    *(("RAW",) if HAS_RAW else ()),
)

# Recorded in indexes, where it must be the same for every installation.
NO_RAW = "camera RAW is read by rawpy: pip install 'aladin-search[raw]'"

_HEIF_SUFFIXES = (".heic", ".heif", ".heics", ".heifs", ".hif")
_RAW_SUFFIXES = (
    ".3fr .arw .cr2 .cr3 .crw .dcr .dng .erf .fff .iiq .kdc .mef .mos .mrw .nef .nrw .orf .pef "
    ".raf .rw2 .rwl .sr2 .srf .srw .x3f"
)

# Suffixes of files that are read as photos.
PHOTO_SUFFIXES = frozenset(
    (
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"),
        ".ppm",
        *((".avif",) if HAS_AVIF else ()),
        *_HEIF_SUFFIXES,
        *(_RAW_SUFFIXES.split() if HAS_RAW else ()),
    )
)
# Reasons why photos of other formats are not decoded, by suffix.
UNREADABLE_SUFFIXES: Mapping[str, str] = {
    **({} if HAS_AVIF else {".avif": "AVIF cannot be read by the installed Pillow"}),
    **({} if HAS_RAW else dict.fromkeys(_RAW_SUFFIXES.split(), NO_RAW)),
    **dict.fromkeys((".jp2", ".j2k", ".jpf", ".jpx"), "JPEG 2000 cannot be read"),
    **dict.fromkeys((".jxr", ".wdp"), "JPEG XR cannot be read"),
    ".jxl": "JPEG XL cannot be read",
}

_HEIF_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"}

# First bytes of the RAW files that are not TIFF, by their makers: Canon (CRW and CR3), Fujifilm,
# Minolta, Olympus, Panasonic and Sigma.
_RAW_STARTS = (
    *(b"II\x1a\0\0\0HEAPCCDR", b"FUJIFILMCCD-RAW", b"\0MRM", b"IIRO", b"IIRS", b"MMOR"),
    *(b"IIU\0", b"FOVb"),
)
_CR3 = b"ftypcrx "
_CR2 = b"CR\x02"

# The orientation by EXIF, by LibRaw's number for it.
_ORIENTATION_OF_FLIP = {3: 3, 5: 8, 6: 6}

_TIFF_STARTS = {b"II*\0": "<", b"MM\0*": ">"}
_PHOTOMETRIC, _SUB_IFDS, _DNG_VERSION = 262, 330, 50706
# Values of the photometric interpretation that only unprocessed pixels of a sensor have.
_SENSOR = (32803, 34892)
# A RAW file has a handful of directories, each of some ten to a hundred entries.
_MOST_DIRECTORIES, _MOST_ENTRIES = 16, 1000


def is_heif(data: bytes) -> bool:
    """Tell whether a file is a HEIC, by its first bytes."""
    return data[4:8] == b"ftyp" and data[8:12] in _HEIF_BRANDS


def is_raw(data: bytes) -> bool:
    """Tell whether a file is a camera RAW, by its first bytes or the directories of its TIFF."""
    if data.startswith(_RAW_STARTS) or data[4:12] == _CR3:
        return True
    order = _TIFF_STARTS.get(data[:4])
    if order is None:
        return False
    try:
        return data[8:11] == _CR2 or any(
            tag == _DNG_VERSION or (tag == _PHOTOMETRIC and value in _SENSOR)
            for tag, value in _tiff_tags(data, order)
        )
    except struct.error:  # beyond the end: the decoder reports it
        return False


def missing_decoder(data: bytes) -> str | None:
    """Return which extra a photo needs that is not installed; None if that is not the reason."""
    return NO_RAW if not HAS_RAW and is_raw(data) else None


def register_heif() -> None:
    """Make Pillow open HEIC."""
    from pi_heif import register_heif_opener

    register_heif_opener()


def raw_preview(data: bytes, source: str) -> tuple[bytes, int, Details]:
    """Return the embedded JPEG of a camera RAW, its orientation, and the metadata beside it."""
    import rawpy

    try:
        with rawpy.imread(io.BytesIO(data)) as raw:
            orientation = _ORIENTATION_OF_FLIP.get(raw.sizes.flip, 1)
            preview = raw.extract_thumb()
    except (rawpy.LibRawNoThumbnailError, rawpy.LibRawUnsupportedThumbnailError) as error:
        raise ImageError(source, "camera RAW without a preview; export it as JPEG") from error
    except rawpy.LibRawError as error:
        reason = "camera RAW that is damaged, or of a kind that LibRaw does not read"
        raise ImageError(source, reason) from error
    if preview.format != rawpy.ThumbFormat.JPEG:
        raise ImageError(source, "camera RAW without a JPEG as preview; export it as JPEG")
    exif = Image.Exif()
    with suppress(Exception):  # not all makers' files are TIFF
        exif.load(data)
    return bytes(preview.data), orientation, file_details(exif, None)


def _tiff_tags(data: bytes, order: str) -> Iterator[tuple[int, int]]:
    """Yield the tags of a TIFF's directories, each with its first value if that is a number."""
    (first,) = struct.unpack_from(f"{order}I", data, 4)
    to_do, done = [first], set[int]()
    while to_do and len(done) < _MOST_DIRECTORIES:
        place = to_do.pop(0)
        if place in done or place == 0:
            continue
        done.add(place)
        (count,) = struct.unpack_from(f"{order}H", data, place)
        for number in range(min(count, _MOST_ENTRIES)):
            entry = place + 2 + 12 * number
            tag, kind, values = struct.unpack_from(f"{order}HHI", data, entry)
            short = kind == 3  # else an offset, or a number of four bytes
            (value,) = struct.unpack_from(f"{order}{'H' if short else 'I'}", data, entry + 8)
            if tag == _SUB_IFDS and values > 1:
                some = min(values, _MOST_DIRECTORIES)
                to_do += struct.unpack_from(f"{order}{some}I", data, value)
            elif tag == _SUB_IFDS:
                to_do.append(value)
            yield tag, value
        if count <= _MOST_ENTRIES:
            to_do += struct.unpack_from(f"{order}I", data, place + 2 + 12 * count)
