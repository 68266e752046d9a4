"""Items, their photos, lists of them, and the index over HTTP."""

from __future__ import annotations

import io
import itertools
import json
import os
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from PIL import Image

from aladin_index.building.builder import build_index
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.format.skipped import SkippedItem, record_stop, write_follow_record
from aladin_index.generations import info
from tests.service.engine_world import EngineWorld
from tests.service.http.conftest import Service, told

pytestmark = pytest.mark.anyio


async def test_items_and_their_photos_are_found_by_any_id(
    client: httpx.AsyncClient,
    image_ids: list[str],
    captions: list[tuple[str, str]],
    data_file: Path,
) -> None:
    for number, item_id in enumerate(image_ids):
        written = quote(item_id, safe="")
        assert (await client.get(f"/v1/items/images/{written}")).json() == {
            "id": item_id,
            "uri": f"photo-{number}.png",
            "text": captions[number][0],
            "metadata": {"number": number, "tags": ["odd" if number % 2 else "even"]},
        }
        text = (await client.get(f"/v1/items/texts/{quote(item_id + '#1', safe='')}")).json()
        assert (text["text"], text["uri"]) == (captions[number][1], None)
        photo = await client.get(f"/v1/images/{written}")
        assert photo.content == (data_file.parent / f"photo-{number}.png").read_bytes()
        assert photo.headers["content-type"] == "image/png"
        small = await client.get(f"/v1/images/{written}", params={"size": 24})
        assert small.headers["content-type"] == "image/jpeg"
        with Image.open(io.BytesIO(small.content)) as picture:
            assert (picture.format, max(picture.size)) == ("JPEG", 24)
    slashes = await client.get("/v1/items/images/dogs/red%231")
    assert slashes.json()["id"] == "dogs/red#1"


async def test_pages_lead_through_all_items(
    client: httpx.AsyncClient, image_ids: list[str]
) -> None:
    whole = (await client.get("/v1/items/images")).json()
    assert [item["id"] for item in whole["items"]] == image_ids[::-1]
    assert (whole["total"], whole["next"], whole["generation"]) == (6, None, 1)
    assert whole["items"][0] == {
        "id": "../street",
        "uri": "photo-5.png",
        "text": "a man stands in the street",
        "metadata": {"number": 5, "tags": ["odd"]},
        "size_px": [88, 40],
        "stack": None,
    }
    asked = {"sort": "number", "order": "asc", "limit": 4}
    first = (await client.get("/v1/items/images", params=asked)).json()
    asked["after"] = first["next"]
    rest = (await client.get("/v1/items/images", params=asked)).json()
    assert [item["id"] for item in [*first["items"], *rest["items"]]] == image_ids
    assert rest["next"] is None
    asked = {"filter": json.dumps({"tags": "odd"}), "limit": 2}
    odd = (await client.get("/v1/items/images", params=asked)).json()
    assert [item["id"] for item in odd["items"]] == [image_ids[5], image_ids[3]]
    assert (odd["total"], odd["next"]) == (3, image_ids[3])
    texts = (await client.get("/v1/items/texts", params={"limit": 1})).json()
    assert (texts["items"][0]["size_px"], texts["total"]) == (None, 12)


async def test_fields_and_their_values_are_those_of_the_items_that_are_left(
    service: Service, index: Path
) -> None:
    async with service(index=index) as client:
        assert (await client.get("/v1/index/fields")).json()["images"] == [
            {
                **{"name": "number", "kind": "number", "least": 0, "greatest": 5},
                "values": [{"value": number, "count": 1} for number in range(6)],
            },
            {
                **{"name": "tags", "kind": "text", "least": "even", "greatest": "odd"},
                "values": [{"value": "even", "count": 3}, {"value": "odd", "count": 3}],
            },
        ]
        (await client.delete("/v1/items/images/plain")).raise_for_status()
        fields = (await client.get("/v1/index/fields")).json()
        listed = (await client.get("/v1/items/images")).json()
    assert [each["count"] for each in fields["images"][1]["values"]] == [3, 2]
    assert (listed["total"], "plain" in [item["id"] for item in listed["items"]]) == (5, False)


async def test_values_are_counted_within_a_filter_but_for_the_field_itself(
    client: httpx.AsyncClient,
) -> None:
    asked = {"filter": json.dumps({"tags": "odd", "number": {"gte": 2}})}
    number, tags = (await client.get("/v1/index/fields", params=asked)).json()["images"]
    counts = {each["value"]: each["count"] for each in number["values"]}
    assert counts == {0: 0, 1: 1, 2: 0, 3: 1, 4: 0, 5: 1}  # those of odd photos
    assert {each["value"]: each["count"] for each in tags["values"]} == {"even": 2, "odd": 2}
    for wrong, message in (("{", "filter: not JSON"), ("[]", "filter: expected a JSON object")):
        refused = told(await client.get("/v1/index/fields", params={"filter": wrong}))
        assert (refused[0], refused[2]) == (422, message)


async def test_an_engine_lists_nothing_and_says_so(world: EngineWorld) -> None:
    async with world.service() as client:
        within = "/v1/index/fields?filter=%7B%22tags%22:%22odd%22%7D"
        for path in ("/v1/items/images", "/v1/index/fields", within):
            refused = await client.get(path)
            assert told(refused)[:2] == (422, "not_listable")
            assert "vector database" in told(refused)[2]


async def test_the_index_is_described(
    client: httpx.AsyncClient, index_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = (await client.get("/v1/index")).json()
    manifest = json.loads((index_folder / "generations/000001/manifest.json").read_text())
    assert described["generation"] == 1
    assert described["model"] == {"id": manifest["model"]["id"], "name": None}
    assert described["default_candidates"] == manifest["default_candidates"]
    images, texts = described["images"], described["texts"]
    assert (images["count"], texts["count"], images["token_dtype"]) == (6, 12, "float16")
    assert images["ann"]["recall"] == 1.0
    assert images["takes_all"] and texts["takes_all"]
    monkeypatch.setattr(info, "MAX_ITEMS", 6)
    described = (await client.get("/v1/index")).json()
    assert described["images"]["takes_all"] and not described["texts"]["takes_all"]


async def test_ready_from_the_moment_an_index_is_published(
    service: Service, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    index = tmp_path / "index"
    index.mkdir()
    async with service(index=index) as client:
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        for refused in (
            await client.get("/readyz"),
            await client.get("/v1/index"),
            await client.get("/v1/images/a"),
            await client.post("/v1/search/texts", json={"text": "a dog"}),
        ):
            assert told(refused)[:2] == (503, "index_not_ready")
        build_index(tiny_checkpoint, index, None, [TextItem(id="t", text="a dog")])
        assert (await client.get("/readyz")).json()["generation"] == 1
        found = await client.post("/v1/search/texts", json={"text": "a dog"})
        assert found.json()["hits"][0]["id"] == "t"


async def test_the_last_change_is_the_publication_or_a_later_addition_or_deletion(
    service: Service, index: Path
) -> None:
    for path in index.rglob("*"):
        os.utime(path, (3000, 3000))
    before = datetime.now(UTC).timestamp() - 1
    async with service(index=index) as client:
        assert (await client.get("/v1/index")).json()["changed_at"] == "1970-01-01T00:50:00Z"
        await client.delete("/v1/items/images/plain")
        deleted = datetime.fromisoformat((await client.get("/v1/index")).json()["changed_at"])
        await client.post("/v1/items/texts", json={"id": "new", "text": "a caption"})
        added = datetime.fromisoformat((await client.get("/v1/index")).json()["changed_at"])
    assert before < deleted.timestamp() < added.timestamp()


async def test_the_index_says_how_many_are_left_out_and_why_and_names_no_folder(
    service: Service, index: Path
) -> None:
    skipped = [SkippedItem(f"{number}.heic", "HEIC needs a package") for number in range(30)]
    skipped.append(SkippedItem("a.jpg", "/home/me/up: loads/a.jpg: not an image (JPEG)"))
    async with service(index=index) as client:
        before = (await client.get("/v1/index")).json()
        write_follow_record(index, skipped, {"videos": 8})
        record_stop(index, "it was killed")
        after = (await client.get("/v1/index")).json()
    assert (before["follows_folders"], after["follows_folders"]) == (False, True)
    nothing, followed = before["skipped"], after["skipped"]
    assert (nothing["total"], nothing["reasons"], nothing["not_followed"]) == (0, [], None)
    names = [f"{number}.heic" for number in range(20)]
    assert followed == {
        "total": 31,
        "reasons": [
            {"reason": "HEIC needs a package", "count": 30, "names": names},
            {"reason": "not an image (JPEG)", "count": 1, "names": ["a.jpg"]},
        ],
        "other_files": {"videos": 8},
        "not_followed": "it was killed",
    }


async def test_a_photo_that_is_gone_or_elsewhere_is_not_served_and_its_place_not_told(
    service: Service, tiny_checkpoint: Path, data_file: Path, tmp_path: Path
) -> None:
    photo, index = tmp_path / "secret-place" / "photo.png", tmp_path / "index"
    photo.parent.mkdir()
    shutil.copy(data_file.parent / "photo-0.png", photo)
    shutil.copy(photo, tmp_path / "outside.png")
    items = [ImageItem(id=name, path=photo, uri="a.png") for name in ("gone", "elsewhere")]
    build_index(tiny_checkpoint, index, items, None)
    photo.unlink()
    with closing(sqlite3.connect(index / "generations/000001/images/items.sqlite")) as rows:
        rows.execute("UPDATE items SET path = '../outside.png' WHERE id = 'elsewhere'")
        rows.commit()
    async with service(index=index) as client:
        for name, params in itertools.product(("gone", "elsewhere"), ({}, {"size": 32})):
            refused = await client.get(f"/v1/images/{name}", params=params)
            assert told(refused)[:2] == (404, "photo_gone")
            assert "secret-place" not in refused.text
        no_texts = await client.post("/v1/search/texts", json={"text": "a dog"})
        assert told(no_texts)[:2] == (404, "no_such_target")
        assert (await client.get("/v1/index")).json()["texts"] is None
