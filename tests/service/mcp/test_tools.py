"""The tools on an index of this process, and on that of a service: the same hits and messages."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from PIL import Image
from pydantic import ValidationError

from aladin_network.errors import OverloadedError
from aladin_service.client.clients import AsyncAladinClient
from aladin_service.client.connection import RetryPolicy
from aladin_service.http.agents import client_of
from aladin_service.http.server import open_alone
from aladin_service.mcp.arguments import SearchArguments, ShowArguments
from aladin_service.mcp.tools import THUMBNAIL_PX, make_server
from aladin_service.settings import settings_with
from aladin_service.work.worker import WorkerPlan
from tests.service.engine_world import EngineWorld

pytestmark = pytest.mark.anyio

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]
Opened = Callable[[], AbstractAsyncContextManager["Agent"]]


class Agent:
    def __init__(self, client: AsyncAladinClient) -> None:
        self.client = client
        self.server = make_server(client)

    async def call(self, name: str, **given: Any) -> Any:
        return await self.server.call_tool(name, given)

    async def data(self, name: str, **given: Any) -> dict[str, Any]:
        """Return the structured result of a tool, which is also that in words."""
        result = await self.call(name, **given)
        assert json.loads(result.content[0].text) == result.structured_content
        return result.structured_content


@asynccontextmanager
async def served(index: Path) -> AsyncGenerator[Agent]:
    app = open_alone(WorkerPlan(index=index, settings=settings_with(1)))
    async with app.router.lifespan_context(app):
        yield Agent(client_of(app))


@asynccontextmanager
async def remote(url: str) -> AsyncGenerator[Agent]:
    async with AsyncAladinClient(url) as client:
        yield Agent(client)


@pytest.fixture
def opened(url: str) -> Opened:
    return lambda: remote(url)


def pictures(result: Any) -> list[Image.Image]:
    blocks = [block for block in result.content if block.type == "image"]
    assert {block.mime_type for block in blocks} <= {"image/jpeg"}
    return [Image.open(io.BytesIO(base64.b64decode(block.data))) for block in blocks]


def assert_same(found: dict[str, Any], answered: dict[str, Any]) -> None:
    assert [hit["id"] for hit in found["hits"]] == [hit["id"] for hit in answered["hits"]]
    assert found["hits"]
    for hit, expected in zip(found["hits"], answered["hits"], strict=True):
        assert hit["score"] == pytest.approx(expected["score"], abs=1e-6)
        assert hit["rank"] == expected["rank"]
        assert hit.get("text") == expected["text"]
        assert hit.get("metadata", {}) == expected["metadata"]
        assert "stages" not in hit


BOX = [0.0, 0.25, 0.5, 1.0]
PAGE = {"k": 3, "offset": 1, "filter": {"number": {"lte": 4}}, "sort": "-number"}


@pytest.mark.parametrize(
    ("given", "body"),
    [
        ({"query": "a red dog"}, {"text": "a red dog"}),
        ({"id": "plain", **PAGE}, {"id": "plain", **PAGE}),
        ({"id": "plain", "box": BOX}, {"id": "plain", "box": BOX}),
        (
            {"query": "a red dog", "and": ["a star"], "not": ["a car"], "like": ["plain"]},
            {
                "all": [{"text": "a red dog"}, {"text": "a star"}],
                "not": [{"text": "a car"}],
                "like": ["plain"],
            },
        ),
        ({"id": "plain", "and": ["a star"]}, {"all": [{"id": "plain"}, {"text": "a star"}]}),
    ],
)
@pytest.mark.parametrize(("place", "find"), [("served", "photos"), ("remote", "texts")])
async def test_hits_are_those_of_the_http_api_in_short(
    index_folder: Path, url: str, place: str, find: str, given: dict[str, Any], body: dict[str, Any]
) -> None:
    target = "images" if find == "photos" else "texts"
    answered = httpx.post(f"{url}/v1/search/{target}", json=body).json()
    async with served(index_folder) if place == "served" else remote(url) as agent:
        found = await agent.data("search", find=find, **given)
    assert found["found"] == find
    assert_same(found, answered)
    roles = [term["role"] for term in answered["terms"] or []]
    assert [term["role"] for term in found.get("terms", [])] == roles
    for hit, expected in zip(found["hits"], answered["hits"], strict=True):
        if expected["terms"]:
            scores = [term["score"] for term in expected["terms"]]
            assert hit["terms"] == pytest.approx(scores, abs=1e-6)
        if expected["found"]:
            assert hit["found"] == pytest.approx(expected["found"], abs=1e-4)


AS_TEXTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"filter": '{"number": {"lte": 4}}'}, {"filter": {"number": {"lte": 4}}}),
    ({"and": '["a star", "grass"]'}, {"and": ["a star", "grass"]}),
    ({"and": "a star"}, {"and": ["a star"]}),
    ({"not": "[a car"}, {"not": ["[a car"]}),
    ({"like": '["plain"]'}, {"like": ["plain"]}),
    ({"k": "3", "thumbnails": "true"}, {"k": 3, "thumbnails": True}),
    ({"query": "[1]"}, {"query": "[1]"}),
]


async def test_lists_and_objects_that_a_client_wrote_as_texts_are_taken(opened: Opened) -> None:
    async with opened() as agent:
        for written, meant in AS_TEXTS:
            found = await agent.data("search", **{"query": "a red dog"} | written)
            assert found == await agent.data("search", **{"query": "a red dog"} | meant)
            assert found["hits"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"and": [""] * 300_000}, "and.0: String should have at least 1 character"),
        ({"and": ["a"] * 300_000}, "List should have at most 8 items"),
        ({"not": ["a"] * 9}, "List should have at most 8 items"),
        ({"like": [1] * 300_000}, "Input should be a valid string"),
        ({"like": ["a"] * 65}, "List should have at most 64 items"),
        ({"filter": "year"}, "Input should be a valid dictionary"),
        ({"filter": ["year"]}, "Input should be a valid dictionary"),
        ({"and": {"text": "a star"}}, "Input should be a valid list"),
        ({"box": [0, 0, 1]}, "List should have at least 4 items"),
        ({"box": [0, 0, 1, 2]}, "less than or equal to 1"),
        ({"k": 51}, "k: Input should be less than or equal to 50"),
        *(({"k": k}, "k: ") for k in (0, 1_000_000, "many", None, [3])),
        ({"query": "x" * 5000}, "String should have at most 4096 characters"),
        ({"id": "plain"}, "expected exactly one of query, id, got query and id"),
        ({"query": ""}, "expected exactly one of query, id, got none"),
        ({"colour": "red"}, "colour: unknown field"),
        ({str(number): 0 for number in range(4000)}, "4000 fields are invalid"),
        ({"size_px": 100}, "Field required"),
        ({"size_px": 100, "id": ""}, "id: "),
        ({"size_px": 63, "id": "a"}, "size_px: "),
        ({"size_px": 100, "id": "x" * 5000}, "id: "),
    ],
)
def test_arguments_out_of_bounds_are_one_short_fault(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError) as caught:
        (ShowArguments if "size_px" in given else SearchArguments).model_validate(
            {"query": "a"} | given
        )
    assert caught.value.error_count() == 1
    assert says in str(caught.value)
    assert len(str(caught.value)) < 400


async def test_words_negations_and_unknown_fields_of_a_search_are_named(opened: Opened) -> None:
    async with opened() as agent:
        (hit,) = (await agent.data("search", query="motorcycle", lexical=1, k=1))["hits"]
        split = await agent.data("search", query="a dog without a car")
        unknown = await agent.data("search", query="a", filter={"colour": "red"})
    assert hit["found_in"] == {"text": ["motorcycle"]}
    assert [term["role"] for term in split["suggestion"]] == ["all", "not"]
    assert unknown == {"found": "photos", "unknown_fields": ["colour"], "hits": []}


async def test_pages_follow_one_another_until_the_last(
    opened: Opened, image_ids: list[str]
) -> None:
    seen: list[str] = []
    offset: int | None = 0
    async with opened() as agent:
        while offset is not None:
            page = await agent.data("search", query="a star", k=4, offset=offset)
            seen += [hit["id"] for hit in page["hits"]]
            offset = page.get("next_offset")
    assert sorted(seen) == sorted(image_ids)


async def test_thumbnails_come_in_the_order_of_the_hits_where_there_is_a_photo(
    index_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(index_folder) as agent:
        assert pictures(await agent.call("search", query="a star")) == []
        result = await agent.call("search", query="a star", k=3, thumbnails=True)
        ids = [hit["id"] for hit in result.structured_content["hits"]]
        labels = [block.text for block in result.content[1:] if block.type == "text"]
        assert labels == [f"photo {photo_id!r}:" for photo_id in ids]
        assert len(pictures(result)) == 3
        assert all(max(picture.size) <= THUMBNAIL_PX for picture in pictures(result))

        whole = agent.client.photo

        async def photo(photo_id: str, size_px: int) -> Any:
            return await whole("nobody" if photo_id == "plain" else photo_id, size_px)

        monkeypatch.setattr(agent.client, "photo", photo)
        result = await agent.call("search", query="a star", thumbnails=True)
    assert len(result.structured_content["hits"]) == 6
    assert len(pictures(result)) == 5


async def test_a_photo_is_shown_with_its_item_and_where_the_words_of_a_text_are(
    opened: Opened, service: Service
) -> None:
    text = "a red dog runs"
    async with opened() as agent, service() as http:
        result = await agent.call("show", id="bike 2?", size_px=64)
        shown = result.structured_content
        assert shown.pop("uri")
        assert shown == {
            "id": "bike 2?",
            "text": "two men ride a motorcycle",
            "metadata": {"number": 1, "tags": ["odd"]},
        }
        (picture,) = pictures(result)
        assert max(picture.size) == 56  # the photo's own size, which is smaller

        params = {"id": "dogs/red#1", "text": text}
        expected = (await http.get("/v1/explain", params=params)).json()
        result = await agent.call("show", id="dogs/red#1", query=text, size_px=400)
        words = result.structured_content["words"]
        assert [word["word"] for word in words] == text.split()
        for word, mapped in zip(words, expected["words"], strict=True):
            assert word["score"] == pytest.approx(mapped["score"], abs=1e-6)
            box = expected["regions"][mapped["region"]]["box"]
            assert word["box"] == pytest.approx(box, abs=1e-4)
        (picture,) = pictures(result)
        assert 300 < max(picture.size) <= 400


async def test_an_index_is_described_with_fields_that_can_be_filtered(
    opened: Opened, world: EngineWorld
) -> None:
    async with opened() as agent:
        info = await agent.data("describe")
        counts = info["photos"]["count"], info["texts"]["count"], info["probabilities"]
        assert counts == (6, 12, False)
        fields = {field["name"]: field for field in info["photos"]["filter_fields"]}
        assert fields["tags"] == {"name": "tags", "kind": "text", "values": ["even", "odd"]}
        assert sorted(fields["number"]["values"]) == [0, 1, 2, 3, 4, 5]
        for name, field in fields.items():
            condition = {name: field["values"][0]}
            assert (await agent.data("search", query="a", filter=condition))["hits"]
    async with world.service() as http:  # a vector database does not tell its fields
        agent = Agent(AsyncAladinClient("http://localhost", transport=http._transport))
        info = await agent.data("describe")
        assert info["photos"] == {"count": 6, "filter_fields": [], "further_fields": []}
        found = await agent.data("search", query="a dog", filter={"number": 1})
        assert [hit["id"] for hit in found["hits"]] == ["bike 2?"]


async def test_probabilities_are_named_and_shown(calibrated_index: Path) -> None:
    async with served(calibrated_index) as agent:
        assert (await agent.data("describe"))["probabilities"] is True
        found = await agent.data("search", query="a red dog runs")
        assert all(0 <= hit["probability"] <= 1 for hit in found["hits"])
        assert found["no_match"] is False
        most = max(hit["probability"] for hit in found["hits"])
        fewer = await agent.data("search", query="a red dog runs", min_probability=most)
        assert 0 < len(fewer["hits"]) < len(found["hits"])


# Arguments of the tool, and the same request over HTTP.
REFUSED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"query": "x" * 2001}, {"text": "x" * 2001}),
    ({"query": "x", "filter": {"y": {"about": 1}}}, {"text": "x", "filter": {"y": {"about": 1}}}),
    ({"query": "x", "sort": "-"}, {"text": "x", "sort": "-"}),
    ({"query": "x", "min_probability": 0.5}, {"text": "x", "min_probability": 0.5}),
    ({"id": "nobody"}, {"id": "nobody"}),
    ({"query": "x", "not": ["y"] * 8}, {"all": [{"text": "x"}], "not": [{"text": "y"}] * 8}),
    (
        {"query": "x", "not": ["y"], "lexical": 0.5},
        {"all": [{"text": "x"}], "not": [{"text": "y"}], "lexical": 0.5},
    ),
]


async def test_errors_have_the_messages_of_the_http_api(opened: Opened, service: Service) -> None:
    async with opened() as agent, service() as http:
        for given, body in REFUSED:
            refused = await http.post("/v1/search/images", json=body)
            assert refused.status_code in (404, 422)
            with pytest.raises(ToolError) as raised:
                await agent.call("search", **given)
            message = refused.json()["error"]["message"]
            assert str(raised.value) == f"Error executing tool search: {message}"
        for given in ({"id": "nobody"}, {"id": "nobody", "query": "a dog"}):
            with pytest.raises(ToolError, match="no item 'nobody'"):
                await agent.call("show", **given)


async def test_an_unexpected_error_stays_inside(
    index_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = open_alone(WorkerPlan(index=index_folder, settings=settings_with(1)))
    async with app.router.lifespan_context(app):
        agent = Agent(client_of(app))

        async def fail(job: object) -> None:
            del job
            raise error

        monkeypatch.setattr(app.state.service.workers, "call", fail)
        error: Exception = RuntimeError("/secret/path")
        with pytest.raises(UnexpectedToolError) as raised:
            await agent.call("show", id="plain")
        assert "secret" not in str(raised.value)
        error = OverloadedError(2.0)
        with pytest.raises(ToolError, match="try again in 2 s"):
            await agent.call("show", id="plain")


async def test_a_service_that_is_away_is_named() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("too slow", request=request)

    url, once = "http://127.0.0.1:9", RetryPolicy(attempts=1)
    client = AsyncAladinClient(url, retries=once, transport=httpx.MockTransport(refuse))
    with pytest.raises(ToolError, match=r"http://127\.0\.0\.1:9"):
        await Agent(client).call("search", query="a dog")


async def test_long_texts_and_metadata_are_shortened_and_named(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened() as agent:
        whole = agent.client.search

        async def search(asked: Any) -> Any:
            answer = await whole(asked)
            hit = answer.hits[0]
            object.__setattr__(hit, "text", "é" * 3000)
            object.__setattr__(hit, "metadata", {"note": "z" * 2000, "number": 1})
            return answer

        monkeypatch.setattr(agent.client, "search", search)
        (hit,) = (await agent.data("search", query="a star", k=1))["hits"]
    assert hit["text"] == "é" * 999 + "…"
    assert (hit["metadata"], hit["omitted_metadata"]) == ({"number": 1}, ["note"])
