"""Adding and deleting items over HTTP, beside what other processes do to the index."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from aladin_index.building.builder import build_index
from aladin_index.changes.writer import ChangesWriter
from aladin_index.format.layout import generation_folder, live_generation
from aladin_index.format.manifest import read_manifest
from aladin_index.generations.compact import compact_index
from aladin_index.generations.published import rollback_index
from aladin_service.item_sources import image_items, text_items
from tests.service.http.conftest import Service, b64, told

pytestmark = pytest.mark.anyio


async def search(client: httpx.AsyncClient, target: str = "images", **query: Any) -> dict[str, Any]:
    body = {"text": "a dog", "k": 100} if not {"id", "image"} & query.keys() else {"k": 100}
    answer = await client.post(f"/v1/search/{target}", json=body | query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def ids(client: httpx.AsyncClient, target: str = "images", **query: Any) -> list[str]:
    return [hit["id"] for hit in (await search(client, target, **query))["hits"]]


async def test_a_photo_is_found_by_the_next_request_and_again_by_the_next_service(
    service: Service, index: Path, photo: bytes
) -> None:
    content = b64(photo)
    new = {"id": "new/photo", "text": "a caption", "metadata": {"n": 7}}
    async with service(index) as client:
        before = await ids(client)
        answer = await client.post("/v1/items/images", json=new | {"image": content})
        assert answer.status_code == 201
        body = answer.json()
        assert set(body.pop("took_ms")) == {"decode", "encode", "write", "total"}
        assert body == {"added": ["new/photo"], "replaced": [], "kept": [], "generation": 1}
        assert set(await ids(client)) == {*before, "new/photo"}
        # The very photo is its own best match, at cosine 1.
        best = (await search(client, image=content))["hits"][0]
        assert (best["id"], best["score"]) == ("new/photo", pytest.approx(1, abs=1e-5))
        assert await ids(client, filter={"n": {"gte": 7}}) == ["new/photo"]
        item = (await client.get("/v1/items/images/new/photo")).json()
        assert item == new | {"uri": "new/photo"}
        # As a query it is what is stored of it, and not among its own hits.
        alike = [hit for hit in await ids(client, image=content) if hit != "new/photo"]
        assert await ids(client, id="new/photo") == alike
        form = {"id": "form", "uri": "album/a.png", "metadata": '{"year": 2020}'}
        added = await client.post("/v1/items/images", files={"image": photo}, data=form)
        assert added.status_code == 201, added.text
        item = (await client.get("/v1/items/images/form")).json()
        stored = (item["uri"], item["text"], item["metadata"])
        assert stored == ("album/a.png", None, {"year": 2020})
        info = (await client.get("/v1/index")).json()
        assert (info["images"]["count"], info["texts"]["count"]) == (8, 12)
    moved = index.rename(index.with_name("moved"))
    async with service(moved) as client:
        assert set(await ids(client)) == {*before, "new/photo", "form"}
        kept = await client.get("/v1/images/new/photo")
        assert (kept.content, kept.headers["content-type"]) == (photo, "image/png")


async def test_texts_are_added_in_one_step_and_duplicates_refused_replaced_or_skipped(
    service: Service, index: Path
) -> None:
    async with service(index) as client:
        texts = [{"id": f"t{n}", "text": f"a red dog {'runs ' * n}"} for n in range(3)]
        answer = await client.post("/v1/items/texts", json={"items": texts})
        assert answer.json()["added"] == ["t0", "t1", "t2"]
        best = (await search(client, "texts", text="a red dog"))["hits"][0]
        assert (best["id"], best["score"]) == ("t0", pytest.approx(1, abs=1e-5))

        new = [{"id": "fresh", "text": "a blue star"}, {"id": "plain#0", "text": "green grass"}]
        before = (await client.get("/v1/items/texts/plain%230")).json()
        refused = await client.post("/v1/items/texts", json={"items": new})
        assert told(refused)[:2] == (409, "duplicate_id")
        assert "'plain#0'" in told(refused)[2]
        assert (await client.get("/v1/items/texts/fresh")).status_code == 404

        skipped = await client.post("/v1/items/texts?on_duplicate=skip", json={"items": new})
        assert (skipped.json()["added"], skipped.json()["kept"]) == (["fresh"], ["plain#0"])
        assert (await client.get("/v1/items/texts/plain%230")).json() == before

        replaced = await client.post("/v1/items/texts?on_duplicate=replace", json={"items": new})
        assert replaced.json()["replaced"] == ["fresh", "plain#0"]
        assert (await client.get("/v1/items/texts/plain%230")).json()["text"] == "green grass"
        found = await ids(client, "texts", text="green grass")
        assert (found[0], len(found), len(set(found))) == ("plain#0", 16, 16)

        long = {"id": "long", "text": "dog " * 40, "metadata": {"notes": "x" * 65_000}}
        assert (await client.post("/v1/items/texts", json=long)).status_code == 201
        item = (await client.get("/v1/items/texts/long")).json()
        assert item["text"] == "dog " * 40
        assert item["metadata"] == long["metadata"] | {"cut_to_tokens": 32}
    async with service(index, max_metadata_bytes=70_000) as client:
        large = {"id": "large", "text": "a dog", "metadata": {"notes": "x" * 65_536}}
        assert (await client.post("/v1/items/texts", json=large)).status_code == 201


async def test_a_deleted_item_is_gone_and_may_come_again(
    service: Service, index: Path, photo: bytes
) -> None:
    written = quote("dogs/red#1", safe="")
    url = f"/v1/items/images/{written}"
    async with service(index) as client:
        assert (await client.delete(url)).json() == {"deleted": "dogs/red#1", "generation": 1}
        assert "dogs/red#1" not in await ids(client)
        assert len(await ids(client, filter={"tags": "even"})) == 2
        for gone in (
            await client.delete(url),
            await client.get(url),
            await client.get(f"/v1/images/{written}"),
            await client.post("/v1/search/images", json={"id": "dogs/red#1"}),
        ):
            assert told(gone)[:2] == (404, "unknown_id")
        again = {"id": "dogs/red#1", "image": b64(photo)}
        assert (await client.post("/v1/items/images", json=again)).status_code == 201
        assert (await client.get(url)).json()["text"] is None


async def test_what_others_do_to_the_folder_is_seen_by_the_next_request(
    service: Service, index: Path, data_file: Path, tiny_checkpoint: Path
) -> None:
    async with service(index) as client:

        async def state() -> tuple[int, int]:
            answer = await search(client)
            return answer["generation"], len(answer["hits"])

        assert await state() == (1, 6)
        other = ChangesWriter(index, read_manifest(generation_folder(index, 1)).model.id)
        other.delete("images", ["plain"])
        assert await state() == (1, 5)
        compact_index(index)
        assert await state() == (2, 5)
        deleted = await client.delete(f"/v1/items/images/{quote('bike 2?', safe='')}")
        assert deleted.json()["generation"] == 2
        assert await state() == (2, 4)
        rollback_index(index)
        assert await state() == (1, 5)
        items = image_items(data_file, None), text_items(data_file, None)
        build_index(tiny_checkpoint, index, *items)
        assert await state() == (3, 6)
        assert (await client.get("/readyz")).json()["generation"] == 3
        other.close()


async def test_no_request_fails_while_generations_are_swapped(
    service: Service, index: Path
) -> None:
    """Two clients search and one adds and deletes while the index is compacted again and again."""
    done = asyncio.Event()
    statuses: set[int] = set()
    generations: set[int] = set()

    async def searching(client: httpx.AsyncClient) -> None:
        while not done.is_set():
            answer = await client.post("/v1/search/images", json={"text": "a dog", "k": 3})
            statuses.add(answer.status_code)
            generations.add(answer.json()["generation"])

    async def changing(client: httpx.AsyncClient) -> None:
        number = 0
        while not done.is_set():
            body = {"id": f"n{number}", "text": "a dog"}
            statuses.add((await client.post("/v1/items/texts", json=body)).status_code)
            statuses.add((await client.get(f"/v1/items/texts/n{number}")).status_code)
            if number % 2:
                statuses.add((await client.delete(f"/v1/items/texts/n{number}")).status_code)
            number += 1

    # While a generation is opened queries wait: none may be refused for what others wait.
    async with service(index, max_wait_ms=60_000) as client:
        clients = (searching, searching, changing)
        working = [asyncio.create_task(work(client)) for work in clients]
        try:
            async with asyncio.timeout(60):
                while len(generations) < 3:  # a compaction without a change makes none
                    await asyncio.to_thread(compact_index, index, keep=0)
                    await asyncio.sleep(0.01)
        finally:
            done.set()
            await asyncio.gather(*working)
        last = await client.get("/readyz")
    assert statuses == {200, 201}
    assert last.json()["generation"] == live_generation(index) >= max(generations)
