"""Lists of items and fields over HTTP."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx
import pytest

from tests.service.engine_world import EngineWorld

pytestmark = pytest.mark.anyio

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


async def test_pages_lead_through_all_items(service: Service, image_ids: list[str]) -> None:
    async with service() as client:
        whole = (await client.get("/v1/items/images")).json()
        assert [item["id"] for item in whole["items"]] == image_ids[::-1]
        assert (whole["total"], whole["next"], whole["generation"]) == (6, None, 1)
        assert whole["items"][0] == {
            "id": "../street",
            "uri": "photo-5.png",
            "text": "a man stands in the street",
            "metadata": {"number": 5, "tags": ["odd"]},
            "size_px": [88, 40],
        }
        ids: list[str] = []
        after = None
        while after is not None or not ids:
            asked = {"sort": "number", "order": "asc", "limit": 4}
            answer = await client.get(
                "/v1/items/images", params=asked if after is None else {**asked, "after": after}
            )
            ids += [item["id"] for item in answer.json()["items"]]
            after = answer.json()["next"]
        assert ids == image_ids


async def test_a_filter_and_the_number_of_items_that_pass_it(
    service: Service, image_ids: list[str]
) -> None:
    async with service() as client:
        asked = {"filter": json.dumps({"tags": "odd"}), "limit": 2}
        page = (await client.get("/v1/items/images", params=asked)).json()
        texts = (await client.get("/v1/items/texts", params={"limit": 1})).json()
    assert [item["id"] for item in page["items"]] == [image_ids[5], image_ids[3]]
    assert (page["total"], page["next"]) == (3, image_ids[3])
    assert texts["items"][0]["size_px"] is None
    assert texts["total"] == 12


@pytest.mark.parametrize(
    ("asked", "status", "says"),
    [
        ({"limit": 0}, 422, "limit"),
        ({"limit": 201}, 422, "limit"),
        ({"order": "up"}, 422, "order"),
        ({"filter": "{"}, 422, "filter: not JSON"),
        ({"filter": "[" * 4000}, 422, "filter: not JSON"),
        ({"filter": "[1]"}, 422, "filter: expected a JSON object"),
        ({"filter": '{"a": {"near": 1}}'}, 422, "near"),
        ({"after": "nobody"}, 404, "nobody"),
    ],
)
async def test_what_cannot_be_listed(
    service: Service, asked: dict[str, str | int], status: int, says: str
) -> None:
    async with service() as client:
        answer = await client.get("/v1/items/images", params=asked)
    assert answer.status_code == status
    assert says in answer.json()["error"]["message"]


async def test_fields_and_their_values(
    service: Service, index_folder: Path, tmp_path: Path
) -> None:
    index = Path(shutil.copytree(index_folder, tmp_path / "index"))
    async with service(index=index) as client:
        fields = (await client.get("/v1/index/fields")).json()
        assert fields["images"] == [
            {
                "name": "number",
                "kind": "number",
                "least": 0,
                "greatest": 5,
                "values": [{"value": number, "count": 1} for number in range(6)],
            },
            {
                "name": "tags",
                "kind": "text",
                "least": "even",
                "greatest": "odd",
                "values": [{"value": "even", "count": 3}, {"value": "odd", "count": 3}],
            },
        ]
        (await client.delete("/v1/items/images/plain")).raise_for_status()
        fields = (await client.get("/v1/index/fields")).json()
        listed = (await client.get("/v1/items/images")).json()
    assert [each["count"] for each in fields["images"][1]["values"]] == [3, 2]
    assert [item["id"] for item in listed["items"]].count("plain") == 0
    assert listed["total"] == 5


async def test_an_engine_lists_nothing_and_says_so(world: EngineWorld) -> None:
    async with world.service() as client:
        for path in ("/v1/items/images", "/v1/index/fields"):
            answer = await client.get(path)
            assert answer.status_code == 422
            assert answer.json()["error"]["code"] == "not_listable"
            assert "vector database" in answer.json()["error"]["message"]
