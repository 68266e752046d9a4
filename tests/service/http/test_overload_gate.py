"""Searches that would find no place are refused before anything is made of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from aladin_network.errors import OverloadedError
from aladin_service.http.middleware import OverloadGate
from aladin_service.search.job import QueueName

pytestmark = pytest.mark.anyio


class FullWorkers:
    """Refuse texts while they are full."""

    def __init__(self, *, full: bool = True) -> None:
        self.full = full
        self.asked: list[QueueName] = []

    def refusal(self, queue: QueueName) -> OverloadedError | None:
        """Refuse, or not."""
        self.asked.append(queue)
        return OverloadedError(0.3) if self.full else None


async def ask(workers: Any, path: str, *headers: tuple[bytes, bytes]) -> tuple[int, Any, Scope]:
    """Send a request whose body must not be read before its route; return what came of it."""
    answers: list[Message] = []

    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        await JSONResponse({})(scope, receive, send)

    async def receive() -> Message:
        raise AssertionError("the body was read")

    async def send(message: Message) -> None:
        answers.append(message)

    state = {"request_id": "one"}
    scope: Scope = {"type": "http", "path": path, "headers": [*headers], "state": state}
    await OverloadGate(route, workers)(scope, receive, send)
    body = json.loads(answers[1]["body"])
    return answers[0]["status"], body | dict(answers[0]["headers"]), scope


@pytest.mark.parametrize("path", ["/v1/search/images", "/v1/search/texts"])
async def test_a_short_search_is_refused_unread(path: str) -> None:
    workers = FullWorkers()
    status, answer, scope = await ask(workers, path, (b"content-length", b"2048"))
    assert status == 429
    assert answer["error"]["code"] == "overloaded"
    assert answer["error"]["request_id"] == "one"
    assert answer[b"retry-after"] == b"1"
    assert workers.asked == ["text"]
    assert scope["state"]["route"] == path  # by which it is counted


@pytest.mark.parametrize(
    ("path", "header"),
    [
        ("/v1/search/images", (b"content-length", b"2049")),  # it may hold a photo
        ("/v1/search/images", (b"transfer-encoding", b"chunked")),
        ("/v1/search/batch", (b"content-length", b"100")),  # takes places as they come free
        ("/v1/items/texts", (b"content-length", b"100")),
    ],
)
async def test_whatever_may_find_a_place_goes_on(path: str, header: tuple[bytes, bytes]) -> None:
    workers = FullWorkers()
    status, _, _ = await ask(workers, path, header)
    assert (status, workers.asked) == (200, [])


async def test_with_room_a_search_goes_on() -> None:
    workers = FullWorkers(full=False)
    status, _, _ = await ask(workers, "/v1/search/images", (b"content-length", b"20"))
    assert (status, workers.asked) == (200, ["text"])
