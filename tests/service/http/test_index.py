"""`GET /v1/index`: what the service says of its index."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from aladin_index.building.builder import build_index
from aladin_index.encode.source_items import ImageItem
from aladin_index.format.layout import CURRENT, generation_folder
from aladin_index.format.skipped import SkippedItem, record_stop, write_follow_record
from aladin_service.item_sources import image_items, text_items

pytestmark = pytest.mark.anyio

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


@pytest.fixture(scope="session")
def with_skipped(
    tiny_checkpoint: Path, data_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An index whose build left out three photos."""
    folder = tmp_path_factory.mktemp("skipped")
    broken: list[ImageItem] = []
    for number in range(3):
        path = folder / f"broken-{number}.png"
        path.write_bytes(b"no photo")
        broken.append(ImageItem(id=f"broken {number}", path=path, uri=path.name))
    photos = [*image_items(data_file, None), *broken]
    root = folder / "index"
    build_index(tiny_checkpoint, root, photos, text_items(data_file, None))
    return root


@pytest.fixture
def index(with_skipped: Path, tmp_path: Path) -> Path:
    """A copy of `with_skipped` that a test may change."""
    return Path(shutil.copytree(with_skipped, tmp_path / "index"))


async def test_the_index_says_how_many_are_left_out_and_why(service: Service, index: Path) -> None:
    async with service(index=index) as client:
        skipped = (await client.get("/v1/index")).json()["skipped"]
        names = [name for group in skipped["reasons"] for name in group["names"]]
        assert (skipped["total"], sorted(names)) == (3, ["broken 0", "broken 1", "broken 2"])
        assert sum(group["count"] for group in skipped["reasons"]) == 3
        assert (skipped["other_files"], skipped["not_followed"]) == ({}, None)

        heic = [SkippedItem(f"{number}.heic", "HEIC needs a package") for number in range(30)]
        write_follow_record(index, [*heic, SkippedItem("a.jpg", "damaged")], {"videos": 8})
        record_stop(index, "it was killed")
        followed = (await client.get("/v1/index")).json()["skipped"]
    assert followed == {
        "total": 31,
        "reasons": [
            {
                "reason": "HEIC needs a package",
                "count": 30,
                "names": [f"{number}.heic" for number in range(20)],
            },
            {"reason": "damaged", "count": 1, "names": ["a.jpg"]},
        ],
        "other_files": {"videos": 8},
        "not_followed": "it was killed",
    }


async def test_the_last_change_is_the_publication_or_a_later_addition_or_deletion(
    service: Service, index: Path
) -> None:
    os.utime(index / CURRENT, (3000, 3000))
    before = datetime.now(UTC)
    async with service(index=index) as client:
        assert (await client.get("/v1/index")).json()["changed_at"] == "1970-01-01T00:50:00Z"
        await client.delete("/v1/items/images/plain")
        deleted = datetime.fromisoformat((await client.get("/v1/index")).json()["changed_at"])
        await client.post("/v1/items/texts", json={"id": "new", "text": "a caption"})
        added = datetime.fromisoformat((await client.get("/v1/index")).json()["changed_at"])
    assert before.timestamp() - 1 < deleted.timestamp() < added.timestamp()


async def test_reasons_name_files_without_their_folders(service: Service, index: Path) -> None:
    """Both those that a build writes now and those that one has written before."""
    async with service(index=index) as client:
        reasons = (await client.get("/v1/index")).json()["skipped"]["reasons"]
    assert all("not an image of a known format" in each["reason"] for each in reasons)
    assert all(str(index.parent) not in json.dumps(each) for each in reasons)
    file = generation_folder(index, 1) / "images" / "skipped.json"
    written = [["broken 0", "/home/me/up: loads/broken-0.png: not an image (JPEG)"]]
    text = json.dumps(written).ljust(file.stat().st_size)  # of the length that the manifest has
    file.unlink()  # it may be another generation's, too
    file.write_text(text)
    async with service(index=index) as client:
        (reason,) = (await client.get("/v1/index")).json()["skipped"]["reasons"]
    assert (reason["names"], reason["reason"]) == (["broken 0"], "not an image (JPEG)")


@pytest.mark.parametrize("content", [None, "", "[[1]]", "{", "5", "[" * 100_000])
async def test_an_index_whose_list_of_skipped_items_is_damaged_is_described(
    service: Service, index: Path, content: str | None
) -> None:
    file = generation_folder(index, 1) / "images" / "skipped.json"
    async with service(index=index) as client:
        whole = (await client.get("/v1/index")).json()
        file.unlink()
        if content is not None:
            file.write_text(content)
        answer = await client.get("/v1/index")
    assert answer.status_code == 200, answer.text
    assert {**answer.json(), "skipped": None} == {**whole, "skipped": None}
