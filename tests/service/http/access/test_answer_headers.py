"""Headers that every answer has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from aladin_service.http.access.control import AccessControl
from aladin_service.http.access.policy import make_policy
from aladin_service.http.middleware import RequestContext
from aladin_service.observe.metrics import Metrics
from aladin_service.settings import ServiceSettings

pytestmark = pytest.mark.anyio


def policy_of(header: str) -> dict[str, list[str]]:
    """Take a Content-Security-Policy apart."""
    parts = [part.split() for part in header.split(";")]
    policy = {name: sources for name, *sources in parts}
    assert len(policy) == len(parts)  # a browser ignores what is said a second time
    return policy


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 200),
        ("GET", "/page/page.js", 200),
        ("GET", "/docs", 200),
        ("GET", "/healthz", 200),
        ("POST", "/v1/search/images", 401),
        ("GET", "/v1/nothing", 404),
        ("PUT", "/", 405),
    ],
)
async def test_every_answer_has_them_once(
    door: Any, keys_file: Path, keys: dict[str, str], method: str, path: str, status: int
) -> None:
    assert keys
    async with door(keys_file=keys_file) as client:
        answer = await client.request(method, path)
    assert answer.status_code == status
    assert answer.headers.get_list("x-content-type-options") == ["nosniff"]
    assert answer.headers.get_list("referrer-policy") == ["no-referrer"]
    assert answer.headers.get_list("cross-origin-resource-policy") == ["same-origin"]
    (header,) = answer.headers.get_list("content-security-policy")
    policy = policy_of(header)
    for directive in ("default-src", "frame-ancestors", "base-uri", "form-action"):
        assert policy[directive] == ["'none'"]
    assert "server" not in answer.headers
    # None differs by who asks; files of the page by whether they may be compressed.
    assert answer.headers.get("vary", "Accept-Encoding") == "Accept-Encoding"


async def test_so_has_an_answer_to_an_unforeseen_failure(door: Any, workers: Any) -> None:
    workers.failure = RuntimeError("secret internals")
    async with door() as client:
        answer = await client.post("/v1/search/images", json={"text": "a dog"})
    assert answer.status_code == 500
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "content-security-policy" in answer.headers
    assert "secret" not in answer.text


CLOSED = {
    "default-src": ["'none'"],
    "frame-ancestors": ["'none'"],
    "base-uri": ["'none'"],
    "form-action": ["'none'"],
}
PAGE = CLOSED | {
    "script-src": ["'self'"],
    "style-src": ["'self'"],
    "connect-src": ["'self'"],
    "img-src": ["'self'", "blob:"],
}


@pytest.mark.parametrize(
    ("path", "policy"),
    [
        ("/", PAGE),
        ("/docs", PAGE),
        ("/page/page.js", CLOSED),
        ("/healthz", CLOSED),
        ("/v1/nothing", CLOSED),
    ],
)
async def test_what_each_page_may_load(door: Any, path: str, policy: dict[str, list[str]]) -> None:
    async with door() as client:
        answer = await client.get(path)
    assert policy_of(answer.headers["content-security-policy"]) == policy


async def test_what_is_no_request_reaches_the_application() -> None:
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del receive, send
        seen.append(scope)

    async def nothing(*_: object) -> Any:
        pytest.fail("nothing is received and nothing is sent")

    controlled = AccessControl(app, make_policy(ServiceSettings()))
    wrapped = RequestContext(controlled, Metrics())
    await wrapped({"type": "lifespan"}, nothing, nothing)
    assert seen == [{"type": "lifespan"}]
