"""A zip of photos: the bytes and names of its files, who gets which, and what is refused."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import unicodedata
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from aladin_index.building.builder import build_index
from aladin_service.api_key import Scope
from aladin_service.http.routes import archive
from aladin_service.item_sources import image_items
from aladin_service.keys_file import add_key
from tests.service.http.conftest import Service, told

pytestmark = pytest.mark.anyio

URL = "/v1/images.zip"
# Their bytes differ; one is turned by its EXIF data, which say who took it.
NAMES = [
    "Zürich/Café “au lait” & 'x'.jpg",
    "a/IMG_1.JPG",
    "b/img_1.jpg",
    "b/IMG_1 (2).jpg",
    "c/IMG_1.jpg",
    "turned.jpg",
    "drawing.bmp",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos of `NAMES`."""
    folder = tmp_path_factory.mktemp("archive") / "photos"
    for number, name in enumerate(NAMES):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        exif = Image.Exif()
        exif[0x13B] = "Anna Beispiel"  # the artist
        if name == "turned.jpg":
            exif[0x112] = 6
        options: dict[str, Any] = {} if name.endswith("bmp") else {"exif": exif}
        Image.new("RGB", (40 + number, 30), (9 * number, 90, 200)).save(file, **options)
        os.utime(file, (1.5e9 + 2 * number, 1.5e9 + 2 * number))
    return folder


@pytest.fixture(scope="module")
def photos(tiny_checkpoint: Path, folder: Path) -> Path:
    """An index of them."""
    index = folder.parent / "index"
    build_index(tiny_checkpoint, index, image_items(folder, None), None)
    return index


def entries(answer: httpx.Response) -> dict[str, bytes]:
    """The files of a zip by name, all of which are whole."""
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/zip")
    assert answer.headers["content-disposition"] == 'attachment; filename="photos.zip"'
    with zipfile.ZipFile(io.BytesIO(answer.content)) as found:
        assert found.testzip() is None
        assert {each.compress_type for each in found.infolist()} <= {zipfile.ZIP_STORED}
        # Sizes are in front of the data, where a reader of a stream needs them.
        assert {each.flag_bits & 0x08 for each in found.infolist()} <= {0}
        assert {
            each.external_attr >> 16 for each in found.infolist() if "zip" not in each.filename
        } <= {0o644}
        return {each.filename: found.read(each) for each in found.infolist()}


async def test_files_are_as_they_are_in_the_order_of_their_ids(
    service: Service, photos: Path, folder: Path
) -> None:
    async with service(photos) as client:
        ids = [NAMES[5], *NAMES[:5], NAMES[6], NAMES[5]]
        found = entries(await client.post(URL, json={"ids": ids}))
    expected = {
        "turned.jpg": NAMES[5],
        "Café “au lait” & 'x'.jpg": NAMES[0],
        "IMG_1.JPG": NAMES[1],
        "img_1 (2).jpg": NAMES[2],
        "IMG_1 (2) (2).jpg": NAMES[3],
        "IMG_1 (3).jpg": NAMES[4],
        "drawing.bmp": NAMES[6],
    }
    assert list(found) == list(expected)
    assert found == {name: (folder / path).read_bytes() for name, path in expected.items()}


async def test_other_programs_read_it(service: Service, photos: Path, tmp_path: Path) -> None:
    async with service(photos) as client:
        answer = await client.post(URL, json={"ids": NAMES})
    (tmp_path / "photos.zip").write_bytes(answer.content)
    command = ["python3", "-m", "zipfile", "-e", "photos.zip", "out"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    names = {unicodedata.normalize("NFC", each.name) for each in (tmp_path / "out").iterdir()}
    assert len(names) == len(NAMES) and "Café “au lait” & 'x'.jpg" in names
    with zipfile.ZipFile(io.BytesIO(answer.content)) as found:
        moments = [each.date_time for each in found.infolist()]
    assert moments == sorted(moments) and moments[0][0] == 2017


async def test_who_may_not_write_gets_photos_without_metadata(
    service: Service, photos: Path, tmp_path: Path
) -> None:
    keys = tmp_path / "keys.json"
    scopes: dict[str, tuple[Scope, ...]] = {
        "reader": ("read",),
        "owner": ("read", "write"),
        "other": ("metrics",),
    }
    secrets = {name: add_key(keys, name, granted) for name, granted in scopes.items()}
    async with service(photos, keys_file=keys) as client:
        of: dict[str, httpx.Response] = {}
        for name, secret in secrets.items():
            client.headers["authorization"] = f"Bearer {secret}"
            of[name] = await client.post(URL, json={"ids": NAMES})
        client.headers["authorization"] = f"Bearer {secrets['reader']}"
        shown = [(await client.get(f"/v1/images/{each}")).content for each in NAMES]
        del client.headers["authorization"]
        assert told(await client.post(URL, json={"ids": NAMES}))[0] == 401
    assert told(of["other"])[0] == 403
    found, files = entries(of["reader"]), entries(of["owner"])
    assert list(found.values()) == shown
    assert not any(b"Anna Beispiel" in data for data in found.values())
    assert sum(b"Anna Beispiel" in data for data in files.values()) == 6
    # What no browser shows was re-encoded, and is called so.
    assert [name for name in found if name not in files] == ["drawing.png"]
    assert found["drawing.png"].startswith(b"\x89PNG")


async def test_what_cannot_be_read_any_more_is_named_in_the_zip(
    service: Service, tiny_checkpoint: Path, folder: Path, tmp_path: Path
) -> None:
    root = tmp_path / "photos"
    root.mkdir()
    for name in ("1.jpg", "2.jpg", "3.jpg"):
        (root / name).write_bytes((folder / NAMES[1]).read_bytes())
    build_index(tiny_checkpoint, tmp_path / "index", image_items(root, None), None)
    (root / "1.jpg").unlink()
    (root / "2.jpg").write_bytes(b"secrets of another program")
    async with service(tmp_path / "index") as client:
        found = entries(await client.post(URL, json={"ids": ["1.jpg", "2.jpg", "3.jpg"]}))
    assert list(found) == ["3.jpg", "not in this zip.txt"]
    told_why = found["not in this zip.txt"].decode().splitlines()
    assert told_why == [f"the photo of item '{n}.jpg' can no longer be read" for n in (1, 2)]


async def test_photos_of_a_tar_and_uploaded_ones(
    service: Service, tiny_checkpoint: Path, folder: Path, tmp_path: Path
) -> None:
    data = (folder / NAMES[1]).read_bytes()
    with tarfile.open(tmp_path / "photos.tar", "w") as tar:
        tar.add(folder / NAMES[2], "x/one.jpg")
        tar.add(folder / NAMES[1], "x/two.jpg")
    build_index(
        tiny_checkpoint, tmp_path / "index", image_items(tmp_path / "photos.tar", None), None
    )
    async with service(tmp_path / "index") as client:
        added = await client.post("/v1/items/images", files={"image": data}, data={"id": "up/load"})
        assert added.status_code == 201
        listed = (await client.get("/v1/items/images?order=asc")).json()["items"]
        found = entries(await client.post(URL, json={"ids": [each["id"] for each in listed]}))
    assert [*found.values()] == [(folder / NAMES[2]).read_bytes(), data, data]
    assert [*found] == ["one.jpg", "two.jpg", "load.jpg"]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"ids": ["turned.jpg", "nowhere.jpg"]}, 404, "nowhere.jpg"),
        (
            {"ids": [str(n) for n in range(501)]},
            422,
            "ids: expected at most 500 photos in a zip, got 501",
        ),
        ({"ids": []}, 422, "ids"),
        ({"ids": [7]}, 422, "ids"),
        ({"ids": "turned.jpg"}, 422, "ids"),
        ({}, 422, "ids"),
        ({"ids": ["turned.jpg"], "size": 7}, 422, "size"),
    ],
)
async def test_one_error_and_no_zip(
    service: Service, photos: Path, body: dict[str, Any], status: int, message: str
) -> None:
    async with service(photos) as client:
        found, _, says = told(await client.post(URL, json=body))
    assert found == status and message in says


async def test_a_zip_is_sent_photo_by_photo_in_parts(
    service: Service, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[list[int]] = []
    real = archive.ZipTail.take

    def note(self: Any) -> Iterator[bytes]:
        taken.append([])
        for part in real(self):
            taken[-1].append(len(part))
            yield part
        assert self.getvalue() == b""

    monkeypatch.setattr(archive.ZipTail, "take", note)
    monkeypatch.setattr(archive, "_PART_BYTES", 300)
    async with service(photos) as client:
        answer = await client.post(URL, json={"ids": NAMES})
    assert len(entries(answer)) == len(NAMES)
    assert len(taken) == len(NAMES) + 1
    assert sum(map(sum, taken)) == len(answer.content)
    assert max(map(max, taken)) == 300
