"""Both clients: what they send, how they read answers, and how they try again."""

from __future__ import annotations

import asyncio
import email.message
import email.parser
import inspect
import json
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
        if isinstance(step, httpx.Response):  # a new one: an answer is read once
            return httpx.Response(step.status_code, headers=step.headers, content=step.content)
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
WORD = {"text": "dog", "start": 2, "end": 5, "score": 0.5, "share": 1, "region": 1}
MAPS = {
    "text": "a dog",
    "match": 0.25,
    "align": 0.5,
    "regions": [{"box": [0, 0, 0.5, 1]}, {"box": None}],
    "words": [WORD | {"cosines": [0.125, 0.5]}],
}
LISTED: dict[str, Any] = {
    "items": [{"id": "b", "uri": None, "text": None, "metadata": {}, "size_px": [4, 3]}],
    "total": 3,
    "next": "b",
    "generation": 2,
}
PHOTO = NewPhoto('ü"n', b"pixels", text="10", metadata={"year": 3})
PHOTO_SENT = {"id": 'ü"n', "metadata": {"year": 3}, "text": "10", "image": "cGl4ZWxz"}
TERM = {"text": "b"}
ORDER = {"limit": 2, "sort": "taken_at", "order": "asc", "after": "a&b"}


def call(method: str, *args: Any, **fields: Any) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    return method, args, fields


# Of each call's request the method and path, and what is sent: parameters of the address, a JSON
# object, or the fields of a form as bytes.
SENT: list[tuple[Any, str, dict[str, Any]]] = [
    (
        call("search_images", "a dog", k=3, rerank=False, filter={"a": [1]}, min_probability=0.5),
        "POST search/images",
        {"text": "a dog", "k": 3, "rerank": False, "filter": {"a": [1]}, "min_probability": 0.5},
    ),
    (
        call("search_texts", image=b"pixels", timeout_ms=12.5, filter={"b": 2}, explain=True),
        "POST search/texts",
        {"image": b"pixels", "timeout_ms": b"12.5", "filter": b'{"b": 2}', "explain": b"true"},
    ),
    (
        call("search_images", id="a", box=BOX, sort="-taken_at"),
        *("POST search/images", {"id": "a", "box": BOX_SENT, "sort": "-taken_at"}),
    ),
    (
        call("search_images", image=b"xyz", box=BOX),
        *("POST search/images", {"image": b"xyz", "box": b"[0.25, 0, 1, 0.5]"}),
    ),
    (
        call("search_images", all=["a dog", SearchTerm(id="a", box=BOX, weight=2)], not_=["b"]),
        "POST search/images",
        {"all": [{"text": "a dog"}, {"id": "a", "box": BOX_SENT, "weight": 2}], "not": [TERM]},
    ),
    (
        call("search", Search(all=[SearchTerm(image=b"xyz")], like=["a"])),
        *("POST search/images", {"all": [{"image": "eHl6"}], "like": ["a"]}),
    ),
    (call("list_items"), "GET items/images", {}),
    (
        call("list_items", "texts", filter={"year": [1]}, stack=True, **ORDER),
        "GET items/texts",
        {name: str(value) for name, value in ORDER.items()}
        | {"filter": '{"year": [1]}', "stack": "true"},
    ),
    (call("explain", "a/1 & 2", "a dog"), "GET explain", {"id": "a/1 & 2", "text": "a dog"}),
    (
        call("explain", "dogs/1#0", image=b"xyz"),
        *("POST explain", {"id": b"dogs/1#0", "image": b"xyz"}),
    ),
    (
        call("explain_png", "b", query_id="a", box=BOX),
        *("GET explain.png", {"id": "b", "query_id": "a", "box": "0.25,0,1,0.5"}),
    ),
    (
        call("explain_png", "b", image=b"xyz", box=BOX),
        *("POST explain.png", {"id": b"b", "box": b"[0.25, 0, 1, 0.5]", "image": b"xyz"}),
    ),
    (
        call("add_photo", PHOTO, "skip"),
        "POST items/images",
        {"id": 'ü"n'.encode(), "image": b"pixels", "text": b"10", "metadata": b'{"year": 3}'},
    ),
    (
        call("add_photos", [PHOTO, NewPhoto("m", b"", uri="u")]),
        "POST items/images",
        {"items": [PHOTO_SENT, {"id": "m", "metadata": {}, "uri": "u", "image": ""}]},
    ),
    (
        call("add_text", NewText("t", "words"), "replace"),
        *("POST items/texts", {"items": [{"id": "t", "metadata": {}, "text": "words"}]}),
    ),
]
ANSWERS = {"search": ANSWER, "list": LISTED, "explain": MAPS, "add": ADDED}


@pytest.mark.parametrize(("asked", "line", "sent"), SENT)
def test_a_request_has_what_is_given_and_no_more(
    ask: Ask, asked: Any, line: str, sent: dict[str, Any]
) -> None:
    (name, args, fields), (method, path) = asked, line.split()
    answer = {"content": b"png"} if "png" in name else {"json": ANSWERS[name.partition("_")[0]]}
    script = Script(httpx.Response(200, **answer))
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
    fields = {"images": [years], "texts": None}
    script = Script(*(httpx.Response(200, json=each) for each in (judged, ANSWER, MAPS, fields)))
    found, old = ask(script, "search_images", "a dog"), ask(script, "search_images", "a dog")
    assert (found.hits[0].id, found.hits[0].score, found.took_ms.total) == ("a", 1.5, 6.5)
    assert (found.hits[0].probability, found.no_match) == (0.75, False)
    assert (old.hits[0].probability, old.no_match) == (None, None)
    maps = ask(script, "explain", "b", "a dog")
    assert (maps.align, maps.regions[0].box) == (0.5, (0, 0, 0.5, 1))
    assert (maps.words[0].region, maps.words[0].cosines) == (1, [0.125, 0.5])
    read = ask(script, "index_fields")
    assert ([asdict(field) for field in read.images], read.texts) == ([years], None)


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
    asked = [(request.method, request.url.raw_path.decode()) for request in script.requests]
    assert asked == [
        ("GET", f"/below/v1/items/texts/{written}"),
        ("DELETE", f"/below/v1/items/images/{written}"),
        ("GET", f"/below/v1/images/{written}?size=64"),
    ]


def test_every_item_comes_page_by_page(ask: Ask) -> None:
    last = LISTED | {"items": [LISTED["items"][0] | {"id": "c"}], "next": None}
    script = Script(*(httpx.Response(200, json=page) for page in (LISTED, LISTED, last)))
    page = ask(script, "list_items")
    assert (page.items[0].id, page.items[0].size_px, page.total, page.next) == ("b", (4, 3), 3, "b")
    items = ask(script, "every_item", "images", sort="year", page_size=2)
    assert [item.id for item in items] == ["b", "c"]
    asked = [dict(request.url.params) for request in script.requests[1:]]
    assert asked == [{"limit": "2", "sort": "year"}, {"limit": "2", "sort": "year", "after": "b"}]


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
    facts = second.status, second.code, str(second), second.request_id
    assert facts == (404, "unknown_id", "no x", "r")


def test_many_searches_and_many_items_go_in_bounded_requests(ask: Ask) -> None:
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
    script = Script(*(httpx.Response(201, json=ADDED) for _ in range(3)))
    items = (NewText(str(number), "words") for number in range(5))
    reports = ask(script, "add_many", items, "skip", max_items=2)
    assert [report.generation for report in reports] == [2, 2, 2]
    assert [len(json.loads(body)["items"]) for body in script.bodies] == [2, 2, 1]


BUSY = error(429, "overloaded", **{"Retry-After": "0"})
NOT_READY = error(503, "index_not_ready", **{"Retry-After": "0"})
TEXT = NewText("t", "words")
FOUND, MADE = httpx.Response(200, json=ANSWER), httpx.Response(201, json=ADDED)
SHORT = httpx.Response(200, json={"answers": [ANSWER], "took_ms": 3.0})
STATUSES: dict[int, type[Exception]] = {
    **dict.fromkeys((401, 403), NoAccessError),
    **{404: NotFoundError, 409: ConflictError, 500: ServiceError},
    **dict.fromkeys((413, 415, 422), RefusedInputError),
}
INDEX, ADD = call("index"), call("add_text", TEXT)
PICTURE = call("search_images", image=b"pixels")
BATCH = call("search_batch", [Search("a"), Search("b")])
LONG = error(503, "index_not_ready", **{"Retry-After": "31"})
Steps = tuple[httpx.Response | type[httpx.RequestError], ...]
# Of each call what comes back one after the other, how many requests are made, and the error.
FAILURES: list[tuple[Any, Steps, int, type[Exception] | None, str]] = [
    *((INDEX, (error(status, "x"),), 1, kind, "it is x") for status, kind in STATUSES.items()),
    (INDEX, (httpx.Response(504, text="<html>"),), 1, ServiceError, "504"),
    (INDEX, (httpx.Response(200, text="<"),), 1, ServiceUnreachableError, "not a response of this"),
    (BATCH, (SHORT,), 1, ServiceUnreachableError, "expected 2 answers, got 1"),
    # A service that is busy, or not there, is asked again; patience ends.
    (PICTURE, (BUSY, httpx.ConnectError, NOT_READY, FOUND), 4, None, ""),
    (INDEX, (BUSY, BUSY, BUSY, BUSY, BUSY), 4, TooBusyError, "it is overloaded"),
    (INDEX, (LONG,), 1, NotReadyError, "it is index_not_ready"),
    (call("wait_until_ready", 30.0), (NOT_READY, NOT_READY, NOT_READY, FOUND), 4, None, ""),
    (call("wait_until_ready", 0.0), (NOT_READY,), 1, NotReadyError, "index_not_ready"),
    # An addition is not made twice.
    (ADD, (httpx.ReadError,), 1, ServiceUnreachableError, "as the script says"),
    (ADD, (BUSY, httpx.ConnectError, error(409, "known")), 3, ConflictError, "known"),
    (call("add_text", TEXT, "replace"), (httpx.ReadError, MADE), 2, None, ""),
    # What cannot be asked is not sent.
    (call("add_texts", []), (), 0, InputError, "expected"),
    (call("explain_png", "a"), (), 0, InputError, "exactly one of text, query_id, photo, got"),
    (call("explain_png", "a", text="a", query_id="b"), (), 0, InputError, "expected exactly one"),
]


@pytest.mark.parametrize(("asked", "steps", "requests", "kind", "says"), FAILURES)
def test_a_request_fails_or_is_made_again(
    ask: Ask,
    asked: Any,
    steps: Steps,
    requests: int,
    kind: type[Exception] | None,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ALADIN_API_KEY", "wrong")
    (name, args, fields), script = asked, Script(*steps)
    if kind is None:
        ask(script, name, *args, **fields)
        assert len(set(script.bodies)) == 1 or "image" in fields
    else:
        with pytest.raises(kind, match=says) as caught:
            ask(script, name, *args, **fields)
        assert type(caught.value) is kind or not isinstance(caught.value, ClientError)
    assert len(script.requests) == requests


def test_an_error_has_what_the_service_said(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALADIN_API_KEY", raising=False)
    steps = [error(401, "unauthorized"), httpx.Response(504, text="<html>"), *[BUSY] * 4]
    script, caught = Script(*steps), list[Any]()
    for _ in range(3):
        with pytest.raises(ServiceError) as failure:
            ask(script, "index")
        caught.append(failure.value)
    facts = [(each.status, each.code, each.request_id) for each in caught[:2]]
    assert facts == [(401, "unauthorized", "r-1"), (504, "http_504", None)]
    # No key was found, and so the variable that it is read from is named.
    assert caught[0].message == "it is unauthorized"
    assert str(caught[0]) == "it is unauthorized: set ALADIN_API_KEY to a key of the service"
    assert caught[2].retry_after_s == 0.0


def test_a_service_is_up_and_ready_or_not(ask: Ask) -> None:
    assert ask(Script(httpx.Response(200, json={})), "health") is True
    assert ask(Script(httpx.ConnectError), "health") is False
    script = Script(error(503, "index_not_ready"))
    assert ask(script, "ready") is False
    assert script.requests[0].url.path == "/below/readyz"


@pytest.mark.parametrize(
    ("variable", "given", "sent"),
    [
        (None, {}, None),
        (None, {"api_key": "one"}, "Bearer one"),
        ("two", {}, "Bearer two"),
        ("two", {"api_key": "one"}, "Bearer one"),
    ],
)
def test_the_key_is_the_one_given_or_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, given: dict[str, Any], sent: str | None
) -> None:
    monkeypatch.delenv("ALADIN_API_KEY", raising=False)
    if variable is not None:
        monkeypatch.setenv("ALADIN_API_KEY", variable)
    script = Script(httpx.Response(200, json={}))
    with AladinClient("http://host", transport=httpx.MockTransport(script), **given) as client:
        client.ready()
    assert script.requests[0].headers.get("authorization") == sent


@pytest.mark.parametrize("client", [AladinClient, AsyncAladinClient])
@pytest.mark.parametrize("url", ["", "host:8000", "ftp://host", "http://"])
def test_a_url_that_is_none_is_refused(client: type, url: str) -> None:
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
    assert inspect.iscoroutinefunction(AsyncAladinClient.index)
