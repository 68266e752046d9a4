"""A person's folder of 573 files, always the same: photos of every kind, and what lies between.

Every file is one of these: a photo that is found, one that is named with its reason, a file beside
a photo that is read with it, or one that is counted by its kind.
"""

from __future__ import annotations

import base64
import io
import json
import os
import random
import struct
import unicodedata
import zlib
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from PIL import ExifTags, Image

from aladin_network.photos.formats import HAS_AVIF, HAS_RAW, NO_RAW
from tests.aladin.raw_files import make_dng

FILES = 573
# Other users' permissions are ignored by the administrator.
IS_ROOT = os.geteuid() == 0
_BASE, _GPS = ExifTags.Base, ExifTags.GPS
# A red square, as no other package than the decoder's own writes HEIC.
_HEIC = base64.b64decode(
    "AAAAHGZ0eXBoZWljAAAAAG1pZjFoZWljbWlhZgAAAVZtZXRhAAAAAAAAACFoZGxyAAAAAAAAAABwaWN0AAAAAAAAAAAAAAAA"
    "AAAAACJpbG9jAAAAAERAAAEAAQAAAAABegABAAAAAAAAABoAAAAjaWluZgAAAAAAAQAAABVpbmZlAgAAAAABAABodmMxAAAA"
    "AA5waXRtAAAAAAABAAAA1mlwcnAAAAC3aXBjbwAAAHhodmNDAQNwAAAAkAAAAAAAHvAA/P34+AAADwNgAAEAGEABDAH//wNw"
    "AAADAJAAAAMAAAMAHroCQGEAAQArQgEBA3AAAAMAkAAAAwAAAwAeoCCBBZbqSSmubgIaDAgAAAMAyAAAAwAIQGIAAQAHRAHB"
    "crAiQAAAABNjb2xybmNseAABAA0ABoAAAAAUaXNwZQAAAAAAAABAAAAAQAAAABBwaXhpAAAAAAMICAgAAAAXaXBtYQAAAAAA"
    "AAABAAEEgQIDBAAAACJtZGF0AAAAFigBr1j5DpJf//K13/9R/kPk+6MbILA="
)
_XMP = (
    "<x:xmpmeta xmlns:x='adobe:ns:meta/'><rdf:RDF"
    " xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#'"
    " xmlns:dc='http://purl.org/dc/elements/1.1/' xmlns:xmp='http://ns.adobe.com/xap/1.0/'>"
    "<rdf:Description xmp:Rating='{}'><dc:subject><rdf:Bag><rdf:li>{}</rdf:li></rdf:Bag>"
    "</dc:subject></rdf:Description></rdf:RDF></x:xmpmeta>"
)


@dataclass
class PersonsFolder:
    """The folder, and what is to become of each of its files.

    Attributes:
        found: Names of the photos.
        named: Parts of reasons, by the name that is said.
        read: Number of files beside photos that are read with them.
        counted: Numbers of other files by kind.
        told: Some fields of some photos.
    """

    folder: Path
    found: set[str] = field(default_factory=set[str])
    named: dict[str, str] = field(default_factory=dict[str, str])
    read: int = 0
    counted: dict[str, int] = field(default_factory=dict[str, int])
    told: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    @property
    def files(self) -> int:
        return len(self.found) + len(self.named) + self.read + sum(self.counted.values())

    def photo(self, name: str, data: bytes, **told: object) -> None:
        self._write(name, data)
        self.found.add(name)
        if told:
            self.told[name] = told

    def unusable(self, name: str, data: bytes, reason: str, said: str | None = None) -> None:
        self._write(name, data)
        self.named[said or name] = reason

    def beside(self, name: str, content: str) -> None:
        self._write(name, content.encode())
        self.read += 1

    def other(self, kind: str, *names: str) -> None:
        for name in names:
            self._write(name, f"not a photo: {name}".encode())
        self.counted[kind] = self.counted.get(kind, 0) + len(names)

    def _write(self, name: str, data: bytes) -> None:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


def make_persons_folder(folder: Path) -> PersonsFolder:
    """Write the folder."""
    made = PersonsFolder(folder)
    for part in (_kinds, _exif, _names, _telephones, _takeout, _unusable, _others, _links):
        part(made)
    # An old camera, some of whose photos are in a copy of the folder, too.
    copies = 9
    for number in range(FILES - made.files - copies):
        taken = f"2011:{1 + number % 12:02d}:{1 + number % 28:02d} 10:11:12"
        data = _file(_picture(number), exif=_exif_of(taken, "Canon", "Canon EOS 5D"))
        made.photo(f"2011/Holiday/IMG_{number:04d}.JPG", data, date_source="exif")
        if number < copies:
            made.photo(f"backup/IMG_{number:04d}.JPG", data)
    return made


def _picture(number: int, size: tuple[int, int] = (24, 18), mode: str = "RGB") -> Image.Image:
    random_pixels = np.random.default_rng(number).integers(0, 256, (3, 4, 3), dtype=np.uint8)
    small = Image.fromarray(random_pixels)
    return small.resize(size, Image.Resampling.NEAREST).convert(mode)


def _file(picture: Image.Image, kind: str = "JPEG", **options: object) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def _exif_of(taken: str | None, maker: str = "Acme", model: str = "Phone 3") -> Image.Exif:
    exif = Image.Exif()
    exif[_BASE.Make], exif[_BASE.Model] = maker, model
    if taken is not None:
        exif.get_ifd(ExifTags.IFD.Exif)[_BASE.DateTimeOriginal] = taken
    return exif


def _png_of_16_bits() -> bytes:
    """A PNG of 4 x 4 pixels with 16 bits a colour, which Pillow does not write."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        whole = kind + content
        return struct.pack(">I", len(content)) + whole + struct.pack(">I", zlib.crc32(whole))

    header = struct.pack(">IIBBBBB", 4, 4, 16, 2, 0, 0, 0)
    rows = b"".join(b"\0" + bytes(range(24)) for _ in range(4))
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def _kinds(made: PersonsFolder) -> None:
    several = [_picture(1), _picture(2)]
    grey = np.linspace(0, 65535, 400).reshape(20, 20)
    files: dict[str, bytes] = {
        "cmyk.jpg": _file(_picture(10, mode="CMYK")),
        "grey.jpg": _file(_picture(11, mode="L")),
        "progressive.jpg": _file(_picture(12), progressive=True),
        "alpha.png": _file(_picture(13, mode="RGBA"), "PNG"),
        "palette.png": _file(_picture(14, mode="P"), "PNG"),
        "grey16.png": _file(Image.fromarray(grey.astype(np.uint16)), "PNG"),
        "rgb16.png": _png_of_16_bits(),
        "8.tif": _file(_picture(15), "TIFF"),
        "16.tif": _file(Image.fromarray(grey.astype(np.uint16)), "TIFF"),
        "float.tif": _file(Image.fromarray(grey.astype(np.float32)), "TIFF"),
        "pages.tif": _file(several[0], "TIFF", save_all=True, append_images=several[1:]),
        "a.bmp": _file(_picture(16), "BMP"),
        "panorama.jpg": _file(_picture(17, (1200, 100))),
        "108_megapixels.jpg": _file(Image.new("L", (12000, 9000), 90)),
        "a_jpeg.png": _file(_picture(18)),
        "one_pixel.png": _file(_picture(19, (1, 1)), "PNG"),
        "almost_whole.jpg": _file(_picture(20))[:-2],
        "flipped_bits.jpg": _file(_picture(21)) + b"more",
    }
    for kind in ("GIF", "WEBP", "PNG"):
        moving = _file(several[0], kind, save_all=True, append_images=several[1:], duration=99)
        files[f"moving.{kind.lower()}"] = moving
    for name, data in files.items():
        made.photo(f"kinds/{name}", data)
    raw = make_dng(_file(_picture(22, (64, 48))))
    if HAS_RAW:
        made.photo("kinds/camera.dng", raw, camera="Acme X1")
    else:
        made.unusable("kinds/camera.dng", raw, NO_RAW)
    if HAS_AVIF:
        made.photo("kinds/android.avif", _file(_picture(23), "AVIF"))
    made.told["kinds/almost_whole.jpg"] = {"damage": "cut short at its end"}


def _exif(made: PersonsFolder) -> None:
    for orientation in range(1, 9):
        exif = _exif_of("2016:01:02 03:04:05")
        exif[_BASE.Orientation] = orientation
        made.photo(f"exif/turned_{orientation}.jpg", _file(_picture(30), exif=exif))
    odd = {"zero": "0000:00:00 00:00:00", "text": "last summer", "future": "2099:01:01 00:00:00"}
    for name, taken in odd.items():
        data = _file(_picture(31), exif=_exif_of(taken))
        made.photo(f"exif/{name}.jpg", data, date_source="file", camera="Acme Phone 3")
    nowhere = _exif_of("2016:01:02 03:04:05")
    nowhere.get_ifd(ExifTags.IFD.GPSInfo).update(
        {_GPS.GPSLatitudeRef: "N", _GPS.GPSLatitude: (0.0,) * 3, _GPS.GPSLongitude: (0.0,) * 3}
    )
    made.photo("exif/nowhere.jpg", _file(_picture(32), exif=nowhere), lat=None)
    made.photo("exif/broken.jpg", _file(_picture(33), exif=b"Exif\0\0II*\0\xff\xff\xff\xff"))


def _names(made: PersonsFolder) -> None:
    accented = "Zoë.jpg"
    names = [
        *("照片一.jpg", "صورة.jpg", "🌅 sunrise.jpg", "a'b\"c.jpg", "<b>bold</b>&.jpg"),
        *(
            "back\\slash.jpg",
            f"{'x' * 236}.jpg",
            "-rf.jpg",
            " leading.jpg",
            "100%.jpg",
            "a#b?c.jpg",
        ),
        unicodedata.normalize("NFC", accented),
        unicodedata.normalize("NFD", accented),
        "/".join("abcdefghijkl") + "/deep.jpg",
        "UPPER.JPEG",
        "node_modules/h.jpg",
    ]
    for number, name in enumerate(names):
        made.photo(f"names/{name}", _file(_picture(40 + number)))


def _telephones(made: PersonsFolder) -> None:
    for number in range(16):
        # The same picture, in files that differ.
        data = _HEIC + struct.pack(">I4sI", 12, b"free", number)
        name = f"iPhone/IMG_{number:04d}.HEIC"
        made.photo(name, data, date_source="file")
    made.other("videos", *(f"iPhone/IMG_{number:04d}.MOV" for number in range(4)))
    made.other("files of editors", *(f"iPhone/IMG_{number:04d}.AAE" for number in range(3)))
    by_name = {
        "IMG_20220714_101112.jpg": "2022-07-14T10:11:12",
        "PXL_20220714_081112123.jpg": "2022-07-14T08:11:12",
        "IMG-20220714-WA0003.jpg": "2022-07-14",
        "Screenshot_20220714-101112.png": "2022-07-14T10:11:12",
        "signal-2022-07-14-101112.jpg": "2022-07-14T10:11:12",
        "photo_2022-07-14_10-11-12.jpg": "2022-07-14T10:11:12",
        "2022-07-14 10.11.12.jpg": "2022-07-14T10:11:12",
    }
    for number, (name, taken) in enumerate(by_name.items()):
        made.photo(f"Android/{name}", _file(_picture(60 + number)), taken_at=taken)


def _takeout(made: PersonsFolder) -> None:
    folder = "Takeout/Google Photos/Photos from 2022"
    for number in range(20):
        title = f"PXL_holiday_in_the_mountains_{number:02d}.jpg"
        told = {
            "title": title,
            "description": f"Day {number}",
            "photoTakenTime": {"timestamp": str(1657786272 + 86_400 * number)},
            "geoData": {"latitude": 46.5, "longitude": 7.5},
            "people": [{"name": "Anna"}],
            "favorited": number == 0,
        }
        # Cut to 46 characters, the numbers of the first one's namesakes behind.
        made.beside(f"{folder}/{f'{title}.supplemental-metadata'[:46]}.json", json.dumps(told))
        day = date(2022, 7, 14) + timedelta(days=number)
        made.photo(
            f"{folder}/{title}",
            _file(_picture(80 + number)),
            **{"description": f"Day {number}", "people": ["Anna"], "lat": 46.5, "title": None},
            **{"taken_at": f"{day}T08:11:12", "favourite": True if number == 0 else None},
        )
    made.other("other files", f"{folder}/metadata.json", "Takeout/archive_browser.html")
    for number in range(3):
        made.beside(f"Lightroom/L{number}.xmp", _XMP.format(number, "Alps"))
        made.beside(f"Lightroom/D{number}.jpg.xmp", _XMP.format(number, "sea"))
        for letter, word in (("L", "Alps"), ("D", "sea")):
            data = _file(_picture(110 + number))
            made.photo(f"Lightroom/{letter}{number}.jpg", data, keywords=[word], rating=number)


def _unusable(made: PersonsFolder) -> None:
    whole = _file(_picture(120, (240, 180)))
    files: dict[str, tuple[bytes, str]] = {
        "truncated.jpg": (whole[: len(whole) // 2], "damaged or cut short"),
        "zero.jpg": (b"", "0 bytes"),
        "page.jpg": (b"<!DOCTYPE html><html>404</html>", "not an image of a known format"),
        "noise.jpg": (random.Random(1).randbytes(3000), "not an image of a known format"),
        "noise.nef": (
            random.Random(2).randbytes(3000),
            "not an image of a known format" if HAS_RAW else NO_RAW,
        ),
        "bare.dng": (make_dng(None), "camera RAW without a preview" if HAS_RAW else NO_RAW),
        "scan.jp2": (b"\0\0\0\x0cjP  ", "JPEG 2000 cannot be read"),
        "scan.jxl": (b"\xff\x0a", "JPEG XL cannot be read"),
        "108_megapixels.png": (_file(Image.new("1", (12000, 9000)), "PNG"), "limit 64000000"),
        "photos.tar": (b"x" * 600, "a tar among photos"),
    }
    for name, (data, reason) in files.items():
        made.unusable(f"broken/{name}", data, reason)
    good = _file(_picture(121))
    latin, lines = os.fsdecode(b"broken/\xe9t\xe9.jpg"), "broken/two\nlines.jpg"
    made.unusable(latin, good, "the file name is not UTF-8", "broken/\\xe9t\\xe9.jpg")
    made.unusable(lines, good, "the file name has a line break", "broken/two\\nlines.jpg")
    locked = "broken/locked.jpg"
    if IS_ROOT:
        made.photo(locked, good)
    else:
        made.unusable(locked, good, "Permission denied")
    (made.folder / locked).chmod(0)


def _others(made: PersonsFolder) -> None:
    made.other("videos", *(f"Videos/clip{number}.mp4" for number in range(4)))
    made.other("files of editors", "Videos/clip0.mp4.xmp")
    made.other("other files", "drawing.svg", "letter.pdf", "notes.txt", "gone.jpg.json")
    made.other("files without a suffix", "JPEG without suffix")
    hidden = [
        *(".hidden/a.jpg", ".git/config", "@eaDir/a.jpg", "#recycle/a.jpg", "$RECYCLE.BIN/a.jpg"),
        *("__MACOSX/a.jpg", "lost+found/a.jpg", "._IMG_0001.jpg", "Thumbs.db", "desktop.ini"),
    ]
    made.other("hidden, or of other programs", *hidden)


def _links(made: PersonsFolder) -> None:
    folder = made.folder / "links"
    folder.mkdir()
    (folder / "photo.jpg").symlink_to("../exif/nowhere.jpg")
    made.found.add("links/photo.jpg")
    for name, target, reason in (
        ("gone.jpg", "nowhere.jpg", "a broken link"),
        ("self.jpg", "self.jpg", "a broken link"),
        ("all", "..", "a link to a folder"),
    ):
        (folder / name).symlink_to(target)
        made.named[f"links/{name}"] = reason
    os.mkfifo(folder / "pipe.jpg")
    made.named["links/pipe.jpg"] = "a pipe, not a file"
