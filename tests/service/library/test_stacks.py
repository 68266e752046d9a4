"""Stacks of a followed folder over HTTP: pairs, edited copies, bursts and copies are one photo."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx
import pytest
from PIL import ExifTags, Image

import aladin_search
from aladin_index.building.builder import build_index
from aladin_index.settings import BuildSettings, EncodeSettings
from aladin_network.checkpoint import load_checkpoint
from aladin_service.item_sources import image_items
from aladin_service.library.folder_sync import FolderSettings, FolderSync
from tests.aladin.photos.test_fingerprint import margins, scene
from tests.service.commands.conftest import aladin, aladin_json
from tests.service.engine_world import EngineWorld

pytestmark = pytest.mark.anyio
Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


def write(
    folder: Path, name: str, picture: Image.Image, second: int = -1, camera: str = "Pixel"
) -> None:
    exif = Image.Exif()
    if second >= 0:
        exif[ExifTags.Base.Model] = camera
        taken = f"2022:07:14 10:10:{second:02d}"
        exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.DateTimeOriginal] = taken
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    picture.save(buffer, "PNG" if file.suffix == ".png" else "JPEG", exif=exif)
    file.write_bytes(buffer.getvalue())


STACKS = [
    {"a/IMG_0001.png", "a/IMG_0001.JPG", "a/IMG_E0001.JPG"},
    {"a/burst 1.jpg", "a/burst 2.jpg", "a/burst 3.jpg"},
    {"b/original.jpg", "c/d/other name.jpg", "b/small.jpg", "b/cropped.png"},
]
ALONE = {"a/IMG_0002.JPG", "b/1.jpg", "b/2.jpg"}


@pytest.fixture
def library(tmp_path: Path, tiny_checkpoint: Path) -> tuple[Path, Path]:
    """A folder of photos and its index."""
    folder, index = tmp_path / "Pictures", tmp_path / "index"
    write(folder, "a/IMG_0001.png", scene(1))
    write(folder, "a/IMG_0001.JPG", scene(1))
    write(folder, "a/IMG_E0001.JPG", margins(scene(1), 0.25))
    write(folder, "a/IMG_0002.JPG", scene(2))
    for number in (1, 2, 3):
        moved = scene(3).crop((9 * number, 0, 440 + 9 * number, 360))
        write(folder, f"a/burst {number}.jpg", moved, 10 + 2 * number)
    write(folder, "b/original.jpg", scene(4))
    (folder / "c/d").mkdir(parents=True)
    shutil.copy(folder / "b/original.jpg", folder / "c/d/other name.jpg")
    write(folder, "b/small.jpg", scene(4).resize((120, 90)))
    write(folder, "b/cropped.png", margins(scene(4), 0.01))
    write(folder, "b/1.jpg", scene(5))
    write(folder, "b/2.jpg", scene(6))
    settings = BuildSettings(readers=1)
    build_index(tiny_checkpoint, index, image_items(folder, None), None, settings)
    return folder, index


async def stacks_of(client: httpx.AsyncClient, *, listed: bool) -> list[tuple[str, list[str]]]:
    """What is shown, and the photos that each of it stands for."""
    if listed:
        asked = {"stack": "true", "limit": 200}
        items = (await client.get("/v1/items/images", params=asked)).json()["items"]
    else:
        body = {"text": "a dog", "stack": True, "k": 100}
        items = (await client.post("/v1/search/images", json=body)).json()["hits"]
    found: list[tuple[str, list[str]]] = []
    for item in items:
        ids = [item["id"]] if item["stack"] is None else item["stack"]["ids"]
        assert item["stack"] is None or item["stack"]["count"] == len(ids) > 1
        found.append((item["id"], ids))
    return found


@pytest.mark.parametrize("listed", [True, False])
async def test_each_stack_is_one_photo_also_after_a_later_pass(
    library: tuple[Path, Path], service: Service, tiny_checkpoint: Path, listed: bool
) -> None:
    folder, index = library
    expected = [*STACKS, *({name} for name in ALONE)]
    async with service(index=index) as client:
        found = await stacks_of(client, listed=listed)
    assert sorted(map(sorted, expected)) == sorted(sorted(ids) for _, ids in found)
    assert all(shown == ids[0] for shown, ids in found)

    (folder / "e").mkdir()
    shutil.copy(folder / "b/original.jpg", folder / "e/sent.jpg")  # not encoded again
    write(folder, "e/2.jpg", scene(6).resize((300, 200)))
    (folder / "a/burst 2.jpg").unlink()
    added = EncodeSettings(readers=1)
    network = load_checkpoint(tiny_checkpoint)
    FolderSync(index, FolderSettings(folders=[folder], add=added), checkpoint=network).run()
    expected = [
        STACKS[0],
        STACKS[1] - {"a/burst 2.jpg"},
        STACKS[2] | {"e/sent.jpg"},
        {"b/2.jpg", "e/2.jpg"},
        *({name} for name in ALONE - {"b/2.jpg"}),
    ]
    async with service(index=index) as client:
        found = await stacks_of(client, listed=listed)
    assert sorted(map(sorted, expected)) == sorted(sorted(ids) for _, ids in found)


async def test_photos_are_apart_unless_stacks_are_asked_for(
    library: tuple[Path, Path], service: Service
) -> None:
    _, index = library
    async with service(index=index) as client:
        listed = (await client.get("/v1/items/images", params={"limit": 200})).json()
        body = {"text": "a dog", "k": 100}
        hits = (await client.post("/v1/search/images", json=body)).json()["hits"]
    for items in (listed["items"], hits):
        assert len(items) == listed["total"] == 13
        assert all(item["stack"] is None for item in items)


async def test_a_search_of_a_database_says_that_it_has_no_stacks(world: EngineWorld) -> None:
    body = {"text": "a dog", "k": 3}
    async with world.service() as client:
        plain = (await client.post("/v1/search/images", json=body)).json()
        answer = (await client.post("/v1/search/images", json=body | {"stack": True})).json()
    assert (plain["degraded"], answer["degraded"]) == ([], ["stack"])
    assert [hit["id"] for hit in answer["hits"]] == [hit["id"] for hit in plain["hits"]]


def test_stacks_in_python_and_on_the_command_line(library: tuple[Path, Path]) -> None:
    _, folder = library
    expected = sorted(map(sorted, [*STACKS, *({name} for name in ALONE)]))
    with aladin_search.open(folder) as index:
        items = [*index.items(stack=True)]
        assert sorted(sorted(item.stack or [item.id]) for item in items) == expected
        hits = index.search("a dog", k=100, stack=True)
    of_hits = [hit.stack.ids if hit.stack else [hit.id] for hit in hits]
    assert sorted(map(sorted, of_hits)) == expected
    asked = ("search", folder, "a dog", "--stack", "-k", 100)
    assert [hit["id"] for hit in aladin_json(*asked)["hits"]] == [hit.id for hit in hits]
    printed = aladin(*asked).stdout
    for count in (3, 4):
        shown = sum(len(ids) == count for ids in of_hits)
        assert printed.count(f"the best of {count} that belong together") == shown > 0


async def test_stacks_for_agents_and_for_an_uploaded_photo(
    library: tuple[Path, Path], service: Service
) -> None:
    pytest.importorskip("mcp")
    from tests.service.mcp.test_tools import served

    folder, index = library
    expected = sorted(map(sorted, [*STACKS, *({name} for name in ALONE)]))
    async with served(index) as agent:
        hits = (await agent.data("search", query="a dog", stack=True, k=50))["hits"]
    of_hits = [hit["stack"]["ids"] if "stack" in hit else [hit["id"]] for hit in hits]
    assert sorted(map(sorted, of_hits)) == expected
    files, data = {"image": (folder / "b/1.jpg").read_bytes()}, {"stack": "true", "k": "100"}
    async with service(index=index) as client:
        answer = await client.post("/v1/search/images", files=files, data=data)
    assert len(answer.raise_for_status().json()["hits"]) == len(expected)
