"""The tools on an index of this process, and on that of a service: the same hits and messages."""

from __future__ import annotations

import io
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image
from pydantic import ValidationError

from aladin_network.errors import OverloadedError
from aladin_service.client_errors import (
    RefusedInputError,
    ServiceError,
    ServiceUnreachableError,
    TooBusyError,
)
from aladin_service.failures import describe_invalid
from aladin_service.http.agents import ServedIndex
from aladin_service.http.server import open_alone
from aladin_service.mcp.access import IndexAccess, RemoteIndex
from aladin_service.mcp.arguments import THUMBNAIL_PX
from aladin_service.mcp.tools import BY_NAME, TOOLS, ToolAnswer
from aladin_service.search.answers import LiveIndexInfo
from tests.service.engine_world import EngineWorld

pytestmark = pytest.mark.anyio

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]
# A filter with an operator that does not exist.
ODD = {"year": {"about": 1}}

Opened = Callable[[], AbstractAsyncContextManager[IndexAccess]]


@asynccontextmanager
async def served(index: Path) -> AsyncGenerator[ServedIndex]:
    """Access to an index of this process."""
    state = open_alone(index)
    await state.workers.start()
    try:
        yield ServedIndex(state)
    finally:
        await state.workers.stop()


@asynccontextmanager
async def remote(url: str) -> AsyncGenerator[RemoteIndex]:
    """Access to the index of a service."""
    access = RemoteIndex(url)
    try:
        yield access
    finally:
        await access.close()


@pytest.fixture(params=["served", "remote"])
def opened(request: pytest.FixtureRequest, index_folder: Path) -> Opened:
    """Opens the index of `index_folder` in this process, or at a service."""
    if request.param == "served":
        return lambda: served(index_folder)
    url: str = request.getfixturevalue("url")
    return lambda: remote(url)


async def call(access: IndexAccess, name: str, **given: Any) -> ToolAnswer:
    """Call a tool with arguments as they come from a model."""
    tool = BY_NAME[name]
    answer = await tool.run(access, tool.arguments.model_validate(given))
    assert isinstance(answer.result, tool.result)
    return answer


async def data(access: IndexAccess, name: str, **given: Any) -> dict[str, Any]:
    """Call a tool, and return its structured result."""
    return (await call(access, name, **given)).result.model_dump(mode="json")


def assert_same(found: dict[str, Any], answered: dict[str, Any]) -> None:
    """Compare a tool's hits with those of an HTTP answer."""
    assert [hit["id"] for hit in found["hits"]] == [hit["id"] for hit in answered["hits"]]
    assert found["hits"]
    for hit, expected in zip(found["hits"], answered["hits"], strict=True):
        assert hit["score"] == pytest.approx(expected["score"], abs=1e-6)
        for name in ("rank", "text", "metadata"):
            assert hit[name] == expected[name]


async def test_hits_and_scores_are_those_of_the_http_api(opened: Opened, service: Service) -> None:
    page = {"k": 3, "offset": 1, "filter": {"number": {"lte": 4}}, "sort": "-number"}
    async with opened() as access, service() as http:
        for tool, route, given, body in (
            ("search_photos", "images", {"query": "a red dog"}, {"text": "a red dog"}),
            ("search_texts", "texts", {"query": "a red dog"}, {"text": "a red dog"}),
            ("similar", "images", {"id": "plain"}, {"id": "plain"}),
            ("similar", "texts", {"id": "plain", "find": "texts"}, {"id": "plain"}),
        ):
            answered = await http.post(f"/v1/search/{route}", json=body | page)
            assert answered.status_code == 200
            found = await data(access, tool, **given, **page)
            assert_same(found, answered.json())
            assert found["found"] == ("photos" if route == "images" else "texts")
            plain = (await http.post(f"/v1/search/{route}", json=body)).json()
            assert_same(await data(access, tool, **given), plain)


AS_TEXTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"filter": '{"number": {"lte": 4}}'}, {"filter": {"number": {"lte": 4}}}),
    ({"and": '["a star", "grass"]'}, {"and": ["a star", "grass"]}),
    ({"and": "a star"}, {"and": ["a star"]}),
    ({"not": "a car"}, {"not": ["a car"]}),
    ({"not": "[a car"}, {"not": ["[a car"]}),
    ({"like": '["plain"]'}, {"like": ["plain"]}),
    ({"like": "dogs/red#1"}, {"like": ["dogs/red#1"]}),
    ({"k": "3", "include_thumbnails": "true"}, {"k": 3, "include_thumbnails": True}),
]


@pytest.mark.parametrize(("written", "meant"), AS_TEXTS)
async def test_lists_and_objects_that_a_client_wrote_as_texts_are_taken(
    index_folder: Path, written: dict[str, Any], meant: dict[str, Any]
) -> None:
    query = {"query": "a red dog"}
    async with served(index_folder) as access:
        found = await data(access, "search_photos", **query, **written)
        assert found == await data(access, "search_photos", **query, **meant)
        assert found["hits"]
    if "k" not in meant:
        similar = BY_NAME["similar"].arguments
        given = similar.model_validate({"id": "plain", "box": "[0, 0, 0.5, 1]"} | written)
        assert given == similar.model_validate({"id": "plain", "box": [0, 0, 0.5, 1]} | meant)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"and": [""] * 300_000}, "and.0: String should have at least 1 character"),
        ({"and": ["a"] * 300_000}, "List should have at most 8 items"),
        ({"and": [""]}, "String should have at least 1 character"),
        ({"not": ["a"] * 9}, "List should have at most 8 items"),
        ({"like": [1] * 300_000}, "Input should be a valid string"),
        ({"like": ["a"] * 65}, "List should have at most 64 items"),
        ({"filter": "year"}, "Input should be a valid dictionary"),
        ({"filter": '["year"]'}, "Input should be a valid dictionary"),
        ({"and": '{"text": "a star"}'}, "Input should be a valid list"),
    ],
)
def test_arguments_out_of_bounds_are_one_fault(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError) as caught:
        BY_NAME["search_photos"].arguments.model_validate({"query": "a"} | given)
    assert caught.value.error_count() == 1
    assert says in describe_invalid(caught.value)


async def test_parts_of_a_query_are_those_of_the_http_api(
    opened: Opened, service: Service, image_ids: list[str]
) -> None:
    liked = [image_ids[0], image_ids[3]]
    given = {"and": ["a star"], "not": ["a car"], "like": liked}
    body = {
        "not": [{"text": "a car"}],
        "like": liked,
    }
    async with opened() as access, service() as http:
        for tool, first, given_first in (
            ("search_photos", {"text": "a red dog"}, {"query": "a red dog"}),
            ("search_texts", {"text": "a red dog"}, {"query": "a red dog"}),
            ("similar", {"id": "plain"}, {"id": "plain"}),
        ):
            route = "texts" if tool == "search_texts" else "images"
            asked = body | {"all": [first, {"text": "a star"}]}
            answered = (await http.post(f"/v1/search/{route}", json=asked)).json()
            found = await data(access, tool, **given_first, **given)
            assert_same(found, answered)
            roles = [part["role"] for part in found["parts"]]
            assert roles == ["all", "all", "not", "like", "like"]
            for hit, expected in zip(found["hits"], answered["hits"], strict=True):
                scores = [part["score"] for part in expected["parts"]]
                assert hit["parts"] == pytest.approx(scores, abs=1e-6)
                assert sum(scores) == pytest.approx(hit["score"], abs=1e-4)


async def test_a_part_of_a_photo_is_found_where_it_is(opened: Opened, service: Service) -> None:
    box = [0.0, 0.25, 0.5, 1.0]
    async with opened() as access, service() as http:
        body = {"id": "plain", "box": box}
        answered = (await http.post("/v1/search/images", json=body)).json()
        found = await data(access, "similar", **body)
        assert_same(found, answered)
        several = await data(access, "similar", **body, **{"and": ["a dog"]})
    for hit, expected in zip(found["hits"], answered["hits"], strict=True):
        assert hit["found"] == pytest.approx(expected["found"], abs=1e-4)
    assert several["parts"][0]["box"] == box
    assert all(len(hit["found"]) == 4 for hit in several["hits"])


async def test_a_name_is_found_where_it_is_written(opened: Opened) -> None:
    async with opened() as access:
        found = await data(access, "search_photos", query="motorcycle", lexical=1, k=1)
    (hit,) = found["hits"]
    assert hit["found_in"] == {"text": ["motorcycle"]}


async def test_pages_follow_one_another_until_the_last(
    opened: Opened, image_ids: list[str]
) -> None:
    seen: list[str] = []
    offset: int | None = 0
    async with opened() as access:
        while offset is not None:
            page = await data(access, "search_photos", query="a star", k=4, offset=offset)
            seen += [hit["id"] for hit in page["hits"]]
            offset = page["next_offset"]
    assert sorted(seen) == sorted(image_ids)


async def test_thumbnails_come_in_the_order_of_the_hits_if_asked_for(opened: Opened) -> None:
    async with opened() as access:
        assert (await call(access, "search_photos", query="a star")).pictures == ()
        answer = await call(access, "search_photos", query="a star", k=3, include_thumbnails=True)
        ids = [hit["id"] for hit in answer.result.model_dump()["hits"]]
        assert [picture.label for picture in answer.pictures] == [f"photo {i!r}:" for i in ids]
        for picture in answer.pictures:
            with Image.open(io.BytesIO(picture.data)) as image:
                assert (image.format, picture.media_type) == ("JPEG", "image/jpeg")
                assert max(image.size) <= THUMBNAIL_PX


async def test_a_photo_comes_with_its_caption_and_metadata(opened: Opened) -> None:
    async with opened() as access:
        answer = await call(access, "get_photo", id="bike 2?", size_px=64)
        assert answer.result.model_dump(exclude={"uri"}) == {
            "id": "bike 2?",
            "caption": "two men ride a motorcycle",
            "metadata": {"number": 1, "tags": ["odd"]},
            "media_type": "image/jpeg",
        }
        (picture,) = answer.pictures
        with Image.open(io.BytesIO(picture.data)) as image:
            assert max(image.size) == 56  # the photo's own size, which is smaller


async def test_an_explanation_has_words_boxes_and_a_drawing(
    opened: Opened, service: Service
) -> None:
    text = "a red dog runs"
    async with opened() as access, service() as http:
        params = {"id": "dogs/red#1", "text": text}
        expected = (await http.get("/v1/explain", params=params)).json()
        answer = await call(access, "explain", photo_id="dogs/red#1", query=text)
        found = answer.result.model_dump()
        assert found["align"] == pytest.approx(expected["align"], abs=1e-6)
        assert found["match"] == pytest.approx(expected["match"], abs=1e-6)
        assert [word["word"] for word in found["words"]] == text.split()
        for word, mapped in zip(found["words"], expected["words"], strict=True):
            assert word["score"] == pytest.approx(mapped["score"], abs=1e-6)
            box = expected["regions"][mapped["region"]]["box"]
            assert word["box"] == pytest.approx(box, abs=1e-4)
        (picture,) = answer.pictures
        with Image.open(io.BytesIO(picture.data)) as image:
            assert (image.format, picture.media_type) == ("JPEG", "image/jpeg")
            assert min(image.size) > 300
        bare = await call(access, "explain", photo_id="dogs/red#1", query=text, include_image=False)
        assert (bare.result, bare.pictures) == (answer.result, ())


async def test_a_stored_text_can_be_explained(opened: Opened) -> None:
    async with opened() as access:
        texts = await data(access, "similar", id="plain", find="texts", k=1)
        (text,) = texts["hits"]
        found = await data(access, "explain", photo_id="plain", text_id=text["id"])
        assert found["text"] == text["text"]


async def test_the_index_is_described_with_filters_that_work(opened: Opened) -> None:
    async with opened() as access:
        info = await data(access, "index_info")
        assert info["photos"]["count"] == 6
        assert info["texts"]["count"] == 12
        assert info["evidence"]
        assert not info["probabilities"]["available"]
        assert len(info["photos"]["newest"]) == 5
        assert {"id": "../street", "text": "a man stands in the street"} in info["photos"]["newest"]
        fields = {field["name"]: field for field in info["photos"]["filter_fields"]}
        assert fields["number"]["example"] == {"number": {"gte": 0}}
        assert fields["tags"]["values"] == ["even", "odd"]
        for field in fields.values():
            found = await data(access, "search_photos", query="a", filter=field["example"])
            assert found["hits"]


async def test_an_index_in_a_vector_database_is_described_without_lists(
    world: EngineWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.service() as http:
        access = RemoteIndex("http://localhost", transport=http._transport)
        info = await data(access, "index_info")
        assert info["photos"] == {
            "count": 6,
            "newest": [],
            "filter_fields": [],
            "further_fields": [],
        }
        found = await data(access, "search_photos", query="a dog", filter={"number": 1})
        assert [hit["id"] for hit in found["hits"]] == ["bike 2?"]

        async def fail() -> None:
            raise RefusedInputError(422, "invalid_field", "no", None)

        monkeypatch.setattr(access, "fields", fail)
        with pytest.raises(RefusedInputError, match="no"):
            await data(access, "index_info")


async def test_probabilities_are_described_and_shown(
    calibrated_index: Path, index_folder: Path
) -> None:
    async with served(calibrated_index) as access:
        described = (await data(access, "index_info"))["probabilities"]
        assert described["available"]
        assert "40 photos" in described["meaning"]
        found = await data(access, "search_photos", query="a red dog runs")
        assert all(0 <= hit["probability"] <= 1 for hit in found["hits"])
        assert found["no_match"] is False
        most = max(hit["probability"] for hit in found["hits"])
        fewer = await data(access, "search_photos", query="a red dog runs", min_probability=most)
        assert 0 < len(fewer["hits"]) < len(found["hits"])
    async with served(index_folder) as access:
        with pytest.raises(ServiceError, match="not calibrated"):
            await call(access, "search_photos", query="a dog", min_probability=0.5)


async def test_errors_have_the_messages_of_the_http_api(opened: Opened, service: Service) -> None:
    cases: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("search_photos", {"query": "x" * 2001}, {"text": "x" * 2001}),
        ("search_photos", {"query": "x", "filter": ODD}, {"text": "x", "filter": ODD}),
        ("search_photos", {"query": "x", "sort": "-"}, {"text": "x", "sort": "-"}),
        ("similar", {"id": "nobody"}, {"id": "nobody"}),
        (
            "search_photos",
            {"query": "x", "like": ["plain", "nobody"]},
            {"all": [{"text": "x"}], "like": ["plain", "nobody"]},
        ),
        (
            "search_photos",
            {"query": "x", "not": ["y"] * 8},
            {"all": [{"text": "x"}], "not": [{"text": "y"}] * 8},
        ),
        ("search_photos", {"query": "x", "like": ["nobody"]}, {"like": ["nobody"]}),
        (
            "search_photos",
            {"query": "x", "not": ["y"], "lexical": 0.5},
            {"all": [{"text": "x"}], "not": [{"text": "y"}], "lexical": 0.5},
        ),
    ]
    async with opened() as access, service() as http:
        for tool, given, body in cases:
            refused = await http.post("/v1/search/images", json=body)
            error = refused.json()["error"]
            with pytest.raises(ServiceError) as raised:
                await call(access, tool, **given)
            assert (raised.value.status, raised.value.code) == (refused.status_code, error["code"])
            assert raised.value.message == error["message"]


async def test_an_unknown_id_is_named(opened: Opened) -> None:
    async with opened() as access:
        for tool, given in (
            ("get_photo", {"id": "nobody"}),
            ("explain", {"photo_id": "nobody", "query": "a dog"}),
            ("explain", {"photo_id": "plain", "text_id": "nobody"}),
        ):
            with pytest.raises(ServiceError, match="no item 'nobody'") as raised:
                await call(access, tool, **given)
            assert (raised.value.status, raised.value.code) == (404, "unknown_id")


async def test_what_fails_inside_is_not_told(index_folder: Path) -> None:
    state = open_alone(index_folder)

    async def fail(job: object) -> None:
        del job
        raise error

    state.workers.call = fail  # type: ignore[method-assign]
    error: Exception = RuntimeError("/secret/path")
    with pytest.raises(ServiceError, match="internal error") as raised:
        await call(ServedIndex(state), "index_info")
    assert raised.value.status == 500
    error = OverloadedError(2.0)
    with pytest.raises(TooBusyError, match="try again in 2 s"):
        await call(ServedIndex(state), "get_photo", id="plain")
    await state.workers.start()
    await state.workers.stop()


async def test_a_service_that_is_away_is_named() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("too slow", request=request)

    access = RemoteIndex("http://127.0.0.1:9", transport=httpx.MockTransport(refuse))
    with pytest.raises(ServiceUnreachableError, match=r"http://127\.0\.0\.1:9"):
        await call(access, "search_photos", query="a dog")
    await access.close()


async def test_thumbnails_of_photos_without_a_file_are_noted(index_folder: Path) -> None:
    async with served(index_folder) as access:
        whole = access.photo

        async def photo(photo_id: str, size_px: int) -> Any:
            if photo_id == "plain":
                return await whole("nobody", size_px)
            return await whole(photo_id, size_px)

        access.photo = photo  # type: ignore[method-assign]
        answer = await call(access, "search_photos", query="a star", include_thumbnails=True)
    assert len(answer.pictures) == 5
    assert answer.result.model_dump()["notes"] == ["photos without a file: 'plain'"]


async def test_tools_are_offered_for_what_the_index_has(index_folder: Path) -> None:
    async with served(index_folder) as access:
        info = await access.index()

    def offered(info: LiveIndexInfo) -> set[str]:
        return {tool.name for tool in TOOLS if tool.is_offered(info)}

    assert offered(info) == set(BY_NAME)
    assert offered(info.model_copy(update={"texts": None})) == set(BY_NAME) - {"search_texts"}
    assert offered(info.model_copy(update={"images": None})) == {
        "index_info",
        "search_texts",
        "similar",
    }
    assert info.images is not None
    bare = info.images.model_copy(update={"token_count": 0})
    assert "explain" not in offered(info.model_copy(update={"images": bare}))
    assert "explain" not in offered(info.model_copy(update={"alignment_trained": False}))


def test_every_tool_says_enough_to_be_used() -> None:
    for tool in TOOLS:
        assert 100 < len(tool.description) < 800
        for name, field in tool.arguments.model_fields.items():
            assert field.description, (tool.name, name)
