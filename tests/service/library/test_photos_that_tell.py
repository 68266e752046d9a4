"""What photos and the files beside them tell, in a folder that an index follows."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import ExifTags, Image

from aladin_index.building.builder import build_index
from aladin_index.generations.reader import open_index
from aladin_index.settings import BuildSettings, EncodeSettings
from aladin_index.sync.apply import SyncReport
from aladin_network.checkpoint import load_checkpoint
from aladin_service.item_sources import image_items
from aladin_service.library.folder_sync import FolderSettings, FolderSync
from aladin_training.data.folder_rules import FolderRules

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]

XMP = (
    "<x:xmpmeta xmlns:x='adobe:ns:meta/' xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#'"
    " xmlns:dc='http://purl.org/dc/elements/1.1/' xmlns:xmp='http://ns.adobe.com/xap/1.0/'"
    " xmlns:photoshop='http://ns.adobe.com/photoshop/1.0/'>"
    "<rdf:RDF><rdf:Description {}><dc:subject><rdf:Bag>{}</rdf:Bag></dc:subject>"
    "</rdf:Description></rdf:RDF></x:xmpmeta>"
)
TAKEN = {"taken_at": "2020-05-06T07:08:09", "date_source": "exif"}
OWN = {"title": "Zermatt", "rating": 1, **TAKEN}


def xmp(attributes: str, *keywords: str) -> str:
    return XMP.format(attributes, "".join(f"<rdf:li>{word}</rdf:li>" for word in keywords))


def photo(number: int, *, tells: bool = True) -> bytes:
    exif = Image.Exif()
    if tells:
        exif[ExifTags.Base.XPTitle] = "Zermatt".encode("utf-16-le")
        exif[ExifTags.Base.Rating] = 1
        exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.DateTimeOriginal] = "2020:05:06 07:08:09"
    buffer = io.BytesIO()
    Image.new("RGB", (32, 32), (40 * number, 80, 90)).save(buffer, "JPEG", exif=exif)
    return buffer.getvalue()


class _Library:
    """A folder of photos and its index, and what the index has of each photo."""

    def __init__(self, model: Path, home: Path) -> None:
        self.model, self.folder, self.index = model, home / "photos", home / "index"
        self.folder.mkdir()

    def write(self, name: str, content: str | bytes, time: int | None = None) -> Path:
        file = self.folder / name
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        if time is not None:
            os.utime(file, ns=(time, time))
        return file

    def build(self, *, exif: bool = True) -> None:
        items = image_items(self.folder, None, rules=FolderRules(sidecars=exif))
        build_index(self.model, self.index, items, None, BuildSettings(readers=1, exif=exif))

    def sync(self, **options: Any) -> SyncReport:
        add = EncodeSettings(readers=1, **options)
        settings = FolderSettings(folders=[self.folder], add=add)
        network = load_checkpoint(self.model)
        return FolderSync(self.index, settings, checkpoint=network).run()

    def told(self) -> dict[str, dict[str, Any]]:
        with open_index(self.index) as opened:
            items = opened.collection("images").items
            rows = [row for _, row in items.ids()]
            return {item.id: item.metadata for item in items.by_rows(rows)}


@pytest.fixture
def library(tiny_checkpoint: Path, tmp_path: Path) -> _Library:
    made = _Library(tiny_checkpoint, tmp_path)
    for number in range(3):
        made.write(f"{number}.jpg", photo(number))
    return made


def test_a_changed_sidecar_changes_its_photo_and_encodes_nothing(library: _Library) -> None:
    library.write("0.xmp", xmp("xmp:Rating='4'", "Alps"))
    library.build()
    assert library.told() == {
        "0.jpg": OWN | {"rating": 4, "keywords": ["Alps"]},
        "1.jpg": OWN,
        "2.jpg": OWN,
    }
    # Changed, new, and of another kind.
    library.write("0.xmp", xmp("photoshop:DateCreated='1999-01-02T03:04:05Z'", "snow"))
    library.write("1.jpg.xmp", xmp("xmp:Rating='5'"))
    library.write("2.jpg.json", json.dumps({"photoTakenTime": {}, "favorited": True}))
    report = library.sync()
    assert (report.changed, report.encoded, report.unchanged) == (["0.jpg", "1.jpg", "2.jpg"], 0, 0)
    date = {"taken_at": "1999-01-02T03:04:05", "utc_offset": "+00:00", "date_source": "xmp"}
    assert library.told() == {
        "0.jpg": OWN | {"keywords": ["snow"]} | date,
        "1.jpg": OWN | {"rating": 5},
        "2.jpg": OWN | {"favourite": True},
    }
    # Gone: what the photo tells of itself is back.
    for name in ("0.xmp", "1.jpg.xmp", "2.jpg.json"):
        (library.folder / name).unlink()
    report = library.sync()
    assert (len(report.changed), report.encoded) == (3, 0)
    assert library.told() == dict.fromkeys(("0.jpg", "1.jpg", "2.jpg"), OWN)
    assert not library.sync().has_changes


def test_dates_by_name_and_time_follow_a_photo_that_moves_or_is_touched(library: _Library) -> None:
    second = 10**9
    plain = photo(4, tells=False)
    moved = library.write("IMG-20190203-WA0001.jpg", plain, 1_600_000_000 * second)
    touched = library.write("scan.jpg", photo(5, tells=False), 1_600_000_000 * second)
    old = library.folder / "0.jpg"
    library.build()
    assert not library.sync().has_changes  # but the digests of the files are known now

    def dates() -> dict[str, tuple[str, str]]:
        return {
            name: (each["taken_at"][:10], each["date_source"])
            for name, each in library.told().items()
        }

    own = dict.fromkeys(("0.jpg", "1.jpg", "2.jpg"), ("2020-05-06", "exif"))
    by_time = {"scan.jpg": ("2020-09-13", "file")}
    assert dates() == own | by_time | {"IMG-20190203-WA0001.jpg": ("2019-02-03", "name")}
    moved.rename(library.folder / "Screenshot_20180203-101112.jpg")
    for file in (touched, old):
        os.utime(file, times=(1_500_000_000, 1_500_000_000))
    report = library.sync()
    assert (report.moved, report.changed) == (["Screenshot_20180203-101112.jpg"], ["scan.jpg"])
    assert (report.encoded, report.unchanged) == (0, 3)
    by_time = {"scan.jpg": ("2017-07-14", "file")}
    assert dates() == own | by_time | {"Screenshot_20180203-101112.jpg": ("2018-02-03", "name")}


def test_nothing_is_told_without_exif_and_all_again_with_it(library: _Library) -> None:
    library.write("0.xmp", xmp("xmp:Rating='4'"))
    library.build(exif=False)
    assert library.told() == {name: {} for name in ("0.jpg", "1.jpg", "2.jpg")}
    assert not library.sync(exif=False).has_changes
    assert library.sync().changed == ["0.jpg"]  # as only its folder says something else now
    assert library.told()["0.jpg"] == OWN | {"rating": 4}


@pytest.mark.anyio
async def test_fields_are_filters_facets_orders_and_words(
    library: _Library, service: Service
) -> None:
    person = {"photoTakenTime": {"timestamp": "1588748889"}, "people": [{"name": "Grace Hopper"}]}
    library.write("0.xmp", xmp("xmp:Rating='4'", "Alps", "Quokka"))
    library.write("1.jpg.json", json.dumps(person))
    library.write("2.xmp", xmp("xmp:Rating='-1'", "Alps"))
    library.build()

    async with service(index=library.index) as client:

        async def ids(**options: object) -> list[str]:
            body = {"text": "a dog", "k": 3, **options}
            answer = await client.post("/v1/search/images", json=body)
            assert answer.status_code == 200, answer.text
            return [hit["id"] for hit in answer.json()["hits"]]

        assert sorted(await ids(filter={"keywords": "Alps"})) == ["0.jpg", "2.jpg"]
        assert await ids(filter={"people": "Grace Hopper"}) == ["1.jpg"]
        assert await ids(filter={"rating": {"gte": 3}}) == ["0.jpg"]
        assert await ids(filter={"utc_offset": "+00:00"}) == ["1.jpg"]
        assert await ids(sort="-rating") == ["0.jpg", "1.jpg", "2.jpg"]
        for words, found in (("quokka", "0.jpg"), ("grace hopper", "1.jpg")):
            assert (await ids(text=words, lexical=1))[0] == found
        fields = (await client.get("/v1/index/fields")).json()["images"]
        values = {each["name"]: each["values"] for each in fields}
        listed = (await client.get("/v1/items/images?sort=rating&order=desc")).json()
    assert [item["id"] for item in listed["items"]] == ["0.jpg", "1.jpg", "2.jpg"]
    assert values.keys() == {"keywords", "people", "rating", "title", "utc_offset", *TAKEN}
    counts = {each["value"]: each["count"] for each in values["keywords"]}
    assert counts == {"Alps": 2, "Quokka": 1}
