"""What other programs have written beside photos: XMP, and exports of Google Takeout."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from aladin_training.data import Record, iter_records
from aladin_training.data.folder_rules import FolderRules
from aladin_training.data.records import SkippedPhoto

LONG = "Screenshot_2022-07-14-10-11-12-123_com.example.messenger"
ENDING = ".supplemental-metadata"
DATE = {"taken_at": "2022-07-14T08:11:12", "utc_offset": "+00:00", "date_source": "takeout"}


def takeout(title: str, **fields: object) -> str:
    """A file of Takeout, in the form of its exports."""
    nowhere = {"latitude": 0.0, "longitude": 0.0, "altitude": 0.0}
    told: dict[str, object] = {
        "title": title,
        "description": f"of {title}",
        "imageViews": "3",
        "creationTime": {"timestamp": "1657800000", "formatted": "14.07.2022, 12:00:00 UTC"},
        "photoTakenTime": {"timestamp": "1657786272", "formatted": "14.07.2022, 08:11:12 UTC"},
        "geoData": nowhere,
        "geoDataExif": nowhere,
        "url": "https://photos.google.com/photo/x",
        "googlePhotosOrigin": {"mobileUpload": {"deviceType": "ANDROID_PHONE"}},
    }
    return json.dumps(told | fields, ensure_ascii=False)


@pytest.fixture
def read(tmp_path: Path, png: bytes) -> Any:
    """Writes a folder, of which a file without content is a photo, and reads it."""

    def write(files: Mapping[str, str | bytes | None], *, sidecars: bool = True) -> _Read:
        for name, content in files.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            data = png if content is None else content
            file.write_bytes(data.encode() if isinstance(data, str) else data)
        return _Read(tmp_path, FolderRules(sidecars=sidecars))

    return write


class _Read:
    def __init__(self, folder: Path, rules: FolderRules) -> None:
        self.rules = rules
        self.skipped: list[SkippedPhoto] = []
        self.records: dict[str, Record] = {
            record.id: record
            for record in iter_records(
                folder, require_captions=False, on_skip=self.skipped.append, rules=rules
            )
        }

    def told(self, name: str) -> dict[str, Any]:
        return self.records[name].metadata


# Photos of an export, each with its file of Takeout; "" is a file that is no photo's of these.
EXPORTS: dict[str, dict[str, str | None]] = {
    "first form": {"a.jpg": "a.jpg.json"},
    "second form": {"a.jpg": f"a.jpg{ENDING}.json"},
    "without the suffix": {"a.jpg": "a.json"},
    "cut inside the ending": {
        "PXL_20220714_081112123.jpg": "PXL_20220714_081112123.jpg.supplemental-metada.json"
    },
    "cut to one letter of the ending": {f"{LONG[:40]}.jpg": f"{LONG[:40]}.jpg.s.json"},
    "cut to the dot": {f"{LONG[:41]}.jpg": f"{LONG[:41]}.jpg..json"},
    "cut inside the title, the photo's name too": {f"{LONG[:47]}.jpg": f"{LONG[:46]}.json"},
    "two long titles that begin alike": {
        f"{LONG[:44]}one.jpg": f"{LONG[:44]}on.json",
        f"{LONG[:44]}two.jpg": f"{LONG[:44]}tw.json",
    },
    "two that are cut to one name": {
        **{f"x{LONG[:45]}1.jpg": f"x{LONG[:45]}.json", f"x{LONG[:45]}2.jpg": None}
    },
    "numbers behind the suffix": {
        **{"a.jpg": "a.jpg.json", "a(1).jpg": "a.jpg(1).json", "a(2).jpg": "a.jpg(2).json"}
    },
    "numbers behind the ending": {
        **{"a.jpg": f"a.jpg{ENDING}.json", "a(1).jpg": f"a.jpg{ENDING}(1).json"}
    },
    "a number behind the cut ending": {
        "PXL_20220714_081112123(3).jpg": "PXL_20220714_081112123.jpg.supplemental-meta(3).json"
    },
    "a number in the title itself": {"a(1).jpg": "a(1).jpg.json"},
    "an edited photo": {
        **{"a.jpg": "a.jpg.json", "a-edited.jpg": "a.jpg.json"},
        "b-bearbeitet.jpg": f"b.jpg{ENDING}.json",
    },
    "an edited photo of a number": {"a.jpg": "a.jpg.json", "a-edited(1).jpg": "a.jpg(1).json"},
    "a live photo whose file has the name of the video": {
        **{"IMG_1.HEIC.jpg": "IMG_1.HEIC.jpg.json", "IMG_2.JPG": "IMG_2.MOV.json"},
        "IMG_3.JPG": f"IMG_3.HEIC{ENDING}.json",
    },
    "its own file before that of the pair": {"IMG_1.JPG": "IMG_1.JPG.json", "": "IMG_1.HEIC.json"},
    "signs that no file name has": {f"a_b_c {LONG[:40]}.jpg": f"a_b_c {LONG[:40]}.json"},
    "letters of several bytes": {"日" * 17 + ".jpg": "日" * 15 + ".json"},
    "others' files": {
        **{"a.jpg": "a.jpg.json", "ab.jpg": None, "a-b.jpg": None, "c.jpg": None},
        "": "c2.jpg.json",
    },
}
# Titles that are not the photos' names.
TITLES = {
    f"{LONG[:46]}.json": f"{LONG}.jpg",
    f"a_b_c {LONG[:40]}.json": f"a&b?c {LONG[:40]}.jpg",
}


@pytest.mark.parametrize("export", EXPORTS.values(), ids=EXPORTS)
def test_exports_of_takeout(read: Any, export: dict[str, str | None]) -> None:
    files: dict[str, str | None] = dict.fromkeys(filter(None, export))
    for photo, name in export.items():
        if name is not None:
            files[name] = takeout(TITLES.get(name, photo), description=f"of {name}")
    found = read(files)
    assert not found.skipped
    assert found.records.keys() == export.keys() - {""}
    for photo, record in found.records.items():
        told = {} if export[photo] is None else DATE | {"description": f"of {export[photo]}"}
        assert (record.captions, record.split, record.metadata) == ((), None, told), photo


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"favorited": True}, {"favourite": True}),
        ({"favorited": False}, {}),
        ({"people": [{"name": "Anna"}, {"name": "Bo"}, {}, "x"]}, {"people": ["Anna", "Bo"]}),
        ({"geoData": {"latitude": 46.9, "longitude": -7}}, {"lat": 46.9, "lon": -7.0}),
        ({"geoDataExif": {"latitude": 1.5, "longitude": 2}}, {"lat": 1.5, "lon": 2.0}),
        (
            {
                "geoData": {"latitude": 3, "longitude": 4},
                "geoDataExif": {"latitude": 1, "longitude": 2},
            },
            {"lat": 3.0, "lon": 4.0},
        ),
        ({"geoData": {"latitude": "x"}, "people": {}, "description": 7}, {}),
        ({"geoData": {"latitude": 10**400, "longitude": math.nan}}, {}),
        ({"description": " two\nlines "}, {"description": "two lines"}),
    ],
)
def test_fields_of_takeout(read: Any, fields: dict[str, Any], expected: dict[str, Any]) -> None:
    found = read({"a.jpg": None, "a.jpg.json": takeout("a.jpg", **({"description": ""} | fields))})
    assert found.told("a.jpg") == DATE | expected


@pytest.mark.parametrize(
    "time", [{"timestamp": "soon"}, {}, 7, {"timestamp": 10**14}, {"timestamp": math.inf}]
)
def test_a_time_that_is_none(read: Any, time: object) -> None:
    file = takeout("a.jpg", photoTakenTime=time)
    assert read({"a.jpg": None, "a.jpg.json": file}).told("a.jpg") == {"description": "of a.jpg"}


XMP = (
    "<x:xmpmeta xmlns:x='adobe:ns:meta/' xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#'"
    " xmlns:dc='http://purl.org/dc/elements/1.1/' xmlns:xmp='http://ns.adobe.com/xap/1.0/'>"
    "<rdf:RDF><rdf:Description {}><dc:title><rdf:Alt><rdf:li xml:lang='x-default'>{}</rdf:li>"
    "</rdf:Alt></dc:title></rdf:Description></rdf:RDF></x:xmpmeta>"
)


def xmp(title: str, attributes: str = "") -> str:
    return XMP.format(attributes, title)


@pytest.mark.parametrize("name", ["a.jpg.xmp", "a.xmp", "a.jpg.XMP", "a.XMP"])
def test_xmp_beside_a_photo_by_each_name(read: Any, name: str) -> None:
    found = read({"a.jpg": None, "b.jpg": None, name: xmp("Lake", "xmp:Rating='4'")})
    assert found.told("a.jpg") == {"title": "Lake", "rating": 4}
    assert found.told("b.jpg") == {}
    assert found.rules.kinds == {}  # it is no file that is left out


def test_the_name_with_the_suffix_is_more_certain(read: Any) -> None:
    files = {"a.jpg.xmp": xmp("of jpg"), "a.xmp": xmp("of both", "xmp:Rating='2'")}
    found = read({"a.jpg": None, "a.png": None, **files})
    assert found.told("a.jpg") == {"title": "of jpg", "rating": 2}
    assert found.told("a.png") == {"title": "of both", "rating": 2}


def test_details_count_before_xmp_and_that_before_takeout(read: Any) -> None:
    files = {
        "a.json": '{"title": "of details", "caption": "a lake"}',
        "a.xmp": xmp("of xmp", "xmp:Rating='2'"),
        "a.jpg.json": takeout("a.jpg", favorited=True),
    }
    found = read({"a.jpg": None, **files})
    assert found.records["a.jpg"].captions == ("a lake",)
    expected = {"title": "of details", "rating": 2, "description": "of a.jpg", "favourite": True}
    assert found.told("a.jpg") == DATE | expected


def test_when_a_copy_was_digitised_is_not_when_it_was_taken(read: Any) -> None:
    assert read({"a.jpg": None, "a.xmp": xmp("x", "xmp:CreateDate='2020-01-01'")}).told(
        "a.jpg"
    ) == {"title": "x"}


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.xmp", "<x>", "not XML"),
        ("a.xmp", "<!DOCTYPE x SYSTEM 'file:///etc/passwd'><x/>", "document type"),
        ("a.jpg.xmp", b" " * (4 * 2**20 + 1), "at most 4194304 are read"),
        ("a.jpg.json", "{", "not JSON"),
        ("a.jpg.json", takeout("a.jpg", x="x" * 65_536), "at most 65536 are read"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_and_its_photo_is_read(
    read: Any, name: str, content: str | bytes, reason: str
) -> None:
    found = read({"a.jpg": None, name: content})
    assert found.told("a.jpg") == {}
    [skipped] = found.skipped
    assert skipped.name == name and reason in skipped.reason
    assert skipped.reason.startswith("not used for its photo: ")


def test_nothing_is_read_where_photos_are_not_to_tell(read: Any) -> None:
    files = {"a.xmp": xmp("x"), "a.jpg.json": takeout("a.jpg"), "a.jpg.xmp": "<"}
    found = read({"a.jpg": None, **files}, sidecars=False)
    assert (found.told("a.jpg"), found.skipped) == ({}, [])


def test_other_programs_files_give_no_identity(read: Any) -> None:
    post = '{"id": "7", "title": "Post", "caption": "", "split": 3, "description": "by me"}'
    found = read({"a.jpg": None, "b.jpg": None, "a.jpg.json": post, "b.jpg.json": "[1]"})
    assert found.records.keys() == {"a.jpg", "b.jpg"}
    assert (found.told("a.jpg"), found.told("b.jpg"), found.skipped) == ({}, {}, [])


def test_a_file_of_no_photo_is_counted(read: Any) -> None:
    files = {"clip.mp4.xmp": xmp("x"), "gone.xmp": xmp("x")}
    assert read({"a.jpg": None, **files}).rules.kinds == {"files of editors": 2}
