"""Bodies: pictures in every form, limits of bytes and time, and bodies that are meant to harm."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import shutil
import textwrap
import threading
import time
import tracemalloc
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from aladin_index.search.request import decode_base64
from aladin_network.errors import InputError
from aladin_service.http import bodies
from aladin_service.http.access.policy import make_policy
from aladin_service.http.bodies import read_json_object, run_sized
from aladin_service.http.error_responses import error_response
from aladin_service.http.errors import BodiesTooLargeError, JsonTooLargeError
from aladin_service.http.middleware import BodyLimit
from aladin_service.http.shared_state import ServiceState
from aladin_service.observe.metrics import Metrics
from aladin_service.search.job import Answered, SearchJob
from aladin_service.settings import ServiceSettings
from aladin_service.work.admission import QueryQueue
from aladin_service.work.workers import Workers
from tests.service.http.conftest import JSON, Service, http_scope, told

pytestmark = pytest.mark.anyio

DOG = {"text": "a dog"}
PICTURES: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
    "search": ("search/images", lambda image: {"image": image}),
    "all": ("search/images", lambda image: {"all": [{"image": image}, DOG]}),
    "not": ("search/texts", lambda image: {"all": [DOG], "not": [{"image": image}]}),
    "batch": ("search/batch", lambda image: {"queries": [{"target": "images", "image": image}]}),
    "explain": ("explain", lambda image: {"image": image, "id": "plain#0"}),
    "items": ("items/images?on_duplicate=replace", lambda image: {"id": "new", "image": image}),
    "embeddings": ("embeddings", lambda image: {"input": [{"image": image}]}),
    "message": (
        "embeddings",
        lambda image: {"input": {"type": "image_url", "image_url": {"url": image}}},
    ),
    "documents": ("rerank", lambda image: {"query": "a", "documents": ["a", {"image": image}]}),
    "query": ("rerank", lambda image: {"query": {"image": image}, "documents": ["a cat"]}),
}
# An item is added once, and then replaced.
VOLATILE = {"took_ms", "id", "generation", "added", "replaced"}


def forms(data: bytes) -> dict[str, str]:
    """The base64 of a file in all forms that clients send."""
    plain, for_urls = base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode()
    assert plain.endswith("=")
    assert {"-", "_"} <= set(for_urls)
    return {
        "plain": plain,
        "lines": "\r\n".join(textwrap.wrap(plain, 76)),
        "unpadded": plain.rstrip("="),
        "for URLs": for_urls,
        "for URLs, unpadded": for_urls.rstrip("="),
        "data URL": f"data:image/png;base64,{plain}",
        "data URL with a parameter": f"data:image/png;charset=utf-8;base64,{plain}",
        "data URL of an unknown type": f"data:application/octet-stream;base64,{plain}",
        "data URL without a type, unpadded": f"data:;base64,{for_urls.rstrip('=')}",
    }


def lasting(answer: Any) -> Any:
    """An answer without what differs from request to request."""
    if isinstance(answer, list):
        return [lasting(each) for each in answer]
    if isinstance(answer, dict):
        return {name: lasting(each) for name, each in answer.items() if name not in VOLATILE}
    return answer


@pytest.fixture(scope="module")
async def changing(
    service: Service, index_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[httpx.AsyncClient]:
    """Of a service whose index may be changed."""
    index = Path(shutil.copytree(index_folder, tmp_path_factory.mktemp("changing") / "index"))
    async with service(index) as client:
        yield client


@pytest.mark.parametrize("name", PICTURES)
async def test_every_route_reads_every_form_of_a_picture(
    changing: httpx.AsyncClient, photo: bytes, name: str
) -> None:
    path, make = PICTURES[name]
    # Its base64 has padding, and letters that differ in URLs.
    padded = photo + b"\0" * (1 - len(photo) % 3 + 3)
    answers: dict[str, Any] = {}
    for form, text in forms(padded).items():
        answer = await changing.post(f"/v1/{path}", json=make(text))
        assert answer.status_code in (200, 201), (form, answer.text[:300])
        answers[form] = lasting(answer.json())
    assert "error" not in json.dumps(answers["plain"])
    assert all(answer == answers["plain"] for answer in answers.values())


@pytest.mark.parametrize("piece", ["A ", "AA\n", "-_\t", "A", "="])
async def test_a_text_as_long_as_a_body_takes_a_few_times_its_memory(piece: str) -> None:
    text = piece * (4_000_000 // len(piece))
    tracemalloc.start()
    try:
        started = time.process_time()
        decode_base64(text)
        seconds = time.process_time() - started
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 * len(text)
    assert seconds < 1


LIMIT_BYTES = 2000
PICTURE = base64.b64encode(bytes(range(256)) * 40).decode()
LARGE = "a" * 2 * LIMIT_BYTES


@pytest.fixture
async def state() -> ServiceState:
    settings = ServiceSettings(max_json_bytes=LIMIT_BYTES)
    return ServiceState(cast(Workers, None), settings, Metrics(), make_policy(settings))


async def fields(state: ServiceState, body: str, *, many: bool = False) -> list[str]:
    """Read a body, and return the names of its fields."""

    async def receive() -> Message:
        return {"type": "http.request", "body": body.encode(), "more_body": False}

    request = Request(http_scope("/", "POST"), receive)
    return list((await read_json_object(request, state, many=many)).fields)


async def test_json_has_a_limit_of_bytes_besides_the_pictures_of_a_request(
    state: ServiceState,
) -> None:
    whole = json.dumps({"text": "a" * (LIMIT_BYTES - len('{"text": ""}'))})
    wrapped = PICTURE.replace("/", "\\/").replace("A", "A\\n")
    rest = f'"text": "{"b" * LIMIT_BYTES}"'
    within = [whole]
    beyond = [
        whole + " ",
        '{"image": ' + "1" * 2 * LIMIT_BYTES + "}",  # no text
        '{"image": [' + '"",' * LIMIT_BYTES + '""]}',
        '{"image":"",' * LIMIT_BYTES + "}",  # many small ones
        '{"image":"\\"' + "," * 2 * LIMIT_BYTES + '"}',  # base64 has no quotation marks
        '{"text": "\\"image\\":\\"' + LARGE + '"}',  # inside of a text
        '{"image2":"' + LARGE + '"}',
        '{"images":"' + LARGE + '"}',
    ]
    for name, colon in itertools.product(("image", "regions"), (":", " : ", "\n:\t")):
        pictures = [f'"{name}"{colon}"{picture}"' for picture in (PICTURE, wrapped)]
        within += [f'{{"a": [1, {{"b": ""}}], {picture}}}' for picture in pictures]
        within.append(f'{{"image"{colon}"{PICTURE}", "k": 1, "regions"{colon}"{PICTURE}"}}')
        beyond += [f"{{{pictures[0]}, {rest}}}", f"{{{rest}, {pictures[0]}}}"]
        with pytest.raises(InputError, match="Invalid JSON"):  # a picture without an end
            await fields(state, f"{{{pictures[0][:-1]}")
    for body in within:
        assert await fields(state, body) == list(json.loads(body))
    for body in beyond:
        with pytest.raises(JsonTooLargeError, match="2000 bytes of JSON besides photos"):
            await fields(state, body)
    assert await fields(state, whole + " ", many=True) == ["text"]


@pytest.mark.parametrize("values", ["[],", "0,", '{"a":0},', '"a",', '"",'])
async def test_a_large_body_has_a_limit_of_values_that_are_counted_and_not_parsed(
    state: ServiceState, monkeypatch: pytest.MonkeyPatch, values: str
) -> None:
    monkeypatch.delattr(bodies, "from_json")
    with pytest.raises(JsonTooLargeError, match="400000 names and values in JSON"):
        await fields(state, '{"items": [' + values * 400_000 + "0]}", many=True)


async def test_a_full_batch_with_the_largest_filters_is_within_the_limits(
    state: ServiceState,
) -> None:
    spec = {"id": [f"photos/{number:06d}.jpg" for number in range(1000)]}
    query = {"target": "images", "text": "a dog, a cat, and a bird", "k": 10, "filter": spec}
    assert await fields(state, json.dumps({"queries": [query] * 256}), many=True) == ["queries"]


async def test_a_large_body_is_worked_on_beside_the_event_loop_one_at_a_time(
    state: ServiceState,
) -> None:
    large_bytes, running, most = 300_000, 0, 0

    def work() -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.02)
        running -= 1
        return threading.current_thread().name

    own = threading.current_thread().name
    assert await run_sized(state, large_bytes // 2, work) == own
    assert own not in await asyncio.gather(*(run_sized(state, large_bytes, work) for _ in range(5)))
    assert most == 1


class Upload:
    """A request of two parts to an application that answers when it is told to."""

    def __init__(self, limit: BodyLimit, size: int) -> None:
        self.is_read = asyncio.Event()
        self.answer = asyncio.Event()
        half = b"." * (size // 2)
        self._parts: list[Message] = [
            {"type": "http.request", "body": half, "more_body": True},
            {"type": "http.request", "body": half, "more_body": False},
        ]
        scope: Scope = {"type": "http", "headers": [], "upload": self}
        self.done = asyncio.create_task(limit(scope, self._receive, self._send))

    async def _receive(self) -> Message:
        return self._parts.pop(0)

    async def _send(self, message: Message) -> None:
        raise AssertionError(f"unexpected {message}")


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    del send
    while (await receive())["more_body"]:
        pass
    upload: Upload = scope["upload"]
    upload.is_read.set()
    await upload.answer.wait()


async def test_bytes_of_others_count_until_they_are_answered() -> None:
    limit = BodyLimit(application, max_bytes=100, max_bytes_in_all=150, timeout_s=10)
    async with asyncio.timeout(10):
        first = Upload(limit, 90)
        await first.is_read.wait()
        with pytest.raises(BodiesTooLargeError):
            await Upload(limit, 80).done
        second = Upload(limit, 60)  # what was refused is forgotten
        await second.is_read.wait()
        first.answer.set()
        await first.done
        third = Upload(limit, 80)
        await third.is_read.wait()
        for upload in (second, third):
            upload.answer.set()
            await upload.done
    refused = error_response(BodiesTooLargeError(), "id")
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
    assert b'"overloaded","message":"too many bytes' in bytes(refused.body)
    small = BodyLimit(application, max_bytes=100, max_bytes_in_all=10, timeout_s=10)
    for _ in range(3):  # one that is alone is read whatever the limit of all
        alone = Upload(small, 90)
        alone.answer.set()
        await asyncio.wait_for(alone.done, 10)


async def test_a_body_that_trickles_in_or_declares_too_much_is_ended(service: Service) -> None:
    async def trickle() -> AsyncIterator[bytes]:
        for _ in range(1000):
            yield b" "
            await asyncio.sleep(0.01)

    async with service(body_timeout_s=0.2) as client:
        for declared in ("9" * 5000, "9" * 18, "1000000000"):
            headers = JSON | {"content-length": declared}
            large = await client.post("/v1/search/images", content=b"{}", headers=headers)
            assert large.status_code == 413
        for declared in ("", "-1", "\u00b2"):  # no number of bytes: as if none were declared
            kind = (b"content-type", b"application/json")
            headers = [kind, (b"content-length", declared.encode("latin-1"))]
            fits = await client.post("/v1/search/images", content=b"{}", headers=headers)
            assert fits.status_code == 422
        started = time.perf_counter()
        refused = await client.post("/v1/search/images", content=trickle(), headers=JSON)
    assert told(refused)[:2] == (408, "body_timeout")
    assert refused.headers["Connection"] == "close"
    assert time.perf_counter() - started < 5


JSON_FOR_ALL = (
    b'{"text": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    b'{"filter": ' + b'{"and": [' * 50_000 + b"]}" * 50_000 + b', "text": "a"}',
    b'{"text": "a dog", "k": ' + b"9" * 100_000 + b"}",
    b'{"text": "a dog", "fusion": NaN}',
    b'{"id": "\\ud800", "text": "a"}',
    b'{"text": "a dog", "\\u0000": 1}',
    b'{"image": "' + b"A" * 1_000_001 + b'"}',
    b'{"image": "' + b"\xc3\xa9" * 1000 + b'"}',
    b'{"metadata": {"a": ' + b"1" * 5000 + b'}, "id": "a"}',
    b'{"id": "a", "text": "a", "metadata": {"n": NaN}}',
    b"\x00" * 1000,
    b'\xef\xbb\xbf{"text": "a dog"}' + b" " * 1000 + b"{}",
)
NAMES = b",".join(b'"%d":0' % each for each in range(50_000))
# What took hundreds of megabytes to describe in full.
MANY_FAULTS = (
    ("items/texts", b'{"items":[' + b"1," * 50_000 + b"1]}"),
    ("items/texts", b'{"items":[' + b"1," * 90 + b"1]}"),
    ("items/texts", b'{"items":[{' + NAMES + b"}]}"),
    ("search/images", b"{" + NAMES + b"}"),
    ("search/images", b'{"text":"a","' + b"n" * 200_000 + b'":0}'),
    ("search/images", b'{"text":"a","filter":{' + NAMES + b"}}"),
    ("search/images", b'{"text":"a","filter":{"or":[' + b'{"a":0},' * 10_000 + b'{"a":0}]}}'),
    ("search/images", b'{"id":"' + b"i" * 200_000 + b'"}'),
    ("search/texts", b'{"text":"' + b"t" * 200_000 + b'"}'),
    ("search/batch", b'{"queries":[' + b"[]," * 50_000 + b"[]]}"),
    ("search/batch", b'{"' + b"n" * 200_000 + b'":0,"queries":[]}'),
    ("explain.png", b"{" + NAMES + b"}"),
)
FORM = {"content-type": "multipart/form-data; boundary=x"}
END = b"--x--\r\n"
OPEN = b'--x\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\na\r\n--x'


def part(name: str, value: bytes, headers: str = "", file: str = "") -> bytes:
    """One part of a multipart body."""
    named = f'; filename="{file}"' if file else ""
    head = f'--x\r\nContent-Disposition: form-data; name="{name}"{named}\r\n{headers}\r\n'
    return head.encode() + value + b"\r\n"


FORMS = (
    (b"", 422),
    (END, 422),
    (part("text", b"a dog"), 422),  # without an end
    (part("text", b"a dog", "X: " + "a" * 1_000_000 + "\r\n") + END, 422),
    (part("text", b"a dog", "X: 1\r\n" * 100_000) + END, 422),
    (b"".join(part(f"a{number}", b"1") for number in range(5000)) + END, 422),
    (b"".join(part("image", b"1", file="a") for _ in range(5000)) + END, 422),
    (part("text", b"\xff\xfe") + END, 200),  # taken for Latin-1
    (part("text", b"a" * 2_000_000) + END, 422),
    (part("filter", b'{"a":' * 50_000) + part("text", b"a") + END, 422),
    (part("image", b"no photo", file="../../etc/passwd\0") + END, 415),
    (part("text", b"a dog", "Content-Transfer-Encoding: base64\r\n") + END, 200),
    (b"\r\n" * 100_000, 422),
    *(  # refused before they are taken apart
        (OPEN + filling * (12_000_000 // len(filling)) + b"\r\n" + END, 422)
        for filling in (b"\r\n--xA", b"\r\n--x-A", b" ")
    ),
)


async def test_hostile_bodies_get_a_short_answer_soon(client: httpx.AsyncClient) -> None:
    in_json = [
        *itertools.product(("search/images", "items/texts"), JSON_FOR_ALL),
        *MANY_FAULTS,
    ]
    asked = [(path, content, JSON, {415, 422}) for path, content in in_json]
    asked += [("search/images", content, FORM, {status}) for content, status in FORMS]
    for path, content, headers, statuses in asked:
        started = time.process_time()
        answer = await client.post(f"/v1/{path}", content=content, headers=headers)
        assert answer.status_code in statuses, (content[:50], path)
        assert answer.is_success or len(answer.content) < 4000
        assert time.process_time() - started < 2, (content[:50], path)
    unknown = {f"field {number}": 0 for number in range(1000)}
    queries = [{"target": "images", **unknown}, {"target": "images", "id": "i" * 5000}] * 20
    batch = await client.post("/v1/search/batch", json={"queries": queries})
    assert [each["status"] for each in batch.json()["answers"]] == [422] * 40
    assert len(batch.content) < 40 * 1000
    for path in ("items/images/{}", "images/{}", "explain.png?id=a&query_id={}"):
        refused = await client.get("/v1/" + path.format("i" * 4097))
        unknown_id = await client.get("/v1/" + path.format("i" * 4096))
        assert (refused.status_code, "4096" in told(refused)[2]) == (422, True)
        assert (unknown_id.status_code, len(unknown_id.content) < 2500) == (404, True)
        assert len(refused.content) < 500


async def test_what_a_worker_would_refuse_does_not_wait_for_one(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[SearchJob] = []
    answer = QueryQueue.answer

    async def noted(self: QueryQueue, job: SearchJob) -> Answered:
        asked.append(job)
        return await answer(self, job)

    monkeypatch.setattr(QueryQueue, "answer", noted)
    async with service() as client:
        for body, status in (
            ({"text": "a", "filter": {"a": [0] * 1001}}, 422),
            ({"text": "a" * 2001}, 422),
            ({"text": "a dog", "filter": {"a": [0] * 1000}}, 200),
        ):
            assert (await client.post("/v1/search/images", json=body)).status_code == status
            assert len(asked) == (status == 200)
