"""What each route refuses: a status, a code, and a message that names the field."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from tests.service.http.conftest import JSON, Service, b64, told

pytestmark = pytest.mark.anyio

BOX = [0.25, 0.0, 0.8, 0.6]
NO_PHOTO = b64(b"no photo")
DOG = {"text": "a red dog"}

# Bodies of POST /v1/search/images that are answered 422 and `invalid_field`, with a part of the
# message. Which queries are none is tested at `SearchRequest`; here, that its faults are told.
SEARCHES: list[tuple[Any, str]] = [
    ({}, "exactly one of text, image, id, regions, or the terms of a query, got none"),
    ({"text": "a", "image": "AAAA"}, "got text and image"),
    ({"text": "\n\t "}, "empty"),
    ({"text": "\u200b"}, "no word"),
    ({"text": 7}, "text: Input should be a valid string"),
    ({"text": "a", "k": 10**9}, "k: Input should be less than or equal to 1000"),
    ({"text": "a", "k": "10"}, "k: Input should be a valid integer"),
    ({"text": "a", "k": None}, "k: Input should be a valid integer"),
    ({"text": "a", "offset": -1}, "offset: "),
    ({"text": "a", "candidates": 0}, "candidates: expected a whole number from 1 to 10,000"),
    ({"text": "a", "min_probability": 0.5}, "the index is not calibrated"),
    ({"text": "a", "rerank": "yes"}, "rerank: Input should be a valid boolean"),
    ({"text": "a", "filter": {"number": {"in": 3}}}, "filter field 'number': in takes a list"),
    ({"text": "a", "filter": {"or": [{"number": None}]}}, "'number': expected text"),
    (
        {"text": "a", "filter": {"and": [{"a": list(range(501))}, {"b": list(range(501))}]}},
        "field 'b'",
    ),
    ({"image": "not base64!"}, "image: not base64"),
    ({"image": "\u00c4AAA"}, "image: not base64"),
    ({"id": "i" * 4097}, "4096"),
    ({"box": BOX}, "got none"),
    ({"id": "plain", "box": BOX * 2}, "box"),
    ({"id": "plain", "box": [0, 0, 1.2, 1]}, "box"),
    ({"id": "plain", "box": ["0", "0", "1", "1"]}, "box"),
    ({"id": "plain#0", "box": BOX}, "box: expected a photo to take a part of, got 'plain#0'"),
    ({"id": "plain", "box": BOX, "min_probability": 0.5}, "min_probability"),
    ({"all": [{"id": "plain"}], "box": BOX}, "got box beside all, not or like"),
    ({"all": [DOG | {"box": BOX}]}, "expected a photo beside it"),
    ({"all": []}, "or the terms of a query, got none"),
    ({"all": [DOG | {"weight": 0}]}, "weight"),
    ({"all": [{}] * 100_000}, "all.0: expected exactly one of text, image, id"),
    ({"all": [DOG] * 9}, "all: List should have at most 8 items"),
    ({"all": [DOG], "lexical": 0.5}, "lexical: expected a query of one text"),
    ({"all": [DOG], "min_probability": 0.5}, "min_probability"),
    ({"like": ["x"] * 100_000}, "like: List should have at most 64 items"),
    ({"like": [1] * 64}, "like.0: Input should be a valid string"),
]

EXPLAIN, DRAW = "/v1/explain", "/v1/explain.png"
LONG_TEXT = "dog " * 600

# Of GET: path, parameters, status, code, a part of the message.
QUESTIONS: list[tuple[str, dict[str, Any], int, str, str]] = [
    ("/v1/items/images", {"limit": 201}, 422, "invalid_field", "limit"),
    ("/v1/items/images", {"order": "up"}, 422, "invalid_field", "order"),
    ("/v1/items/images", {"filter": "{"}, 422, "invalid_field", "filter: not JSON"),
    ("/v1/items/images", {"filter": "[" * 4000}, 422, "invalid_field", "filter: not JSON"),
    ("/v1/items/images", {"filter": "[1]"}, 422, "invalid_field", "filter: expected a JSON object"),
    ("/v1/items/images", {"filter": '{"a": {"near": 1}}'}, 422, "invalid_field", "near"),
    ("/v1/items/images", {"after": "nobody"}, 404, "unknown_id", "nobody"),
    ("/v1/items/images/nobody", {}, 404, "unknown_id", "nobody"),
    ("/v1/items/images/pl%0Aain", {}, 404, "unknown_id", ""),
    ("/v1/items/sounds/a", {}, 422, "invalid_field", "target"),
    ("/v1/images/nobody", {}, 404, "unknown_id", "nobody"),
    ("/v1/images/../../../../etc/passwd", {}, 404, "unknown_route", ""),
    ("/v1/images/..%2F..%2F..%2Fetc%2Fpasswd", {}, 404, "unknown_id", ""),
    ("/v1/images//etc/passwd", {}, 404, "unknown_id", ""),
    ("/v1/images/photo-0.png", {}, 404, "unknown_id", ""),
    ("/v1/images/plain%00.png", {}, 404, "unknown_id", ""),
    ("/v1/images/plain", {"size": 15}, 422, "invalid_field", "size"),
    ("/v1/images/plain", {"size": 2049}, 422, "invalid_field", "size"),
    (DRAW, {"text": "a", "id": "nobody"}, 404, "unknown_id", "nobody"),
    (DRAW, {"query_id": "nobody", "id": "plain"}, 404, "unknown_id", "nobody"),
    (DRAW, {"query_id": "plain", "id": "nobody"}, 404, "unknown_id", "nobody"),
    (DRAW, {"text": "a", "id": "plain#0"}, 422, "invalid_field", "expected one of the images"),
    (DRAW, {"query_id": "plain#0", "id": "plain#1"}, 422, "invalid_field", "one of the images"),
    (DRAW, {"id": "plain"}, 422, "invalid_field", "exactly one of text, query_id, got none"),
    (
        DRAW,
        {"text": "a", "query_id": "b", "id": "plain"},
        422,
        "invalid_field",
        "got text and query_id",
    ),
    (DRAW, {"text": "a"}, 422, "invalid_field", "id: Field required"),
    (DRAW, {"text": LONG_TEXT, "id": "plain"}, 422, "text_too_long", "2400 characters"),
    *(
        (path, {"id": "bike 2?", **asked}, 422, "invalid_field", words)
        for path in (EXPLAIN, DRAW)
        for asked, words in (
            ({"text": "a dog", "box": "0,0,1,1"}, "expected a photo beside it, by image or id"),
            ({"query_id": "plain", "box": "0,0,1"}, "expected x0, y0, x1, y1 in fractions"),
            ({"query_id": "plain", "box": "a,b,c,d"}, "expected x0,y0,x1,y1, got 'a"),
            ({"query_id": "plain", "box": ""}, "expected x0,y0,x1,y1, got ''"),
            ({"query_id": "plain", "box": "0,0,1,nan"}, "expected x0, y0, x1, y1 in fractions"),
            ({"query_id": "plain", "box": ["0,0,1,1"] * 2}, "box: given 2 times"),
            ({"query_id": "plain#0", "box": "0,0,1,1"}, "got a text"),
            ({"query_id": "plain"}, "a text and a photo, or a box"),
        )
    ),
    ("/v1/items/images", {"cursor": 1}, 422, "invalid_field", "cursor: unknown parameter; known"),
    ("/v1/index", {"n" * 5000: ""}, 422, "invalid_field", "n: unknown parameter; there are none"),
    ("/v1/items/images?limit=1&limit=2", {}, 422, "invalid_field", "limit: given 2 times"),
    *(
        (path, {}, 422, "invalid_field", "the address is not UTF-8")
        for path in ("/v1/images/%ff", "/v1/items/texts/a%c3", "/v1/items/texts?sort=%e9")
    ),
]

# Of POST /v1/items/TARGET: target, body, status, code, a part of the message.
ITEM = {"id": "a", "text": "a"}
ITEMS: list[tuple[str, object, int, str, str]] = [
    ("images", ITEM, 422, "invalid_field", "an image item requires an image"),
    ("images", {"id": "a", "image": "!"}, 422, "invalid_field", "not base64"),
    ("images", {"id": "a", "image": NO_PHOTO}, 415, "not_an_image", "item 'a'"),
    ("images", {"image": NO_PHOTO}, 422, "invalid_field", "id: Field required"),
    ("images", {"id": "\0", "image": NO_PHOTO}, 422, "invalid_field", "control characters"),
    ("texts", {"id": 7, "text": "a"}, 422, "invalid_field", "id: "),
    ("texts", {"id": "a" * 1001, "text": "a"}, 422, "invalid_field", "id: "),
    ("texts", {"id": "a\nb", "text": "a"}, 422, "invalid_field", "control characters"),
    ("texts", {"id": ".", "text": "a"}, 422, "invalid_field", "that a URL can hold"),
    ("texts", {"id": "a"}, 422, "invalid_field", "a text item requires text"),
    ("texts", ITEM | {"uri": "u"}, 422, "invalid_field", "cannot have an image, regions or a uri"),
    ("texts", ITEM | {"text": "x" * 2001}, 422, "text_too_long", "item 'a'"),
    ("texts", ITEM | {"metadata": [1]}, 422, "invalid_field", "metadata"),
    ("texts", ITEM | {"metadata": {"a": "x" * 65_536}}, 422, "invalid_field", "at most 65536"),
    (
        "texts",
        ITEM | {"metadata": {str(number): 0 for number in range(1001)}},
        422,
        "invalid_field",
        "expected at most 1000 fields, got 1001",
    ),
    (
        "texts",
        ITEM | {"metadata": {"a": json.loads("[" * 32 + "]" * 32)}},
        422,
        "invalid_field",
        "expected at most 32 levels",
    ),
    ("texts", {"items": []}, 422, "invalid_field", "items"),
    ("texts", {"items": [ITEM] * 101}, 422, "invalid_field", "at most 100"),
    ("texts", {"items": [ITEM] * 2}, 409, "duplicate_id", "'a'"),
    ("texts", {"items": [{"id": "a"}], "id": "b"}, 422, "invalid_field", "id: unknown field"),
    ("texts", {"items": [ITEM, {"id": "t4", "text": " "}]}, 422, "invalid_field", "'t4'"),
    ("sounds", ITEM, 422, "invalid_field", "target"),
    ("texts?on_duplicate=both", ITEM, 422, "invalid_field", "on_duplicate"),
    ("texts?on_duplicat=skip", ITEM, 422, "invalid_field", "known are on_duplicate"),
]

# Of POST /v1/rerank with a query of one text: what differs, status, a part of the message.
RERANKED: list[tuple[dict[str, Any], int, str]] = [
    ({"documents": None}, 422, "documents: expected a list"),
    ({"documents": []}, 422, "expected 1 to 1000 in a request"),
    ({"documents": ["a"] * 10_000}, 422, "got 10000"),
    ({"query": None}, 422, "query: expected a text"),
    ({"query": " "}, 422, "query: the text is empty"),
    ({"query": "a" * 2001}, 422, "at most 2000"),
    ({"documents": ["", " "]}, 422, "documents[0]: the text is empty"),
    ({"documents": [3]}, 422, "documents[0]: expected a text, or an object"),
    ({"documents": [{"id": "i" * 4097}]}, 422, "documents[0].id: expected at most 4096"),
    ({"documents": [{"image": NO_PHOTO}]}, 415, "documents[0]: not an image"),
    ({"query": {"image": NO_PHOTO}}, 415, "query: not an image"),
    ({"documents": [{"id": "nobody"}]}, 404, "no item 'nobody'"),
    ({"query": {"id": "nobody"}}, 404, "no item 'nobody'"),
    ({"model": "rerank-v3.5"}, 404, "is not served here"),
    ({"top_n": -1}, 422, "top_n"),
    ({"max_tokens_per_doc": 0}, 422, "max_tokens_per_doc"),
    ({"rank_fields": ["text"]}, 422, "rank_fields: unknown"),
]

# Of POST /v1/embeddings: body, status, code, the parameter that OpenAI's clients name, a part.
URL = "https://photos.test/a.png"
EMBEDDED: list[tuple[dict[str, Any], int, str, str, str]] = [
    ({"input": None}, 422, "invalid_field", "input", "expected a text or a photo"),
    ({"input": []}, 422, "invalid_field", "input", "expected 1 to 1000"),
    ({"input": ["a"] * 1001}, 422, "invalid_field", "input", "got 1001"),
    ({"input": [1, 2, 3]}, 422, "invalid_field", "input", "token ids are not accepted"),
    ({"input": [" ", ""]}, 422, "invalid_field", "input[0]", "the text is empty"),
    ({"input": [{"id": "plain"}]}, 422, "invalid_field", "input[0]", "unknown field 'id'"),
    ({"input": [{"text": "a", "image": "b"}]}, 422, "invalid_field", "input[0]", "text and image"),
    ({"input": [{"image": 3}]}, 422, "invalid_field", "input[0].image", "a string, got a number"),
    ({"input": [None]}, 422, "invalid_field", "input[0]", "got null"),
    ({"input": ["data:image/png;base64,???"]}, 422, "invalid_field", "input[0]", "a data URL"),
    (
        {"input": ["a", {"type": "image_url", "image_url": {"url": URL}}]},
        422,
        "invalid_field",
        "input[1]",
        "does not fetch photos",
    ),
    ({"input": [{"image": NO_PHOTO}, ""]}, 415, "not_an_image", "input[0]", "not an image"),
    ({"dimensions": 8}, 422, "invalid_field", "dimensions", "expected 16, got 8"),
    ({"encoding_format": "int8"}, 422, "invalid_field", "encoding_format", "'float' or 'base64'"),
    ({"late_chunking": True}, 422, "invalid_field", "late_chunking", "unknown field"),
    ({"model": "somebody/model"}, 404, "model_not_found", "model", "aladin-"),
    ({"input": "word " * 500}, 422, "text_too_long", "input[0]", "2500 characters, at most 2000"),
    ({"input": "dog " * 100}, 422, "text_too_long", "input[0]", "tokens"),
]


@pytest.mark.parametrize(("body", "words"), SEARCHES)
async def test_a_search_that_is_none(client: httpx.AsyncClient, body: Any, words: str) -> None:
    refused = await client.post("/v1/search/images", json=body)
    status, code, message = told(refused)
    assert (status, code) == (422, "invalid_field"), message
    assert words in message


@pytest.mark.parametrize(("path", "asked", "status", "code", "words"), QUESTIONS)
async def test_a_question_without_an_answer(
    client: httpx.AsyncClient, path: str, asked: dict[str, Any], status: int, code: str, words: str
) -> None:
    refused = await client.get(path, params=asked or None)
    assert told(refused)[:2] == (status, code), refused.text
    assert words in told(refused)[2]
    assert "root:" not in refused.text


async def test_items_that_are_none_change_nothing(client: httpx.AsyncClient) -> None:
    for target, body, status, code, words in ITEMS:
        refused = await client.post(f"/v1/items/{target}", json=body)
        assert told(refused)[:2] == (status, code), (body, refused.text)
        assert words in told(refused)[2], body
    info = (await client.get("/v1/index")).json()
    assert (info["images"]["count"], info["texts"]["count"]) == (6, 12)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "queries: expected a list"),
        ({"queries": {}}, "queries: expected a list"),
        ({"queries": []}, "queries: expected 1 to 256, got 0"),
        ({"queries": [{}] * 257}, "queries: expected 1 to 256, got 257"),
    ],
)
async def test_an_invalid_batch_is_refused_as_a_whole(
    client: httpx.AsyncClient, body: Any, says: str
) -> None:
    refused = await client.post("/v1/search/batch", json=body)
    assert (refused.status_code, told(refused)[2]) == (422, says)


@pytest.mark.parametrize(("changes", "status", "words"), RERANKED)
async def test_documents_that_cannot_be_ordered(
    client: httpx.AsyncClient, changes: dict[str, Any], status: int, words: str
) -> None:
    body = {"query": "a", "documents": ["a"]} | changes
    refused = await client.post("/v2/rerank", json=body)
    assert (refused.status_code, set(refused.json())) == (status, {"id", "message"}), refused.text
    assert refused.json()["id"] == refused.headers["x-request-id"]
    assert words in refused.json()["message"]


@pytest.mark.parametrize(("body", "status", "code", "param", "words"), EMBEDDED)
async def test_inputs_that_cannot_be_encoded(
    client: httpx.AsyncClient, body: dict[str, Any], status: int, code: str, param: str, words: str
) -> None:
    refused = await client.post("/v1/embeddings", json={"input": "a"} | body)
    error = refused.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    found = (refused.status_code, error["code"], error["param"], error["type"])
    assert found == (status, code, param, "invalid_request_error"), error
    assert words in error["message"]


FORM_IMAGE = {"image": b"x"}


@pytest.mark.parametrize(
    ("path", "form", "files", "status", "words"),
    [
        ("search/images", {"k": "ten"}, FORM_IMAGE, 422, "k: Input should be a valid integer"),
        ("search/images", {"colour": "red"}, FORM_IMAGE, 422, "colour: unknown field"),
        ("search/images", {"text": "a"}, FORM_IMAGE, 422, "got text and image"),
        ("search/images", {}, {"photo": b"x"}, 422, "photo: expected a plain value, got a file"),
        ("search/images", {}, {"image": (None, "AAAA")}, 422, "image: expected a file"),
        ("search/images", {"k": ["1", "2"]}, FORM_IMAGE, 422, "k: given 2 times"),
        ("search/images", {"filter": "{"}, FORM_IMAGE, 422, "filter: not JSON"),
        ("search/images", {"filter": "[" * 90_000}, FORM_IMAGE, 422, "filter: not JSON"),
        # Deeper than what can be sent to a worker process.
        (
            "search/images",
            {"filter": '{"not":' * 500 + "{}" + "}" * 500},
            FORM_IMAGE,
            422,
            "filter: not JSON",
        ),
        ("search/images", {"filter": "[1]"}, FORM_IMAGE, 422, "filter: Input should be a valid"),
        ("search/images", {}, [("image", b"a")] * 3, 422, "Too many files"),
        ("items/texts", {"id": "t", "text": "a"}, {"x": b""}, 422, "x: expected a plain value"),
        ("explain.png", {"id": "plain#0"}, FORM_IMAGE, 415, "not an image"),
        ("explain.png", {"id": "plain#0", "k": "3"}, FORM_IMAGE, 422, "k: unknown field"),
        ("search/batch", {"queries": "[]"}, FORM_IMAGE, 415, "application/json"),
    ],
)
async def test_a_form_that_is_none(
    client: httpx.AsyncClient, path: str, form: Any, files: Any, status: int, words: str
) -> None:
    refused = await client.post(f"/v1/{path}", data=form, files=files)
    assert (refused.status_code, words in told(refused)[2]) == (status, True), refused.text


async def test_an_uploaded_photo_fits_texts_that_are_there_alone(
    client: httpx.AsyncClient, photo: bytes
) -> None:
    for item_id, expected in (
        ("nobody", (404, "unknown_id")),
        ("plain", (422, "invalid_field")),
    ):
        refused = await client.post(DRAW, files={"image": photo}, data={"id": item_id})
        assert told(refused)[:2] == expected


BODIES: dict[str, dict[str, Any]] = {
    "/v1/search/images": DOG,
    "/v1/search/texts": DOG,
    "/v1/search/batch": {"queries": [DOG | {"target": "images"}]},
    "/v1/explain": {"id": "plain#0", "image": NO_PHOTO},
    "/v1/explain.png": {"id": "plain#0", "image": NO_PHOTO},
    "/v1/rerank": {"query": "a", "documents": ["a"]},
    "/v1/embeddings": {"input": "a"},
    "/v1/items/{target}": {"id": "never added", "text": "a"},
    "/v1/images.zip": {"ids": ["plain"]},
}
# Their clients send other content types, too.
OF_ANY_TYPE = {"/v1/rerank", "/v1/embeddings"}


def wrong_bodies(path: str) -> Iterator[tuple[bytes, str, int, str]]:
    """Content, content type, status and a part of the message."""
    for content in (b"", b"{", b'{"text": ', b"\xff\xfe", b"[" * 50_000, b'{"text": "\\ud800"}'):
        yield content, "application/json", 422, "Invalid JSON"
    for content in (b"[1, 2]", b'"text"', b"null"):
        yield content, "application/json", 422, "Input should be an object"
    unknown = json.dumps(BODIES[path] | {"colour": "red"}).encode()
    yield unknown, "application/json", 422, "colour: unknown field"
    for kind in ("text/plain", "image/jpeg", "application/x-www-form-urlencoded", ";", ""):
        if path not in OF_ANY_TYPE:
            yield b"{}", kind, 415, "application/json"


async def test_every_route_with_a_body_refuses_what_is_no_object_of_its_fields(
    client: httpx.AsyncClient, service: Service
) -> None:
    document = (await client.get("/openapi.json")).json()
    paths = [path for path, methods in document["paths"].items() if "post" in methods]
    assert set(paths) == set(BODIES)
    async with service(max_body_bytes=1024) as small:
        for path in paths:
            address = path.replace("{target}", "texts")
            for content, kind, status, words in wrong_bodies(path):
                refused = await client.post(
                    address, content=content, headers={"content-type": kind}
                )
                assert (refused.status_code, words in refused.text) == (status, True), (
                    path,
                    content[:50],
                    refused.text,
                )
            large = await small.post(address, json=BODIES[path] | {"colour": "x" * 1000})
            assert (large.status_code, "limit of 1024 bytes" in large.text) == (413, True), path


@pytest.mark.parametrize("boundary", [None, "", "other", "b" * 100_000, "é"])
async def test_a_malformed_form(client: httpx.AsyncClient, boundary: str | None) -> None:
    kind = (
        "multipart/form-data" if boundary is None else f"multipart/form-data; boundary={boundary}"
    )
    headers = [("content-type", kind.encode("latin-1"))]
    refused = await client.post("/v1/search/images", content=b"--x\r\nbroken", headers=headers)
    assert told(refused)[:2] == (422, "invalid_field")


@pytest.mark.parametrize("levels", [17, 100, 10_000])
async def test_a_filter_has_only_so_many_levels(client: httpx.AsyncClient, levels: int) -> None:
    spec = '{"or": [' * (levels - 1) + '{"number": 1}' + "]}" * (levels - 1)
    body = f'{{"text": "a", "filter": {spec}}}'
    refused = await client.post("/v1/search/images", content=body, headers=JSON)
    assert refused.status_code == 422
    if levels < 100:  # beyond, the JSON itself is refused
        assert "filter 'or': expected at most 16 levels" in told(refused)[2]


async def test_a_chunked_body_is_refused_while_it_is_read_and_never_kept(service: Service) -> None:
    limit, sent = 100_000, 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 1000 * limit:
            sent += limit // 10
            yield b" " * (limit // 10)

    async with service(max_body_bytes=limit) as small:
        refused = await small.post("/v1/search/images", content=chunks(), headers=JSON)
    assert told(refused)[:2] == (413, "body_too_large")
    # What comes after the limit is thrown away for a while, so that the client sees the answer.
    assert sent < 20 * limit


async def test_a_read_only_service_refuses_before_it_reads(service: Service) -> None:
    async with service(read_only=True) as client:
        for answer in (
            await client.post("/v1/items/texts", json=ITEM),
            await client.post("/v1/items/texts", content=b"nonsense"),
            await client.delete("/v1/items/images/plain"),
        ):
            assert told(answer)[:2] == (403, "read_only")
        assert (await client.get("/v1/items/images/plain")).status_code == 200


async def test_photos_of_one_request_share_the_pixels(service: Service, photo: bytes) -> None:
    given = {"image": b64(photo)}
    async with service(max_document_pixels=7000) as client:
        for path, fits, too_many in (
            ("/v1/embeddings", {"input": [given] * 2}, {"input": [given] * 3}),
            (
                "/v1/rerank",
                {"query": given, "documents": [given]},
                {"query": given, "documents": [given] * 2},
            ),
        ):
            assert (await client.post(path, json=fits)).status_code == 200
            refused = await client.post(path, json=too_many)
            assert refused.status_code == 413
            assert "3 photos: more than 7000 pixels together" in told(refused)[2]
