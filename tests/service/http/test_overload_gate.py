"""Searches that would find no place are refused before anything is made of them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from aladin_network.errors import InputError, OverloadedError
from aladin_service.http.routes.search import SearchGate
from aladin_service.search.job import QueueName

pytestmark = pytest.mark.anyio

SEARCHES = ("/v1/search/images", "/v1/search/texts")


class FullWorkers:
    """Refuse texts while they are full."""

    def __init__(self, *, full: bool = True) -> None:
        self.full = full
        self.asked: list[QueueName] = []

    def refusal(self, queue: QueueName) -> OverloadedError | None:
        """Refuse, or not."""
        self.asked.append(queue)
        return OverloadedError(0.3) if self.full else None


READ = "its route began to read it"


async def ask(workers: Any, path: str, *headers: tuple[bytes, bytes]) -> tuple[int, Any, Scope]:
    """Send a request whose body fails when its route reads it; return what came of it."""
    answers: list[Message] = []

    async def framework(scope: Scope, receive: Receive, send: Send) -> None:
        await JSONResponse({})(scope, receive, send)

    async def receive() -> Message:
        raise InputError(READ)

    async def send(message: Message) -> None:
        answers.append(message)

    app = SimpleNamespace(state=SimpleNamespace(service=None))
    state = {"request_id": "one"}
    scope: Scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": [(b"content-type", b"application/json"), *headers],
        "state": state,
        "app": app,
    }
    await SearchGate(framework, workers)(scope, receive, send)
    body = json.loads(answers[1]["body"])
    return answers[0]["status"], body | dict(answers[0]["headers"]), scope


@pytest.mark.parametrize("path", SEARCHES)
async def test_a_short_search_is_refused_unread(path: str) -> None:
    workers = FullWorkers()
    status, answer, scope = await ask(workers, path, (b"content-length", b"2048"))
    assert status == 429
    assert answer["error"]["code"] == "overloaded"
    assert answer["error"]["request_id"] == "one"
    assert answer[b"retry-after"] == b"1"
    assert workers.asked == ["text"]
    assert scope["route"].path == path  # by which it is counted


@pytest.mark.parametrize(
    ("path", "header", "status"),
    [
        # It may hold a photo.
        ("/v1/search/images", (b"content-length", b"2049"), 422),
        ("/v1/search/images", (b"transfer-encoding", b"chunked"), 422),
        # Takes places as they come free.
        ("/v1/search/batch", (b"content-length", b"100"), 200),
        ("/v1/items/texts", (b"content-length", b"100"), 200),
    ],
)
async def test_whatever_may_find_a_place_goes_on(
    path: str, header: tuple[bytes, bytes], status: int
) -> None:
    workers = FullWorkers()
    answered, answer, _ = await ask(workers, path, header)
    assert (answered, workers.asked) == (status, [])
    if status == 422:
        assert answer["error"]["message"] == READ


@pytest.mark.parametrize("path", SEARCHES)
async def test_with_room_a_search_is_read_by_its_route(path: str) -> None:
    workers = FullWorkers(full=False)
    status, answer, scope = await ask(workers, path, (b"content-length", b"20"))
    assert (status, answer["error"]["message"], workers.asked) == (422, READ, ["text"])
    assert scope["route"].path == path
