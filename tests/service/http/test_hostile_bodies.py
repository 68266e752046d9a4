"""Bodies that are meant to harm: each gets one clear error, at a small cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import httpx
import pytest

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
