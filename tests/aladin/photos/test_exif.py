"""What a photo tells about itself."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from PIL import ExifTags, Image
from PIL.TiffImagePlugin import IFDRational

from aladin_network.photos.decoding import decoded_image
from aladin_network.photos.memory import DecodingMemory
from aladin_network.photos.metadata import file_details
from tests.aladin.pictures import encode

BASE, GPS = ExifTags.Base, ExifTags.GPS
PISA = {
    GPS.GPSLatitudeRef: "N",
    GPS.GPSLatitude: (43.0, 43.0, 22.62),
    GPS.GPSLongitudeRef: "E",
    GPS.GPSLongitude: (10.0, 23.0, 47.4),
}


def make_exif(
    tags: dict[int, Any] | None = None,
    details: dict[int, Any] | None = None,
    gps: dict[int, Any] | None = None,
) -> Image.Exif:
    """EXIF data, read from the bytes of a file as those of a camera are."""
    exif = Image.Exif()
    exif.update(tags or {})
    if details is not None:
        exif.get_ifd(ExifTags.IFD.Exif).update(details)
    if gps is not None:
        exif.get_ifd(ExifTags.IFD.GPSInfo).update(gps)
    read = Image.Exif()
    read.load(exif.tobytes())
    return read


@pytest.mark.parametrize(
    ("original", "digitised", "written", "expected"),
    [
        ("2024:07:31 18:05:09", "2020:01:01 00:00:00", None, "2024-07-31T18:05:09"),
        ("0000:00:00 00:00:00", "2020:01:01 00:00:00", None, "2020-01-01T00:00:00"),
        (None, None, "2019:12:31 23:59:59", "2019-12-31T23:59:59"),
        ("2024-07-31T18:05:09+02:00", None, None, "2024-07-31T18:05:09"),
        ("2024:13:31 18:05:09", None, None, None),
        ("    :  :     :  :  ", None, None, None),
        ("1601:01:01 00:00:00", None, None, None),  # before there were photos
        ("1839:01:01 00:00:00", None, None, "1839-01-01T00:00:00"),
        (None, None, None, None),
    ],
)
def test_the_first_valid_time(
    original: str | None, digitised: str | None, written: str | None, expected: str | None
) -> None:
    details = {BASE.DateTimeOriginal: original, BASE.DateTimeDigitized: digitised}
    exif = make_exif(
        {} if written is None else {BASE.DateTime: written},
        {tag: time for tag, time in details.items() if time is not None},
    )
    assert file_details(exif, None).get("taken_at") == expected


@pytest.mark.parametrize(
    ("days", "is_taken"), [(-1.0, True), (0.5, True), (2.0, False), (365.0 * 73, False)]
)
def test_a_time_in_the_future_is_none(days: float, is_taken: bool) -> None:
    time = (datetime.now() + timedelta(days=days)).strftime("%Y:%m:%d %H:%M:%S")
    assert ("taken_at" in file_details(make_exif({BASE.DateTime: time}), None)) is is_taken


@pytest.mark.parametrize(
    ("make", "model", "expected"),
    [
        ("NIKON CORPORATION", "NIKON D850", "NIKON D850"),
        ("Canon", "Canon EOS 5D\0\0\0", "Canon EOS 5D"),
        ("FUJIFILM", "X-T5", "FUJIFILM X-T5"),
        ("  ", "", None),
        (None, "DSC\x07 1\n", "DSC 1"),
        ("Acme", None, "Acme"),
        ("A" * 300, "b", "A" * 100),
    ],
)
def test_cameras(make: str | None, model: str | None, expected: str | None) -> None:
    tags = {BASE.Make: make, BASE.Model: model}
    exif = make_exif({tag: text for tag, text in tags.items() if text is not None})
    assert file_details(exif, None).get("camera") == expected


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ("Prüfkamera 照相机".encode(), "Prüfkamera 照相机"),
        ("Prüfkamera".encode("latin-1"), "Prüfkamera"),
        (b"Pr\xc3", "PrÃ"),
    ],
)
def test_names_of_cameras_are_utf_8_or_else_latin_1(stored: bytes, expected: str) -> None:
    exif = Image.Exif()
    exif[BASE.Model] = "?" * len(stored)
    read = Image.Exif()
    read.load(exif.tobytes().replace(b"?" * len(stored), stored))
    assert file_details(read, None) == {"camera": expected}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({GPS.GPSLatitudeRef: "S", GPS.GPSLongitudeRef: "W"}, (-43.722950, -10.396500)),
        ({GPS.GPSLatitude: (43.722950,)}, (43.722950, 10.396500)),
        ({GPS.GPSLatitude: (0.0, 0.0, 0.0)}, (0.0, 10.396500)),
        ({GPS.GPSLatitude: (0.0, 0.0, 0.0), GPS.GPSLongitude: (0.0, 0.0, 0.0)}, None),
        ({GPS.GPSLatitude: (91.0, 0.0, 0.0)}, None),
        ({GPS.GPSLatitude: (IFDRational(0, 0), 0.0, 0.0)}, None),
        ({GPS.GPSLongitude: None}, None),
    ],
)
def test_places(changes: dict[int, Any], expected: tuple[float, float] | None) -> None:
    gps = {tag: value for tag, value in {**PISA, **changes}.items() if value is not None}
    found = file_details(make_exif(gps=gps), None)
    assert found == ({} if expected is None else {"lat": expected[0], "lon": expected[1]})


def test_a_photo_with_broken_exif_data_has_none() -> None:
    broken = b"Exif\0\0II*\0\xff\xff\xff\xff"
    data = encode(Image.new("RGB", (8, 8)), "JPEG", exif=broken, dpi=(72, 72))
    with decoded_image(data, DecodingMemory()) as photo:
        assert (photo.metadata, photo.picture.size) == ({}, (8, 8))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_every_format_that_carries_it(kind: str) -> None:
    tags = {BASE.Make: "Apple", BASE.Model: "iPhone 15 Pro", BASE.DateTime: "2025:01:01 00:00:00"}
    exif = make_exif(tags, {BASE.DateTimeOriginal: "2024:07:31 18:05:09"}, PISA)
    with decoded_image(
        encode(Image.new("RGB", (8, 8)), kind, exif=exif), DecodingMemory()
    ) as photo:
        assert photo.metadata == {
            "taken_at": "2024-07-31T18:05:09",
            "date_source": "exif",
            "camera": "Apple iPhone 15 Pro",
            "lat": 43.722950,
            "lon": 10.396500,
        }
        assert not photo.picture.info
