"""Both clients: what they send, how they read answers, and how they try again."""

from __future__ import annotations

import asyncio
import email.message
import email.parser
import inspect
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import httpx
import pytest

from aladin_network.errors import ConfigError, InputError
from aladin_service.client import (
    AladinClient,
    AsyncAladinClient,
    ClientError,
    ConflictError,
    NewPhoto,
    NewText,
    NoAccessError,
    NotFoundError,
    NotReadyError,
    RefusedInputError,
    RetryPolicy,
    Search,
    SearchTerm,
    ServiceError,
    ServiceUnreachableError,
    TooBusyError,
    items,
)

HIT = {
    "id": "a",
    "rank": 1,
    "score": 1.5,
    "per_word": None,
    "stages": {"match": {"rank": 1, "score": 0.5}, "align": None},
    "uri": None,
    "text": None,
    "metadata": {},
    "evidence": None,
}
ANSWER: dict[str, Any] = {
    "hits": [HIT],
    "reranked": False,
    "fusion": None,
    "candidates": 3,
    "generation": 2,
    "degraded": [],
    "took_ms": {"decode": 0, "encode": 1, "retrieve": 2, "rerank": 3, "total": 6.5},
    "of_a_later_version": True,
}
ADDED: dict[str, Any] = {
    "added": ["n"],
    "replaced": [],
    "kept": [],
    "generation": 2,
    "took_ms": {"decode": 0, "encode": 1, "write": 2, "total": 3},
}
AT_ONCE = RetryPolicy(attempts=4, total_s=30.0, first_wait_s=0.0)

Ask = Callable[..., Any]
Handler = Callable[[httpx.Request], httpx.Response]


class Script:
    """Answers requests by a list of answers and errors, and keeps what was sent."""

    def __init__(self, *steps: httpx.Response | type[httpx.RequestError]) -> None:
        self._steps = list(steps)
        self.requests: list[httpx.Request] = []
        self.bodies: list[bytes] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        self.bodies.append(request.content)
        step = self._steps.pop(0)
        if isinstance(step, httpx.Response):
            return step
        raise step("as the script says", request=request)


def error(status: int, code: str, **headers: str) -> httpx.Response:
    body = {"error": {"code": code, "message": f"it is {code}", "request_id": "r-1"}}
    return httpx.Response(status, json=body, headers=headers)


@pytest.fixture(params=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Ask:
    """Calls a method of either client: ``ask(script, "item", "images", "a")``.

    What comes piece by piece is returned as a list.
    """

    def ask_sync(handler: Handler, method: str, *args: Any, **fields: Any) -> Any:
        transport = httpx.MockTransport(handler)
        with AladinClient("http://host/below", retries=AT_ONCE, transport=transport) as client:
            result = getattr(client, method)(*args, **fields)
            return list(result) if isinstance(result, Iterator) else result

    def ask_async(handler: Handler, method: str, *args: Any, **fields: Any) -> Any:
        async def run() -> Any:
            # The script's answers are read by the mock, whose streams are not asynchronous.
            async def handle(request: httpx.Request) -> httpx.Response:
                await request.aread()
                return handler(request)

            async with AsyncAladinClient(
                "http://host/below", retries=AT_ONCE, transport=httpx.MockTransport(handle)
            ) as client:
                result = getattr(client, method)(*args, **fields)
                if inspect.isawaitable(result):
                    return await result
                return [each async for each in result]

        return asyncio.run(run())

    return ask_sync if request.param == "sync" else ask_async


def form_of(script: Script) -> dict[str, bytes]:
    """The fields of the last request, which is a multipart form."""
    header = f"Content-Type: {script.requests[-1].headers['content-type']}\r\n\r\n".encode()
    message = email.parser.BytesParser().parsebytes(header + script.bodies[-1])
    found: dict[str, bytes] = {}
    terms = message.get_payload()
    assert isinstance(terms, list)
    for term in terms:
        assert isinstance(term, email.message.Message)
        name = term.get_param("name", header="content-disposition")
        content = term.get_payload(decode=True)
        assert isinstance(content, bytes)
        found[str(name)] = content
    return found


BOX = (0.25, 0, 1, 0.5)
BOX_SENT = [0.25, 0, 1, 0.5]
MAPS = {
    "text": "a dog",
    "match": 0.25,
    "align": 0.5,
    "regions": [{"box": [0, 0, 0.5, 1]}, {"box": None}],
    "words": [
        {
            **{"text": "dog", "start": 2, "end": 5, "score": 0.5, "share": 1, "region": 1},
            "cosines": [0.125, 0.5],
        }
    ],
}
LISTED: dict[str, Any] = {
    "items": [{"id": "b", "uri": None, "text": None, "metadata": {}, "size_px": [4, 3]}],
    "total": 3,
    "next": "b",
    "generation": 2,
}
PHOTO = NewPhoto("n", b"pixels", text="10", metadata={"year": 3})
ORDER = {"limit": 2, "sort": "taken_at", "order": "asc", "after": "a&b"}


def call(method: str, *args: Any, **fields: Any) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    return method, args, fields


# Of each call the answer, and of its request the method, the path, and what is sent: parameters of
# the address, a JSON object, or the fields of a form as bytes.
SENT: list[tuple[Any, Any, str, str, dict[str, Any]]] = [
    (
        call("search_images", "a dog", k=3, rerank=False, filter={"a": [1]}, min_probability=0.5),
        ANSWER,
        *("POST", "search/images"),
        {"text": "a dog", "k": 3, "rerank": False, "filter": {"a": [1]}, "min_probability": 0.5},
    ),
    (
        call("search_texts", image=b"pixels", timeout_ms=12.5, filter={"b": 2}, explain=True),
        ANSWER,
        *("POST", "search/texts"),
        {"image": b"pixels", "timeout_ms": b"12.5", "filter": b'{"b": 2}', "explain": b"true"},
    ),
    (
        call("search_images", id="a", box=BOX, sort="-taken_at"),
        ANSWER,
        *("POST", "search/images"),
        {"id": "a", "box": BOX_SENT, "sort": "-taken_at"},
    ),
    (
        call("search_images", image=b"pixels", box=BOX, sort="-taken_at"),
        ANSWER,
        *("POST", "search/images"),
        {"image": b"pixels", "box": b"[0.25, 0, 1, 0.5]", "sort": b"-taken_at"},
    ),
    (
        call("search_images", all=["a dog", SearchTerm(id="a", box=BOX, weight=2)], not_=["b"]),
        ANSWER,
        *("POST", "search/images"),
        {
            "all": [{"text": "a dog"}, {"id": "a", "box": BOX_SENT, "weight": 2}],
            "not": [{"text": "b"}],
        },
    ),
    (
        call("search", Search(all=[SearchTerm(image=b"xyz")], like=["a"])),
        ANSWER,
        *("POST", "search/images"),
        {"all": [{"image": "eHl6"}], "like": ["a"]},
    ),
    (call("list_items"), LISTED, "GET", "items/images", {}),
    (
        call("list_items", "texts", filter={"year": [1]}, **ORDER),
        LISTED,
        *("GET", "items/texts"),
        {name: str(value) for name, value in ORDER.items()} | {"filter": '{"year": [1]}'},
    ),
    (
        call("explain", "dogs/1 & 2", "a dog"),
        MAPS,
        *("GET", "explain"),
        {"id": "dogs/1 & 2", "text": "a dog"},
    ),
    (
        call("explain", "dogs/1#0", image=b"pixels"),
        MAPS,
        *("POST", "explain"),
        {"id": b"dogs/1#0", "image": b"pixels"},
    ),
    (
        call("explain_png", "b", query_id="a", box=BOX),
        b"png",
        *("GET", "explain.png"),
        {"id": "b", "query_id": "a", "box": "0.25,0,1,0.5"},
    ),
    (
        call("explain_png", "b", image=b"pixels", box=BOX),
        b"png",
        *("POST", "explain.png"),
        {"id": b"b", "box": b"[0.25, 0, 1, 0.5]", "image": b"pixels"},
    ),
    (
        call("add_photo", PHOTO, "skip"),
        ADDED,
        *("POST", "items/images"),
        {"id": b"n", "image": b"pixels", "text": b"10", "metadata": b'{"year": 3}'},
    ),
    (
        call("add_photos", [PHOTO, NewPhoto("m", b"", uri="u")]),
        ADDED,
        *("POST", "items/images"),
        {
            "items": [
                {"id": "n", "metadata": {"year": 3}, "text": "10", "image": "cGl4ZWxz"},
                {"id": "m", "metadata": {}, "uri": "u", "image": ""},
            ]
        },
    ),
    (
        call("add_text", NewText("t", "words"), "replace"),
        ADDED,
        *("POST", "items/texts"),
        {"items": [{"id": "t", "metadata": {}, "text": "words"}]},
    ),
]


@pytest.mark.parametrize(("asked", "answer", "method", "path", "sent"), SENT)
def test_a_request_has_what_is_given_and_no_more(
    ask: Ask, asked: Any, answer: Any, method: str, path: str, sent: dict[str, Any]
) -> None:
    name, args, fields = asked
    body = {"content": answer} if isinstance(answer, bytes) else {"json": answer}
    script = Script(httpx.Response(200, **body))
    ask(script, name, *args, **fields)
    (request,) = script.requests
    assert (request.method, request.url.path) == (method, f"/below/v1/{path}")
    if method == "GET":
        assert dict(request.url.params) == sent
    elif request.headers["content-type"] == "application/json":
        assert json.loads(script.bodies[0]) == sent
    else:
        assert form_of(script) == sent
    if name.startswith("add"):
        how = args[1] if len(args) > 1 else "error"
        assert dict(request.url.params) == {"on_duplicate": how}


def test_answers_are_read(ask: Ask) -> None:
    judged = ANSWER | {"hits": [HIT | {"probability": 0.75}], "no_match": False}
    years = {"name": "year", "kind": "number", "least": 1, "greatest": 2.5, "values": None}
    script = Script(
        *(httpx.Response(200, json=each) for each in (judged, ANSWER, LISTED, MAPS)),
        httpx.Response(200, json={"images": [years], "texts": None}),
    )
    found, old = ask(script, "search_images", "a dog"), ask(script, "search_images", "a dog")
    assert (found.hits[0].id, found.hits[0].score, found.took_ms.total) == ("a", 1.5, 6.5)
    assert (found.hits[0].probability, found.no_match) == (0.75, False)
    assert (old.hits[0].probability, old.no_match) == (None, None)
    page = ask(script, "list_items")
    assert ([item.id for item in page.items], page.total, page.next) == (["b"], 3, "b")
    assert page.items[0].size_px == (4, 3)
    maps = ask(script, "explain", "b", "a dog")
    assert (maps.align, maps.regions[0].box) == (0.5, (0, 0, 0.5, 1))
    assert (maps.words[0].region, maps.words[0].cosines) == (1, [0.125, 0.5])
    fields = ask(script, "index_fields")
    assert ([asdict(field) for field in fields.images], fields.texts) == ([years], None)


def test_a_picture_is_its_path_its_open_file_or_its_bytes(ask: Ask, tmp_path: Any) -> None:
    file = tmp_path / "dög.jpg"
    file.write_bytes(b"\xff\xd8 pixels")
    with file.open("rb") as opened:
        for image in (file, opened, b"\xff\xd8 pixels"):
            script = Script(httpx.Response(200, json=ANSWER))
            ask(script, "search_texts", image=image)
            assert form_of(script) == {"image": b"\xff\xd8 pixels"}


@pytest.mark.parametrize(
    ("item_id", "written"),
    [
        ("dogs/red#1", "dogs/red%231"),
        ("bike 2?", "bike%202%3F"),
        ("a%2Fb", "a%252Fb"),
        ("../x.jpg", "..%2Fx.jpg"),
        ("ü", "%C3%BC"),
    ],
)
def test_ids_of_any_kind_reach_the_service(ask: Ask, item_id: str, written: str) -> None:
    item = {"id": item_id, "uri": None, "text": None, "metadata": {"a": 1}}
    script = Script(
        httpx.Response(200, json=item),
        httpx.Response(200, json={"deleted": item_id, "generation": 1}),
        httpx.Response(200, content=b"jpeg", headers={"content-type": "image/jpeg"}),
    )
    assert ask(script, "item", "texts", item_id).metadata == {"a": 1}
    assert ask(script, "delete", "images", item_id).deleted == item_id
    assert ask(script, "photo", item_id, 64) == (b"jpeg", "image/jpeg")
    paths = [request.url.raw_path.decode() for request in script.requests]
    assert paths == [
        f"/below/v1/items/texts/{written}",
        f"/below/v1/items/images/{written}",
        f"/below/v1/images/{written}?size=64",
    ]
    assert [request.method for request in script.requests] == ["GET", "DELETE", "GET"]


def test_every_item_comes_page_by_page(ask: Ask) -> None:
    last = LISTED | {"items": [LISTED["items"][0] | {"id": "c"}], "next": None}
    script = Script(httpx.Response(200, json=LISTED), httpx.Response(200, json=last))
    items = ask(script, "every_item", "images", sort="year", page_size=2)
    assert [item.id for item in items] == ["b", "c"]
    asked = [dict(request.url.params) for request in script.requests]
    assert asked == [{"limit": "2", "sort": "year"}, {"limit": "2", "sort": "year", "after": "b"}]


@pytest.mark.parametrize("fields", [{}, {"text": "a", "query_id": "b"}])
def test_evidence_is_of_one_query(ask: Ask, fields: dict[str, str]) -> None:
    script = Script()
    with pytest.raises(InputError, match="expected exactly one of text, query_id, photo, got"):
        ask(script, "explain_png", "a", **fields)
    assert script.requests == []


def test_a_batch_comes_back_in_order_answers_and_errors(ask: Ask) -> None:
    failed = {"status": 404, "error": {"code": "unknown_id", "message": "no x", "request_id": "r"}}
    script = Script(httpx.Response(200, json={"answers": [ANSWER, failed], "took_ms": 3.0}))
    first, second = ask(script, "search_batch", [Search("a", k=1), Search(image=b"xyz")])
    assert json.loads(script.bodies[0]) == {
        "queries": [
            {"target": "images", "text": "a", "k": 1},
            {"target": "images", "image": "eHl6"},
        ]
    }
    assert first.hits[0].id == "a"
    assert isinstance(second, NotFoundError)
    assert (second.status, second.code, str(second), second.request_id) == (
        *(404, "unknown_id"),
        *("no x", "r"),
    )


def test_many_searches_go_in_batches(ask: Ask) -> None:
    sizes: list[int] = []

    def answer_all(request: httpx.Request) -> httpx.Response:
        queries = json.loads(request.content)["queries"]
        sizes.append(len(queries))
        answers = [{**ANSWER, "candidates": int(query["text"])} for query in queries]
        assert {query["target"] for query in queries} == {"texts"}
        return httpx.Response(200, json={"answers": answers, "took_ms": 1.0})

    answers = ask(answer_all, "search_many", map(str, range(7)), "texts", batch_size=3, k=2)
    assert [answer.candidates for answer in answers] == list(range(7))
    assert sizes == [3, 3, 1]


def test_fewer_answers_than_searches_are_no_answer(ask: Ask) -> None:
    script = Script(httpx.Response(200, json={"answers": [ANSWER], "took_ms": 3.0}))
    with pytest.raises(ServiceUnreachableError, match="expected 2 answers, got 1"):
        ask(script, "search_batch", [Search("a"), Search("b")])


def test_an_answer_of_some_other_server_is_named(ask: Ask) -> None:
    script = Script(httpx.Response(200, text="<html>"))
    with pytest.raises(ServiceUnreachableError, match="not a response of this service"):
        ask(script, "index")


def test_many_items_are_added_in_bounded_requests(ask: Ask) -> None:
    script = Script(*(httpx.Response(201, json=ADDED) for _ in range(3)))
    items = [NewText(str(number), "words") for number in range(5)]
    with pytest.raises(InputError):
        ask(script, "add_texts", [])
    reports = ask(script, "add_many", iter(items), "skip", max_items=2)
    assert [report.generation for report in reports] == [2, 2, 2]
    assert [len(json.loads(body)["items"]) for body in script.bodies] == [2, 2, 1]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, NoAccessError),
        (403, NoAccessError),
        (404, NotFoundError),
        (409, ConflictError),
        (413, RefusedInputError),
        (415, RefusedInputError),
        (422, RefusedInputError),
        (500, ServiceError),
    ],
)
def test_errors_have_the_class_of_their_status(
    ask: Ask, status: int, kind: type[ServiceError]
) -> None:
    script = Script(error(status, "some_code"))
    with pytest.raises(ClientError) as caught:
        ask(script, "search_images", "a dog")
    assert type(caught.value) is kind
    assert caught.value.status == status
    assert caught.value.code == "some_code"
    assert caught.value.message == str(caught.value) == "it is some_code"
    assert caught.value.request_id == "r-1"


def test_a_missing_key_names_the_variable_it_is_read_from(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ALADIN_API_KEY", raising=False)
    with pytest.raises(NoAccessError) as caught:
        ask(Script(error(401, "unauthorized")), "search_images", "a dog")
    said = "it is unauthorized: set ALADIN_API_KEY to a key of the service"
    assert str(caught.value) == said
    assert caught.value.message == "it is unauthorized"
    # Another key is wanted, and this one was found.
    monkeypatch.setenv("ALADIN_API_KEY", "wrong")
    with pytest.raises(NoAccessError) as caught:
        ask(Script(error(401, "unauthorized")), "search_images", "a dog")
    assert str(caught.value) == "it is unauthorized"


def test_an_error_of_something_in_between_has_a_code_too(ask: Ask) -> None:
    script = Script(httpx.Response(504, text="<html>gateway</html>"))
    with pytest.raises(ServiceError) as caught:
        ask(script, "index")
    assert (caught.value.status, caught.value.code) == (504, "http_504")
    assert caught.value.request_id is None


def test_a_busy_service_is_asked_again(ask: Ask) -> None:
    script = Script(
        error(429, "overloaded", **{"Retry-After": "0"}),
        httpx.ConnectError,
        error(503, "index_not_ready"),
        httpx.Response(200, json=ANSWER),
    )
    assert ask(script, "search_images", image=b"pixels").candidates == 3
    assert form_of(script) == {"image": b"pixels"}
    assert len(script.requests) == 4


def test_patience_ends_with_the_last_answer(ask: Ask) -> None:
    script = Script(*(error(429, "overloaded", **{"Retry-After": "0"}) for _ in range(9)))
    with pytest.raises(TooBusyError) as caught:
        ask(script, "index")
    assert caught.value.retry_after_s == 0.0
    assert len(script.requests) == 4


def test_a_wait_that_is_too_long_is_not_begun(ask: Ask) -> None:
    script = Script(error(503, "index_not_ready", **{"Retry-After": "31"}))
    with pytest.raises(NotReadyError):
        ask(script, "index")
    assert len(script.requests) == 1


def test_an_addition_is_not_made_twice(ask: Ask) -> None:
    text = NewText("t", "words")
    script = Script(httpx.ReadError)
    with pytest.raises(ServiceUnreachableError, match="as the script says"):
        ask(script, "add_text", text)
    script = Script(error(429, "overloaded"), httpx.ConnectError, error(409, "duplicate_id"))
    with pytest.raises(ConflictError):
        ask(script, "add_text", text)
    script = Script(httpx.ReadError, httpx.Response(201, json=ADDED))
    assert ask(script, "add_text", text, "replace").added == ["n"]
    assert script.bodies[0] == script.bodies[1]


def test_a_service_that_is_not_up_or_not_ready(ask: Ask) -> None:
    assert ask(Script(httpx.Response(200, json={})), "health") is True
    assert ask(Script(httpx.ConnectError), "health") is False
    assert ask(Script(error(503, "index_not_ready")), "ready") is False
    script = Script(
        *(error(503, "index_not_ready", **{"Retry-After": "0"}) for _ in range(3)),
        httpx.Response(200, json={}),
    )
    ask(script, "wait_until_ready", 30.0)
    assert [request.url.path for request in script.requests] == ["/below/readyz"] * 4
    with pytest.raises(NotReadyError):
        ask(Script(error(503, "index_not_ready")), "wait_until_ready", 0.0)


def test_the_key_is_the_one_given_or_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def sent_key(**arguments: Any) -> str | None:
        script = Script(httpx.Response(200, json={}))
        with AladinClient(
            "http://host", transport=httpx.MockTransport(script), **arguments
        ) as client:
            client.ready()
        return script.requests[0].headers.get("authorization")

    monkeypatch.delenv("ALADIN_API_KEY", raising=False)
    assert sent_key() is None
    assert sent_key(api_key="one") == "Bearer one"
    monkeypatch.setenv("ALADIN_API_KEY", "two")
    assert sent_key() == "Bearer two"
    assert sent_key(api_key="one") == "Bearer one"


@pytest.mark.parametrize("url", ["", "host:8000", "ftp://host", "http://"])
def test_a_url_that_is_none(url: str) -> None:
    for client in (AladinClient, AsyncAladinClient):
        with pytest.raises(ConfigError):
            client(url)


def test_both_clients_have_the_same_methods() -> None:
    def methods(client: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(method).parameters)
            for name, method in vars(client).items()
            if not name.startswith("_")
        }

    assert methods(AladinClient) == methods(AsyncAladinClient)
    assert len(methods(AladinClient)) == 24


@pytest.mark.parametrize("client", [AladinClient, AsyncAladinClient])
def test_a_method_shows_the_arguments_and_the_text_of_its_request(client: type) -> None:
    for name, made in (("list_items", items.list_items), ("every_item", items.every_item)):
        method = getattr(client, name)
        assert method.__doc__ == made.__doc__
        shown = inspect.signature(method).parameters
        asked = inspect.signature(made).parameters
        assert list(shown.values())[1:] == list(asked.values())
        assert next(iter(shown)) == "self"
    assert "metadata field" in inspect.getdoc(client("http://host").index_fields)
    assert inspect.iscoroutinefunction(AsyncAladinClient.index)


def test_a_client_needs_neither_the_network_nor_the_service() -> None:
    script = """
import sys
import aladin_service.client
heavy = {"torch", "numpy", "faiss", "fastapi", "uvicorn", "PIL", "typer"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", script], check=True)
