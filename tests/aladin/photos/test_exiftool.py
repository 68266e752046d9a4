"""Files that exiftool has written, Debian's libimage-exiftool-perl: all fields right."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from aladin_network.photos.decoding import read_details
from aladin_network.photos.fields import combined
from aladin_network.photos.xmp import xmp_told

pytestmark = pytest.mark.skipif(
    shutil.which("exiftool") is None,
    reason="needs exiftool to write the files: apt install libimage-exiftool-perl",
)

FACES = "-RegionInfo={{AppliedToDimensions={{W=9,H=9,Unit=pixel}},RegionList=[{}]}}".format(
    ",".join(
        f"{{Area={{X=.5,Y=.5,W=.1,H=.1,Unit=normalized}},Name={name},Type={kind}}}"
        for name, kind in (("Ben Müller", "Face"), ("Rex", "Pet"), ("Zoë", "Face"))
    )
)
PEOPLE = ["Ben Müller", "Zoë"]
LANGUAGES = ["-XMP-dc:Title=Mountains", "-XMP-dc:Title-de=Berge", "-XMP-dc:Description=Snow & ice"]
WORDS = {"title": "Mountains", "description": "Snow & ice"}
TIME = "2019-01-02T03:04:05"


def date(source: str, offset: str | None = None, time: str = TIME) -> dict[str, str]:
    zone = {} if offset is None else {"utc_offset": offset}
    return {"taken_at": time, "date_source": source, **zone}


IPTC = [
    *("-CodedCharacterSet=utf8", "-IPTC:ObjectName=Über", "-IPTC:Caption-Abstract=Ein See"),
    *("-IPTC:Keywords=eins", "-IPTC:Keywords=zwei", "-IPTC:City=Bern"),
    *("-IPTC:DateCreated=2019:01:02", "-IPTC:TimeCreated=03:04:05+02:00"),
]
IPTC_TOLD = {
    **{"title": "Über", "description": "Ein See", "keywords": ["eins", "zwei"], "place": ["Bern"]},
    **date("iptc", "+02:00"),
}
PLACE = ["-GPSLatitude=46.9", "-GPSLatitudeRef=S", "-GPSLongitude=7.4", "-GPSLongitudeRef=W"]
# Name of the file, exiftool's options, and what the file tells.
CASES: list[tuple[str, Sequence[str], dict[str, Any]]] = [
    *((f"languages.{kind}", LANGUAGES, WORDS) for kind in ("jpg", "png", "tif", "webp", "xmp")),
    *((f"faces.{kind}", [FACES], {"people": PEOPLE}) for kind in ("jpg", "xmp")),
    (
        "people.jpg",
        ["-XMP-iptcExt:PersonInImage=Anna", FACES],
        {"people": ["Anna", *PEOPLE]},
    ),
    (
        "microsoft.xmp",
        ["-RegionInfoMP={Regions=[{PersonDisplayName=Ada}]}", "-XMP-microsoft:RatingPercent=75"],
        {"people": ["Ada"], "rating": 4},
    ),
    (
        "hierarchies.xmp",
        [
            *("-XMP-dc:Subject=Bern", "-XMP-lr:HierarchicalSubject=Places|Switzerland|Bern"),
            "-XMP-digiKam:TagsList=Animals/Dog",
        ],
        {"keywords": ["Bern", "Places", "Switzerland", "Animals", "Dog"]},
    ),
    ("rating.jpg", ["-XMP:Rating=5"], {"rating": 5}),
    ("rejected.xmp", ["-XMP:Rating=-1"], {"rating": -1}),
    (
        "xmp_date.jpg",
        ["-XMP-exif:DateTimeOriginal=2019:01:02 03:04:05-03:30"],
        date("xmp", "-03:30"),
    ),
    (
        "xmp_place.jpg",
        [
            *("-XMP:GPSLatitude=46.9", "-XMP:GPSLongitude=-7.4"),
            *("-XMP-photoshop:City=Bern", "-XMP-iptcCore:Location=Altstadt"),
        ],
        {"lat": 46.9, "lon": -7.4, "place": ["Altstadt", "Bern"]},
    ),
    *((f"iptc.{kind}", IPTC, IPTC_TOLD) for kind in ("jpg", "tif")),
    (
        "windows.jpg",
        [
            *("-EXIF:XPTitle=Titel ß", "-EXIF:XPKeywords=a;b", "-EXIF:Rating=3"),
            *("-EXIF:ImageDescription=Ein Hund", "-EXIF:DateTimeOriginal=2019:01:02 03:04:05"),
            "-EXIF:OffsetTimeOriginal=+05:45",
        ],
        {
            **{"title": "Titel ß", "keywords": ["a", "b"], "rating": 3},
            **{"description": "Ein Hund", **date("exif", "+05:45")},
        },
    ),
    (
        "satellites.png",
        [
            *("-EXIF:DateTimeOriginal=2019:01:02 03:04:05", "-GPSDateStamp=2019:01:02"),
            *("-GPSTimeStamp=11:04:01", *(option.replace("-GPS", "-EXIF:GPS") for option in PLACE)),
        ],
        {"lat": -46.9, "lon": -7.4, **date("exif", "-08:00")},
    ),
    (
        "all.jpg",
        [
            *IPTC,
            *("-XMP-dc:Title=of XMP", "-EXIF:DateTimeOriginal=1999:01:01 00:00:00"),
            *("-EXIF:Rating=2", "-XMP-dc:Subject=drei"),
        ],
        IPTC_TOLD | {"title": "of XMP", "keywords": ["drei"], "rating": 2},
    ),
    (
        "digitised.tif",
        ["-XMP-xmp:CreateDate=2020:02:02 02:02:02", "-EXIF:DateTimeOriginal=2019:01:02 03:04:05"],
        date("exif"),
    ),
]


@pytest.mark.parametrize(("name", "options", "expected"), CASES, ids=[name for name, *_ in CASES])
def test_files_of_exiftool(
    tmp_path: Path, name: str, options: Sequence[str], expected: dict[str, Any]
) -> None:
    file = tmp_path / name
    if file.suffix != ".xmp":
        Image.new("RGB", (9, 9)).save(file)
    write = ["exiftool", "-q", "-overwrite_original", *options, file]
    done = subprocess.run(write, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    data = file.read_bytes()
    if file.suffix == ".xmp":
        assert combined([xmp_told(data)]) == expected
    else:
        assert read_details(data, name) == expected
