"""Bodies of all requests together; those of one are in `test_requests`."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Message, Receive, Scope, Send

from aladin_service.http.error_responses import error_response
from aladin_service.http.errors import BodiesTooLargeError
from aladin_service.http.middleware import ENDLESS_BYTES, BodyLimit, declared_length

pytestmark = pytest.mark.anyio

MAX_BYTES, IN_ALL = 100, 150


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


@pytest.fixture
async def limit() -> BodyLimit:
    return BodyLimit(application, max_bytes=MAX_BYTES, max_bytes_in_all=IN_ALL, timeout_s=10)


async def test_what_others_have_sent_counts_until_they_are_answered(limit: BodyLimit) -> None:
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


async def test_one_that_is_alone_is_read_whatever_the_limit_of_all() -> None:
    limit = BodyLimit(application, max_bytes=MAX_BYTES, max_bytes_in_all=10, timeout_s=10)
    async with asyncio.timeout(10):
        for _ in range(3):
            upload = Upload(limit, 90)
            await upload.is_read.wait()
            upload.answer.set()
            await upload.done


async def test_whoever_is_refused_may_come_again() -> None:
    answer = error_response(BodiesTooLargeError(), "id")
    assert answer.status_code == 429
    assert answer.headers["Retry-After"] == "1"
    assert b'"overloaded","message":"too many bytes' in bytes(answer.body)


@pytest.mark.parametrize(
    ("header", "length"),
    [
        (b"0", 0),
        (b"2048", 2048),
        (b"9" * 18, 10**18 - 1),
        (b"9" * 19, ENDLESS_BYTES),
        (b"1" * 10_000, ENDLESS_BYTES),
        (b"", None),
        (b"-1", None),
        (b"many", None),
        ("²".encode("latin-1"), None),
    ],
)
async def test_a_declared_length_is_a_number_of_bytes_or_nothing(
    header: bytes, length: int | None
) -> None:
    assert declared_length({"headers": [(b"content-length", header)]}) == length


async def test_a_body_that_comes_in_pieces_declares_no_length() -> None:
    assert declared_length({"headers": [(b"transfer-encoding", b"chunked")]}) is None
