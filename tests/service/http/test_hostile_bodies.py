"""Bodies that are meant to harm: each gets one clear error, at a small cost."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx
import pytest

from aladin_service.search.job import Answered, SearchJob
from aladin_service.work.queues import QueryQueue

pytestmark = pytest.mark.anyio

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]
PATHS = ("/v1/search/images", "/v1/items/texts")
BOUNDARY = "x" * 10


def part(name: str, value: bytes, headers: str = "", file: str = "") -> bytes:
    """One part of a multipart body."""
    named = f'; filename="{file}"' if file else ""
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{named}\r\n{headers}\r\n'
    return head.encode() + value + b"\r\n"


END = f"--{BOUNDARY}--\r\n".encode()


BROKEN_JSON = (
    b'{"text": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    b'{"filter": ' + b'{"and": [' * 50_000 + b"]}" * 50_000 + b', "text": "a"}',
    b'{"text": "a dog", "k": ' + b"9" * 100_000 + b"}",
    b'{"text": "a dog", "k": 1e999}',
    b'{"text": "a dog", "fusion": NaN}',
    b'{"text": "\xff\xfe"}',
    b'{"text": "\\ud800"}',
    b'{"text": "a dog", "k": -0.0}',
    b'{"text": "a dog", "\\u0000": 1}',
    b'{"image": "' + b"A" * 1_000_001 + b'"}',
    b'{"image": "' + b"\xc3\xa9" * 1000 + b'"}',
    b'{"metadata": {"a": ' + b"1" * 5000 + b'}, "id": "a"}',
    b"\x00" * 1000,
    b'\xef\xbb\xbf{"text": "a dog"}' + b" " * 1000 + b"{}",
    b"[" * 100_000,
    b"null",
    b"",
)


@pytest.mark.parametrize("path", PATHS)
async def test_json(service: Service, path: str) -> None:
    async with service() as client:
        for content in BROKEN_JSON:
            started = time.perf_counter()
            response = await client.post(
                path, content=content, headers={"content-type": "application/json"}
            )
            assert response.status_code in (415, 422), (content[:50], response.text)
            assert len(response.content) < 5000
            assert time.perf_counter() - started < 5


MANY = 50_000
# What took hundreds of megabytes to describe if the body was large, and was described in full.
MANY_FAULTS: tuple[tuple[str, bytes], ...] = (
    ("/v1/items/texts", b'{"items":[' + b"1," * MANY + b"1]}"),
    ("/v1/items/texts", b'{"items":[' + b"1," * 90 + b"1]}"),
    ("/v1/search/images", b"{" + b",".join(b'"%d":0' % each for each in range(MANY)) + b"}"),
    ("/v1/search/images", b'{"text":"a","' + b"n" * 200_000 + b'":0}'),
    (
        "/v1/items/texts",
        b'{"items":[{' + b",".join(b'"%d":0' % each for each in range(MANY)) + b"}]}",
    ),
    (
        "/v1/explain.png",
        b"{" + b",".join(b'"%d":0' % each for each in range(MANY)) + b"}",
    ),
    (
        "/v1/search/images",
        b'{"text":"a","filter":{' + b",".join(b'"%d":0' % each for each in range(MANY)) + b"}}",
    ),
    ("/v1/search/images", b'{"text":"a","filter":{"or":[' + b'{"a":0},' * 10_000 + b'{"a":0}]}}'),
    ("/v1/search/images", b'{"id":"' + b"i" * 200_000 + b'"}'),
    ("/v1/search/texts", b'{"text":"' + b"t" * 200_000 + b'"}'),
    ("/v1/search/batch", b'{"queries":[' + b"[]," * MANY + b"[]]}"),
    ("/v1/search/batch", b'{"' + b"n" * 200_000 + b'":0,"queries":[]}'),
)


@pytest.mark.parametrize(("path", "content"), MANY_FAULTS)
async def test_many_faults_get_a_short_answer(service: Service, path: str, content: bytes) -> None:
    async with service() as client:
        response = await client.post(
            path, content=content, headers={"content-type": "application/json"}
        )
    assert response.status_code == 422, response.text[:500]
    assert response.json()["error"]["code"] in ("invalid_field", "text_too_long")
    assert len(response.content) < 4000


async def test_each_search_of_a_batch_has_a_short_error(service: Service) -> None:
    unknown = {f"field {number}": 0 for number in range(1000)}
    queries = [{"target": "images", **unknown}, {"target": "images", "id": "i" * 5000}]
    async with service() as client:
        response = await client.post("/v1/search/batch", json={"queries": queries * 20})
    assert response.status_code == 200
    assert [answer["status"] for answer in response.json()["answers"]] == [422] * 40
    assert len(response.content) < 40 * 1000


@pytest.mark.parametrize(
    "path",
    [
        "/v1/items/images/{}",
        "/v1/images/{}",
        "/v1/explain.png?text=a&id={}",
        "/v1/explain.png?id=a&query_id={}",
    ],
)
async def test_long_ids_are_refused_and_not_repeated(service: Service, path: str) -> None:
    async with service() as client:
        refused = await client.get(path.format("i" * 4097))
        unknown = await client.get(path.format("i" * 4096))
    assert refused.status_code == 422
    assert "4096" in refused.json()["error"]["message"]
    assert unknown.status_code == 404
    assert len(refused.content) < 500
    assert len(unknown.content) < 2500


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
        for body in (
            {"text": "a", "filter": {"a": [0] * 1001}},
            {"text": "a", "filter": {"a": {"gt": []}}},
            {"text": "a" * 2001},
        ):
            assert (await client.post("/v1/search/images", json=body)).status_code == 422
        assert not asked
        body = {"text": "a dog", "filter": {"a": [0] * 1000}}
        assert (await client.post("/v1/search/images", json=body)).status_code == 200
    assert len(asked) == 1


FORMS = (
    (b"", 422),
    (END, 422),
    (part("text", b"a dog"), 422),  # without an end
    (part("text", b"a dog", "X: " + "a" * 1_000_000 + "\r\n") + END, 422),
    (part("text", b"a dog", "X: 1\r\n" * 100_000) + END, 422),
    (b"".join(part(f"a{number}", b"1") for number in range(5000)) + END, 422),
    (b"".join(part("image", b"1", file="a") for _ in range(5000)) + END, 422),
    (part("text", b"a") * 2 + END, 422),
    (part("text", b"\xff\xfe") + END, 200),  # taken for Latin-1
    (part("text", b"a" * 2_000_000) + END, 422),
    (part("filter", b"[" * 100_000) + part("text", b"a") + END, 422),
    (part("filter", b'{"a":' * 50_000) + part("text", b"a") + END, 422),
    (part("k", b"1" * 50_000) + part("text", b"a") + END, 422),
    (part("image", b"a photo") + END, 422),
    (part("image", b"no photo", file="../../etc/passwd\0") + END, 415),
    (part("text", b"a dog", "Content-Transfer-Encoding: base64\r\n") + END, 200),
    (b"\r\n" * 100_000, 422),
    (b"-" * 100_000, 422),
)


async def test_forms(service: Service) -> None:
    kind = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
    async with service() as client:
        for content, status in FORMS:
            started = time.perf_counter()
            response = await client.post("/v1/search/images", content=content, headers=kind)
            assert response.status_code == status, (content[:80], response.text)
            assert len(response.content) < 50_000
            assert time.perf_counter() - started < 5


@pytest.mark.parametrize(
    ("filling", "says"),
    [(b"\r\n--xA", "at most 26 parts"), (b"\r\n--x-A", "at most 26 parts"), (b" ", "white space")],
)
async def test_a_form_of_delimiters_is_refused_before_it_is_taken_apart(
    service: Service, filling: bytes, says: str
) -> None:
    head = b'--x\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\na\r\n--x'
    content = head + filling * (12_000_000 // len(filling)) + b"\r\n--x--\r\n"
    async with service() as client:
        started = time.process_time()
        response = await client.post(
            "/v1/search/images",
            content=content,
            headers={"content-type": "multipart/form-data; boundary=x"},
        )
        seconds = time.process_time() - started
    assert response.status_code == 422
    assert says in response.json()["error"]["message"]
    assert seconds < 2


@pytest.mark.parametrize(
    "kind",
    [
        "multipart/form-data",
        "multipart/form-data; boundary=",
        f"multipart/form-data; boundary={'b' * 100_000}",
        "multipart/form-data; boundary=é",
        "application/json; charset=utf-16",
        "application/x-www-form-urlencoded",
        ";",
    ],
)
async def test_content_types(service: Service, kind: str) -> None:
    async with service() as client:
        response = await client.post(
            "/v1/search/images",
            content=b"--b--",
            headers=[("content-type", kind.encode("latin-1"))],
        )
    assert response.status_code in (415, 422), response.text


@pytest.mark.parametrize("declared", ["9" * 5000, "9" * 18, "1000000000"])
async def test_declared_lengths(service: Service, declared: str) -> None:
    async with service() as client:
        response = await client.post(
            "/v1/search/images",
            content=b"{}",
            headers={"content-type": "application/json", "content-length": declared},
        )
    assert response.status_code == 413


async def test_a_body_that_trickles_in_is_ended(service: Service) -> None:
    async def trickle() -> AsyncIterator[bytes]:
        for _ in range(1000):
            yield b" "
            await asyncio.sleep(0.01)

    async with service(body_timeout_s=0.2) as client:
        started = time.perf_counter()
        response = await client.post(
            "/v1/search/images", content=trickle(), headers={"content-type": "application/json"}
        )
        assert response.status_code == 408
        assert response.json()["error"]["code"] == "body_timeout"
        assert response.headers["Connection"] == "close"
        assert time.perf_counter() - started < 5


async def test_metadata_has_a_limit(service: Service, index_folder: Path, tmp_path: Path) -> None:
    index = Path(shutil.copytree(index_folder, tmp_path / "index"))
    metadata = {f"field {number:03d}": "x" * 40 for number in range(1000)}
    items = [{"id": f"item {number}", "text": "a dog", "metadata": metadata} for number in range(9)]
    async with service(index) as client:
        added = await client.post("/v1/items/texts", json={"items": items})
        assert added.status_code == 201, added.text
        assert (await client.get("/v1/items/texts/item 8")).json()["metadata"] == metadata
        for large, says in (
            ({"notes": "x" * 65_536}, "item 'large': metadata: expected at most 65536 bytes"),
            (metadata | {"one more": 0}, "expected at most 1000 fields, got 1001"),
            ({"a": json.loads("[" * 32 + "]" * 32)}, "expected at most 32 levels"),
        ):
            item = {"id": "large", "text": "a dog", "metadata": large}
            refused = await client.post("/v1/items/texts", json=item)
            assert refused.status_code == 422
            assert says in refused.json()["error"]["message"]
        assert (await client.get("/v1/items/texts/large")).status_code == 404
    async with service(index, max_metadata_bytes=70_000) as client:
        item = {"id": "large", "text": "a dog", "metadata": {"notes": "x" * 65_536}}
        assert (await client.post("/v1/items/texts", json=item)).status_code == 201
