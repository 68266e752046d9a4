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
from tests.service.http.conftest import http_scope

pytestmark = pytest.mark.anyio


class FullWorkers:
    """Refuse texts while they are full."""

    def __init__(self, *, full: bool = True) -> None:
        self.full = full
        self.asked: list[QueueName] = []

    def refusal(self, queue: QueueName) -> OverloadedError | None:
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
    more = [(b"content-type", b"application/json"), *headers]
    scope = http_scope(path, "POST", headers=more, state={"request_id": "one"}, app=app)
    await SearchGate(framework, workers)(scope, receive, send)
    body = json.loads(answers[1]["body"])
    return answers[0]["status"], body | dict(answers[0]["headers"]), scope


@pytest.mark.parametrize("path", ["/v1/search/images", "/v1/search/texts"])
async def test_a_short_search_is_refused_unread_while_there_is_no_room(path: str) -> None:
    workers = FullWorkers()
    status, answer, scope = await ask(workers, path, (b"content-length", b"2048"))
    assert (status, answer["error"]["code"], answer[b"retry-after"]) == (429, "overloaded", b"1")
    assert answer["error"]["request_id"] == "one"
    assert (workers.asked, scope["route"].path) == (["text"], path)  # by which it is counted
    workers = FullWorkers(full=False)
    status, answer, scope = await ask(workers, path, (b"content-length", b"2048"))
    assert (status, answer["error"]["message"], workers.asked) == (422, READ, ["text"])
    assert scope["route"].path == path


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
    assert status == 200 or answer["error"]["message"] == READ
