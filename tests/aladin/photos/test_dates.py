"""When a photo was taken: by the name of its file, by its time, and by clocks of several zones."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from PIL import ExifTags, Image

from aladin_network.photos.dates import (
    Moment,
    moment_of,
    moment_of_file,
    moment_of_name,
    offset_of,
    utc_moment,
    zone_between,
)
from aladin_network.photos.fields import over
from aladin_network.photos.metadata import file_details

BASE, GPS = ExifTags.Base, ExifTags.GPS
DAY, TIME = "2022-07-14", "2022-07-14T10:11:12"


NAMES: dict[str | None, list[str]] = {
    TIME: [
        # Cameras and telephones.
        *("IMG_20220714_101112.jpg", "IMG_20220714_101112_1.jpg", "20220714_101112(0).jpg"),
        *("IMG_20220714_101112345_HDR.jpg", "DSC_20220714101112.JPG"),
        *("00100dPORTRAIT_00100_BURST20220714101112345_COVER.jpg", "PANO_20220714_101112.vr.jpg"),
        "WP_20220714_10_11_12_Pro.jpg",
        # Dropbox, scripts, macOS, GNOME, Windows, Android.
        *("2022-07-14 10.11.12.jpg", "2022-07-14 10.11.12-2.jpg", "2022-07-14_10-11-12.png"),
        *("2022-07-14T10:11:12.png", "Screenshot 2022-07-14 at 10.11.12.png"),
        *("Bildschirmfoto 2022-07-14 um 10.11.12.png", "Screenshot 2022-07-14 101112.png"),
        *("Screenshot from 2022-07-14 10-11-12.png", "Screenshot_20220714-101112.png"),
        "Screenshot_2022-07-14-10-11-12-123_com.android.chrome.png",
        # Messengers.
        *("WhatsApp Image 2022-07-14 at 10.11.12 (1).jpeg", "signal-2022-07-14-101112.jpg"),
        *("signal-2022-07-14-10-11-12-123-1.jpg", "photo_2022-07-14_10-11-12.jpg"),
        "photo_2022-07-14 10.11.12.jpeg",
    ],
    "2022-07-14T22:11:12": ["Screen Shot 2022-07-14 at 10.11.12 PM.png"],
    "2022-07-14T00:11:12": ["Screenshot 2022-07-14 at 12.11.12\u202fAM.png"],
    "2022-07-14T15:27:22": ["WhatsApp Image 2022-07-14 at 3.27.22 PM.jpeg"],
    # A day alone, and times that are none.
    DAY: [
        *("IMG-20220714-WA0003.jpg", "2022-07-14.jpg", "scan 12 of 2022.07.14.tif"),
        *("IMG_20220714_996199.jpg", "IMG_20220714_10111.jpg", "IMG_20220714_10111213.jpg"),
    ],
    None: [
        *("IMG_0222.JPG", "IMG_20221314.jpg", "2022-07.jpg", "2022-07_14.jpg", "120220714.jpg"),
        *("2022071.jpg", "20220714123.jpg", "1080x1920.png", "2193-01-01.jpg", ".jpg", "照片.jpg"),
        "1000268201_693b08cb0e.jpg",
    ],
}


@pytest.mark.parametrize(
    ("name", "expected"), [(name, time) for time, names in NAMES.items() for name in names]
)
def test_names_of_files(name: str, expected: str | None) -> None:
    found = moment_of_name(name)
    assert found == (None if expected is None else Moment(expected, "name"))


@pytest.mark.parametrize(
    "name",
    [
        *("PXL_20220714_081112123.jpg", "PXL_20220714_081112123.MP.jpg"),
        *("FB_IMG_1657786272000.jpg", "1657786272000.jpg", "mmexport1657786272000.jpg"),
    ],
)
def test_names_that_are_times_in_utc(name: str) -> None:
    assert moment_of_name(name) == Moment("2022-07-14T08:11:12", "name", "+00:00")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2022:07:14 10:11:12", (TIME, None)),
        ("2022:07:14 10:11:12.345", (TIME, None)),
        ("2022-07-14T10:11:12,5+05:45", (TIME, "+05:45")),
        ("2022-07-14T10:11-0800", ("2022-07-14T10:11:00", "-08:00")),
        ("2022-07-14T10:11:12Z", (TIME, "+00:00")),
        ("2022-07-14T10:11:12+99:00", (TIME, None)),
        ("2022-07-14", (DAY, None)),
        ("2022-07-14+02:00", (DAY, None)),
        ("2022-07", None),
        ("14.07.2022", None),
        ("2022-02-30T10:11:12", None),
        ("2022-07-14T25:11:12", None),
        ("0000:00:00 00:00:00", None),
        ("", None),
    ],
)
def test_times_of_exif_and_iso_8601(text: str, expected: tuple[str, str | None] | None) -> None:
    found = moment_of(text, "xmp")
    assert found == (None if expected is None else Moment(expected[0], "xmp", expected[1]))


def test_an_offset_in_the_time_counts_before_one_beside_it() -> None:
    assert moment_of(f"{TIME}+01:00", "exif", "+02:00") == Moment(TIME, "exif", "+01:00")
    assert moment_of(TIME, "exif", "-0330") == Moment(TIME, "exif", "-03:30")
    assert [offset_of(text) for text in ("Z", "+2", "+15:00", "   :  ")] == ["+00:00", *[None] * 3]


def test_the_time_of_a_file_is_that_of_this_machine() -> None:
    moment = datetime(2022, 7, 14, 10, 11, 12).astimezone()
    zone = moment.strftime("%z")
    expected = Moment(TIME, "file", f"{zone[:3]}:{zone[3:]}")
    assert moment_of_file(int(moment.timestamp()) * 10**9 + 987_654_321) == expected
    # Of archives without times, in the future, before all photos.
    future = datetime.now() + timedelta(days=3)
    for second in (0, 3600, -1, future.timestamp(), -(10**10), 10**15):
        assert moment_of_file(int(second) * 10**9) is None


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (1657786272, "2022-07-14T08:11:12"),
        (-86400 * 365, "1969-01-01T00:00:00"),
        (0, "1970-01-01T00:00:00"),
        (10**18, None),
        (-(10**11), None),
    ],
)
def test_seconds_since_1970(seconds: int, expected: str | None) -> None:
    found = utc_moment(seconds, "takeout")
    assert found == (None if expected is None else Moment(expected, "takeout", "+00:00"))


@pytest.mark.parametrize(
    ("local", "utc", "expected"),
    [
        (TIME, "2022-07-14T08:11:12", "+02:00"),
        (TIME, "2022-07-14T08:11:13", "+02:00"),
        (TIME, "2022-07-14T08:11:15", None),
        (TIME, TIME, "+00:00"),
        (TIME, "2022-07-14T04:26:12", "+05:45"),
        (TIME, "2022-07-14T18:11:12", "-08:00"),
        ("2022-07-14T00:30:00", "2022-07-13T20:00:00", "+04:30"),
        (TIME, "2022-07-15T10:11:12", None),
        (DAY, "2022-07-14T00:00:00", None),
        ("soon", TIME, None),
    ],
)
def test_the_zone_between_two_clocks(local: str, utc: str, expected: str | None) -> None:
    assert zone_between(local, utc) == expected


@pytest.mark.parametrize(
    ("offset", "satellites", "expected"),
    [
        ("+05:30", None, "+05:30"),
        (None, (8.0, 11.0, 2.0), "+02:00"),
        ("+03:00", (8.0, 11.0, 2.0), "+03:00"),
        (None, (8.0, 1.0, 0.0), None),  # an old fix
        (None, None, None),
    ],
)
def test_the_zone_of_a_camera(
    offset: str | None, satellites: tuple[float, ...] | None, expected: str | None
) -> None:
    exif = Image.Exif()
    details = exif.get_ifd(ExifTags.IFD.Exif)
    details[BASE.DateTimeOriginal] = "2022:07:14 10:11:12"
    if offset is not None:
        details[BASE.OffsetTimeOriginal] = offset
    if satellites is not None:
        exif.get_ifd(ExifTags.IFD.GPSInfo).update(
            {GPS.GPSDateStamp: "2022:07:14", GPS.GPSTimeStamp: satellites}
        )
    read = Image.Exif()
    read.load(exif.tobytes())
    found = file_details(read, None)
    assert (found["taken_at"], found.get("utc_offset")) == (TIME, expected)


FILE: dict[str, Any] = {"taken_at": TIME, "date_source": "exif", "camera": "C", "lat": 1, "lon": 2}
TAKEOUT: dict[str, Any] = {
    **{"taken_at": "2022-07-14T08:11:12", "utc_offset": "+00:00", "date_source": "takeout"}
}


@pytest.mark.parametrize(
    ("first", "second", "changed"),
    [
        ({}, FILE, {}),
        ({"camera": "D"}, FILE, {"camera": "D"}),
        ({"taken_at": "1985"}, FILE, {"taken_at": "1985", "date_source": None}),
        ({"lat": 3}, FILE, {"lat": 3, "lon": None}),
        # The same moment: the local time stays, and its zone is known.
        (TAKEOUT, FILE, {"utc_offset": "+02:00"}),
        (TAKEOUT, FILE | {"utc_offset": "+02:00"}, {"utc_offset": "+02:00"}),
        # Another one.
        (TAKEOUT, FILE | {"utc_offset": "+03:00"}, TAKEOUT),
        (
            TAKEOUT | {"taken_at": "2022-07-14T08:00:00"},
            FILE,
            TAKEOUT | {"taken_at": "2022-07-14T08:00:00"},
        ),
        (TAKEOUT, {"lat": 1}, TAKEOUT),
    ],
)
def test_which_of_two_sources_counts(
    first: dict[str, Any], second: dict[str, Any], changed: dict[str, Any]
) -> None:
    expected = {name: value for name, value in (second | changed).items() if value is not None}
    assert over(first, second) == expected
