"""Items, their photos, and the index over HTTP."""

from __future__ import annotations

import io
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from PIL import Image

from aladin_index.building.builder import build_index
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.generations import info
from aladin_service.item_sources import image_items

pytestmark = pytest.mark.anyio

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


async def test_items_are_found_by_any_id(
    service: Service, image_ids: list[str], captions: list[tuple[str, str]]
) -> None:
    async with service() as client:
        for number, item_id in enumerate(image_ids):
            image = await client.get(f"/v1/items/images/{quote(item_id, safe='')}")
            assert image.json() == {
                "id": item_id,
                "uri": f"photo-{number}.png",
                "text": captions[number][0],
                "metadata": {"number": number, "tags": ["odd" if number % 2 else "even"]},
            }
            text = await client.get(f"/v1/items/texts/{quote(item_id + '#1', safe='')}")
            assert text.json()["text"] == captions[number][1]
            assert text.json()["uri"] is None
        slashes = await client.get("/v1/items/images/dogs/red%231")
        assert slashes.json()["id"] == "dogs/red#1"


async def test_unknown_items_and_targets(service: Service) -> None:
    async with service() as client:
        for path in ("/v1/items/images/nobody", "/v1/items/texts/dogs/red", "/v1/images/nobody"):
            response = await client.get(path)
            assert response.status_code == 404
            assert response.json()["error"]["code"] == "unknown_id"
        response = await client.get("/v1/items/sounds/a")
        assert response.status_code == 422
        assert "target" in response.json()["error"]["message"]


async def test_the_photo_of_an_item_as_it_is_and_smaller(
    service: Service, data_file: Path, image_ids: list[str]
) -> None:
    async with service() as client:
        for number, item_id in enumerate(image_ids):
            url = f"/v1/images/{quote(item_id, safe='')}"
            original = await client.get(url)
            assert original.content == (data_file.parent / f"photo-{number}.png").read_bytes()
            assert original.headers["content-type"] == "image/png"
            assert original.headers["X-Content-Type-Options"] == "nosniff"
            small = await client.get(url, params={"size": 24})
            assert small.headers["content-type"] == "image/jpeg"
            with Image.open(io.BytesIO(small.content)) as picture:
                assert (picture.format, max(picture.size)) == ("JPEG", 24)


@pytest.mark.parametrize("size", ["0", "-1", "15", "2049", "1000000000", "big", "1.5", ""])
async def test_sizes_out_of_bounds(service: Service, size: str) -> None:
    async with service() as client:
        response = await client.get("/v1/images/plain", params={"size": size})
    assert response.status_code == 422
    assert "size" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/images/../../../../etc/passwd",
        "/v1/images/..%2F..%2F..%2Fetc%2Fpasswd",
        "/v1/images//etc/passwd",
        "/v1/images/%2Fetc%2Fpasswd",
        "/v1/images/photo-0.png",
        "/v1/images/plain%00.png",
    ],
)
async def test_only_photos_of_items_are_handed_out(service: Service, path: str) -> None:
    async with service() as client:
        response = await client.get(path)
    assert response.status_code == 404
    assert "root:" not in response.text


async def test_a_photo_that_is_gone_says_nothing_of_where_it_was(
    service: Service, tiny_checkpoint: Path, data_file: Path, tmp_path: Path
) -> None:
    photo = tmp_path / "secret-place" / "photo.png"
    photo.parent.mkdir()
    shutil.copy(data_file.parent / "photo-0.png", photo)
    item = ImageItem(id="gone", path=photo, uri="gone.png")
    build_index(tiny_checkpoint, tmp_path / "index", [item], None)
    photo.unlink()
    async with service(index=tmp_path / "index") as client:
        for params in ({}, {"size": 32}):
            response = await client.get("/v1/images/gone", params=params)
            assert response.status_code == 404
            assert response.json()["error"]["code"] == "photo_gone"
            assert "secret-place" not in response.text


async def test_an_index_from_elsewhere_leads_nowhere_else(
    service: Service, index_folder: Path, data_file: Path, tmp_path: Path
) -> None:
    index = Path(shutil.copytree(index_folder, tmp_path / "index"))
    shutil.copy(data_file.parent / "photo-0.png", tmp_path / "outside.png")
    with closing(sqlite3.connect(index / "generations/000001/images/items.sqlite")) as items:
        items.execute("UPDATE items SET path = '../outside.png' WHERE id = 'plain'")
        items.commit()
    async with service(index=index) as client:
        for params in ({}, {"size": 32}):
            response = await client.get("/v1/images/plain", params=params)
            assert response.status_code == 404
            assert response.json()["error"]["code"] == "photo_gone"


async def test_an_index_without_texts_says_so(
    service: Service, tiny_checkpoint: Path, data_file: Path, tmp_path: Path
) -> None:
    build_index(tiny_checkpoint, tmp_path / "index", image_items(data_file, None), None)
    async with service(index=tmp_path / "index") as client:
        response = await client.post("/v1/search/texts", json={"text": "a dog"})
        assert response.status_code == 404
        assert response.json()["error"]["code"] == "no_such_target"
        described = (await client.get("/v1/index")).json()
    assert described["texts"] is None
    assert described["images"]["count"] == 6


async def test_the_index_is_described(service: Service, index_folder: Path) -> None:
    async with service() as client:
        described = (await client.get("/v1/index")).json()
    manifest = json.loads((index_folder / "generations/000001/manifest.json").read_text())
    assert described["generation"] == 1
    assert described["model"] == {"id": manifest["model"]["id"]}
    assert described["default_candidates"] == manifest["default_candidates"]
    assert (described["images"]["count"], described["texts"]["count"]) == (6, 12)
    assert described["images"]["token_dtype"] == "float16"
    assert described["images"]["ann"]["recall"] == 1.0
    assert described["images"]["takes_all"] and described["texts"]["takes_all"]


async def test_a_large_collection_does_not_take_all(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(info, "MAX_ITEMS", 6)
    async with service() as client:
        described = (await client.get("/v1/index")).json()
    assert described["images"]["takes_all"] and not described["texts"]["takes_all"]


async def test_ready_from_the_moment_an_index_is_published(
    service: Service, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    index = tmp_path / "index"
    index.mkdir()
    async with service(index=index) as client:
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        for response in (
            await client.get("/readyz"),
            await client.get("/v1/index"),
            await client.get("/v1/images/a"),
            await client.post("/v1/search/texts", json={"text": "a dog"}),
        ):
            assert response.status_code == 503
            assert response.json()["error"]["code"] == "index_not_ready"
        build_index(tiny_checkpoint, index, None, [TextItem(id="t", text="a dog")])
        assert (await client.get("/readyz")).json()["generation"] == 1
        found = await client.post("/v1/search/texts", json={"text": "a dog"})
        assert found.json()["hits"][0]["id"] == "t"


async def test_a_damaged_generation_is_not_served_and_the_process_lives(
    service: Service, index_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    index = tmp_path / "index"
    shutil.copytree(index_folder, index)
    tokens = index / "generations/000001/images/tokens.npy"
    tokens.write_bytes(tokens.read_bytes()[:-1])
    async with service(index=index) as client:
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/readyz")).status_code == 503
    assert "tokens.npy" in caplog.text


async def test_a_client_that_has_a_photo_is_told_so(service: Service) -> None:
    async with service() as client:
        for params in ({}, {"size": 24}):
            first = await client.get("/v1/images/plain", params=params)
            etag = first.headers["ETag"]
            assert "no-cache" in first.headers["Cache-Control"]
            for known in (etag, f'"a", W/{etag}, "b"'):
                again = await client.get(
                    "/v1/images/plain", params=params, headers={"If-None-Match": known}
                )
                assert (again.status_code, again.content) == (304, b"")
                assert again.headers["ETag"] == etag
            other = await client.get(
                "/v1/images/plain", params=params, headers={"If-None-Match": f'"{"0" * 64}"'}
            )
            assert other.content == first.content


async def test_a_photo_that_was_replaced_is_never_stale(
    service: Service, tiny_checkpoint: Path, data_file: Path, tmp_path: Path
) -> None:
    photo = tmp_path / "photo.png"
    shutil.copy(data_file.parent / "photo-0.png", photo)
    item = ImageItem(id="a", path=photo, uri="a.png")
    build_index(tiny_checkpoint, tmp_path / "index", [item], None)
    async with service(index=tmp_path / "index") as client:
        first = await client.get("/v1/images/a", params={"size": 24})
        again = await client.get("/v1/images/a", params={"size": 24})
        assert again.content == first.content
        shutil.copy(data_file.parent / "photo-1.png", tmp_path / "new.png")
        (tmp_path / "new.png").replace(photo)
        changed = await client.get(
            "/v1/images/a", params={"size": 24}, headers={"If-None-Match": first.headers["ETag"]}
        )
        assert changed.status_code == 200
        assert changed.content != first.content
