"""Adding and deleting items over HTTP, beside what other processes do to the index."""

from __future__ import annotations

import asyncio
import base64
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from PIL import Image

from aladin_index.building.builder import build_index
from aladin_index.changes.writer import ChangesWriter
from aladin_index.format.layout import generation_folder, live_generation
from aladin_index.format.manifest import read_manifest
from aladin_index.generations.compact import compact_index
from aladin_index.generations.published import rollback_index
from aladin_service.http.routes import items as item_routes
from aladin_service.item_sources import image_items, text_items

pytestmark = pytest.mark.anyio

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]
Encoded = Callable[..., bytes]


@pytest.fixture
def index(index_folder: Path, tmp_path: Path) -> Path:
    """An index that a test may change."""
    return Path(shutil.copytree(index_folder, tmp_path / "index"))


@pytest.fixture
def photo(query_photo: Image.Image, encoded: Encoded) -> bytes:
    """A picture file that is not in the index."""
    return encoded(query_photo)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


async def ids(client: httpx.AsyncClient, target: str, **query: Any) -> list[str]:
    answer = await client.post(f"/v1/search/{target}", json={"k": 100, **query})
    assert answer.status_code == 200, answer.text
    return [hit["id"] for hit in answer.json()["hits"]]


async def test_a_photo_is_found_by_the_next_request_and_again_by_the_next_service(
    service: Service, index: Path, photo: bytes
) -> None:
    async with service(index) as client:
        before = await ids(client, "images", text="a dog")
        answer = await client.post(
            "/v1/items/images",
            json={
                "id": "new/photo",
                "image": b64(photo),
                "text": "a caption",
                "metadata": {"n": 7},
            },
        )
        assert answer.status_code == 201
        body = answer.json()
        assert set(body.pop("took_ms")) == {"decode", "encode", "write", "total"}
        assert body == {"added": ["new/photo"], "replaced": [], "kept": [], "generation": 1}
        assert set(await ids(client, "images", text="a dog")) == {*before, "new/photo"}
        # The very photo is its own best match, at cosine 1.
        found = await client.post("/v1/search/images", json={"image": b64(photo), "k": 1})
        assert found.json()["hits"][0]["id"] == "new/photo"
        assert found.json()["hits"][0]["score"] == pytest.approx(1, abs=1e-5)
        assert await ids(client, "images", text="a", filter={"n": {"gte": 7}}) == ["new/photo"]
        item = await client.get("/v1/items/images/new/photo")
        assert item.json() == {
            "id": "new/photo",
            "uri": "new/photo",
            "text": "a caption",
            "metadata": {"n": 7},
        }
        # As a query it is what is stored of it, and not among its own hits.
        alike = await ids(client, "images", id="new/photo")
        assert alike == [
            hit for hit in await ids(client, "images", image=b64(photo)) if hit != "new/photo"
        ]
        info = (await client.get("/v1/index")).json()
        assert (info["images"]["count"], info["texts"]["count"]) == (7, 12)
    moved = index.rename(index.with_name("moved"))
    async with service(moved) as client:
        assert set(await ids(client, "images", text="a dog")) == {*before, "new/photo"}
        kept = await client.get("/v1/images/new/photo")
        assert (kept.content, kept.headers["content-type"]) == (photo, "image/png")


async def test_an_upload_as_a_form(service: Service, index: Path, photo: bytes) -> None:
    async with service(index) as client:
        answer = await client.post(
            "/v1/items/images",
            files={"image": ("a.png", photo)},
            data={"id": "form", "uri": "album/a.png", "metadata": '{"year": 2020}'},
        )
        assert answer.status_code == 201, answer.text
        item = (await client.get("/v1/items/images/form")).json()
        assert (item["uri"], item["text"], item["metadata"]) == (
            "album/a.png",
            None,
            {"year": 2020},
        )
        text = await client.post(
            "/v1/items/texts", data={"id": "t", "text": "a red dog"}, files={"x": b""}
        )
        assert text.status_code == 422


async def test_texts_are_added_in_one_step(service: Service, index: Path) -> None:
    async with service(index) as client:
        new = [{"id": f"t{n}", "text": f"a red dog {'runs ' * n}"} for n in range(3)]
        answer = await client.post("/v1/items/texts", json={"items": new})
        assert answer.json()["added"] == ["t0", "t1", "t2"]
        hits = (await client.post("/v1/search/texts", json={"text": "a red dog", "k": 1})).json()
        assert hits["hits"][0]["id"] == "t0"
        assert hits["hits"][0]["score"] == pytest.approx(1, abs=1e-5)
        # One that cannot be used keeps all others out.
        worse = [{"id": "t3", "text": "a dog"}, {"id": "t4", "text": " "}]
        refused = await client.post("/v1/items/texts", json={"items": worse})
        assert refused.status_code == 422
        assert "'t4'" in refused.json()["error"]["message"]
        assert (await client.get("/v1/items/texts/t3")).status_code == 404


async def test_duplicates_are_refused_replaced_or_skipped(service: Service, index: Path) -> None:
    async with service(index) as client:
        new = [{"id": "fresh", "text": "a blue star"}, {"id": "plain#0", "text": "green grass"}]
        before = (await client.get("/v1/items/texts/plain%230")).json()
        refused = await client.post("/v1/items/texts", json={"items": new})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "duplicate_id")
        assert "'plain#0'" in refused.json()["error"]["message"]
        assert (await client.get("/v1/items/texts/fresh")).status_code == 404

        skipped = await client.post("/v1/items/texts?on_duplicate=skip", json={"items": new})
        assert (skipped.json()["added"], skipped.json()["kept"]) == (["fresh"], ["plain#0"])
        assert (await client.get("/v1/items/texts/plain%230")).json() == before

        replaced = await client.post("/v1/items/texts?on_duplicate=replace", json={"items": new})
        assert replaced.json()["replaced"] == ["fresh", "plain#0"]
        assert (await client.get("/v1/items/texts/plain%230")).json()["text"] == "green grass"
        found = await ids(client, "texts", text="green grass")
        assert found[0] == "plain#0"
        assert len(found) == len(set(found)) == 13


async def test_a_deleted_item_is_gone_and_may_come_again(
    service: Service, index: Path, photo: bytes
) -> None:
    async with service(index) as client:
        url = f"/v1/items/images/{quote('dogs/red#1', safe='')}"
        assert (await client.delete(url)).json() == {"deleted": "dogs/red#1", "generation": 1}
        assert "dogs/red#1" not in await ids(client, "images", text="a dog")
        assert len(await ids(client, "images", text="a dog", filter={"tags": "even"})) == 2
        for gone in (
            await client.delete(url),
            await client.get(url),
            await client.get(f"/v1/images/{quote('dogs/red#1', safe='')}"),
            await client.post("/v1/search/images", json={"id": "dogs/red#1"}),
        ):
            assert (gone.status_code, gone.json()["error"]["code"]) == (404, "unknown_id")
        again = {"id": "dogs/red#1", "image": b64(photo)}
        assert (await client.post("/v1/items/images", json=again)).status_code == 201
        assert (await client.get(url)).json()["text"] is None


BAD_BODIES: tuple[tuple[str, object, int, str, str], ...] = (
    (
        "images",
        {"id": "a", "text": "no photo"},
        422,
        "invalid_field",
        "an image item requires an image",
    ),
    ("images", {"id": "a", "image": "!"}, 422, "invalid_field", "not base64"),
    ("images", {"id": "a", "image": b64(b"no photo")}, 415, "not_an_image", "item 'a'"),
    ("images", {"image": b64(b"x")}, 422, "invalid_field", "id: Field required"),
    ("texts", {"id": "", "text": "a"}, 422, "invalid_field", "id: "),
    ("texts", {"id": 7, "text": "a"}, 422, "invalid_field", "id: "),
    ("texts", {"id": "a" * 1001, "text": "a"}, 422, "invalid_field", "id: "),
    ("texts", {"id": "a\nb", "text": "a"}, 422, "invalid_field", "control characters"),
    ("texts", {"id": ".", "text": "a"}, 422, "invalid_field", "that a URL can hold"),
    ("images", {"id": "\0", "image": b64(b"x")}, 422, "invalid_field", "control characters"),
    ("texts", {"id": "a"}, 422, "invalid_field", "a text item requires text"),
    (
        "texts",
        {"id": "a", "text": "a", "uri": "u"},
        422,
        "invalid_field",
        "a text item cannot have an image, regions or a uri",
    ),
    ("texts", {"id": "a", "text": "a", "colour": 1}, 422, "invalid_field", "unknown field"),
    ("texts", {"id": "a", "text": "x" * 2001}, 422, "text_too_long", "item 'a'"),
    ("texts", {"id": "a", "text": "a", "metadata": [1]}, 422, "invalid_field", "metadata"),
    ("texts", {"items": []}, 422, "invalid_field", "items"),
    ("texts", {"items": [{"id": "a", "text": "a"}] * 4}, 422, "invalid_field", "at most 3"),
    ("texts", {"items": [{"id": "a", "text": "a"}] * 2}, 409, "duplicate_id", "'a'"),
    ("texts", {"items": [{"id": "a"}], "id": "b"}, 422, "invalid_field", "id: unknown field"),
    ("texts", [{"id": "a", "text": "a"}], 422, "invalid_field", "object"),
    ("sounds", {"id": "a", "text": "a"}, 422, "invalid_field", "target"),
)


async def test_bad_bodies_change_nothing(
    service: Service, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(item_routes, "MAX_ITEMS", 3)
    async with service(index) as client:
        for target, body, status, code, says in BAD_BODIES:
            answer = await client.post(f"/v1/items/{target}", json=body)
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (status, code), (body, answer.text)
            assert says in error["message"], body
        info = (await client.get("/v1/index")).json()
    assert (info["images"]["count"], info["texts"]["count"]) == (6, 12)


async def test_a_text_of_too_many_tokens_is_cut_and_its_metadata_say_so(
    service: Service, index: Path
) -> None:
    async with service(index) as client:
        added = await client.post("/v1/items/texts", json={"id": "a", "text": "dog " * 40})
        assert added.status_code == 201
        item = (await client.get("/v1/items/texts/a")).json()
    assert (item["text"], item["metadata"]) == ("dog " * 40, {"cut_to_tokens": 32})


async def test_what_json_cannot_say_is_refused(service: Service, index: Path) -> None:
    async with service(index) as client:
        for content in (
            b'{"id": "a", "text": "a", "metadata": {"n": NaN}}',
            b'{"id": "\\ud800", "text": "a"}',
            b'{"id": "a", "text": "a"',
            b"",
        ):
            answer = await client.post(
                "/v1/items/texts", content=content, headers={"content-type": "application/json"}
            )
            assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_field")
        plain = await client.post("/v1/items/texts", content=b"id=a")
        assert plain.status_code == 415
        wrong = await client.post(
            "/v1/items/texts?on_duplicate=both", json={"id": "a", "text": "a"}
        )
        assert wrong.status_code == 422


async def test_a_read_only_service_refuses_before_it_reads(service: Service, index: Path) -> None:
    async with service(index, read_only=True) as client:
        for answer in (
            await client.post("/v1/items/texts", json={"id": "a", "text": "a"}),
            await client.post("/v1/items/texts", content=b"nonsense"),
            await client.delete("/v1/items/images/plain"),
        ):
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "read_only")
        assert (await client.get("/v1/items/images/plain")).status_code == 200


async def test_what_others_do_to_the_folder_is_seen_by_the_next_request(
    service: Service, index: Path, data_file: Path, tiny_checkpoint: Path
) -> None:
    def first_hit(answer: httpx.Response) -> tuple[int, int]:
        return answer.json()["generation"], len(answer.json()["hits"])

    model_id = read_manifest(generation_folder(index, 1)).model.id
    query = {"text": "a dog", "k": 100}
    async with service(index) as client:

        async def state() -> tuple[int, int]:
            return first_hit(await client.post("/v1/search/images", json=query))

        assert await state() == (1, 6)
        other = ChangesWriter(index, model_id)
        other.delete("images", ["plain"])
        assert await state() == (1, 5)
        compact_index(index)
        assert await state() == (2, 5)
        answer = await client.delete(f"/v1/items/images/{quote('bike 2?', safe='')}")
        assert answer.json()["generation"] == 2
        assert await state() == (2, 4)
        rollback_index(index)
        assert await state() == (1, 5)
        build_index(
            tiny_checkpoint, index, image_items(data_file, None), text_items(data_file, None)
        )
        assert (await state())[1] == 6
        assert (await client.get("/readyz")).json()["generation"] == 3
        other.close()


async def test_no_request_fails_while_generations_are_swapped(
    service: Service, index: Path
) -> None:
    """Two clients search and one adds and deletes while the index is compacted again and again."""
    done = asyncio.Event()
    statuses: list[int] = []
    generations: set[int] = set()

    async def search(client: httpx.AsyncClient) -> None:
        while not done.is_set():
            answer = await client.post("/v1/search/images", json={"text": "a dog", "k": 3})
            statuses.append(answer.status_code)
            generations.add(answer.json()["generation"])

    async def change(client: httpx.AsyncClient) -> None:
        number = 0
        while not done.is_set():
            body = {"id": f"n{number}", "text": "a dog"}
            answers = [await client.post("/v1/items/texts", json=body)]
            answers.append(await client.get(f"/v1/items/texts/n{number}"))
            if number % 2:
                answers.append(await client.delete(f"/v1/items/texts/n{number}"))
            statuses.extend(answer.status_code for answer in answers)
            number += 1

    # While a generation is opened queries wait: none may be refused for what others wait.
    async with service(index, max_wait_ms=60_000) as client:
        working = [asyncio.create_task(work(client)) for work in (search, search, change)]
        try:
            async with asyncio.timeout(60):
                while len(generations) < 4:  # a compaction without a change makes none
                    await asyncio.to_thread(compact_index, index, keep=0)
                    await asyncio.sleep(0.01)
        finally:
            done.set()
            await asyncio.gather(*working)
        last = await client.get("/readyz")
    assert set(statuses) == {200, 201}
    assert last.json()["generation"] == live_generation(index) >= max(generations)


async def test_a_damaged_generation_does_not_take_the_place_of_a_sound_one(
    service: Service, index: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with service(index) as client:
        assert (await client.get("/readyz")).json()["generation"] == 1
        shutil.copytree(generation_folder(index, 1), generation_folder(index, 2))
        (index / "CURRENT").write_text("000002\n")  # its manifest says 1
        for _ in range(3):
            answer = await client.post("/v1/search/images", json={"text": "a dog"})
            assert (answer.status_code, answer.json()["generation"]) == (200, 1)
    assert sum("cannot open the index" in record.message for record in caplog.records) == 1
