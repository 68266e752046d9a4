"""ASGI middleware for access control, and the security headers of all responses.

`AccessControl` authenticates and authorizes a request before its body is read. The headers restrict
what a browser may do with a response.
"""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple

from starlette.datastructures import Headers
from starlette.routing import compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aladin_network.errors import AladinError
from aladin_service.api_key import ApiKey
from aladin_service.api_key import Scope as KeyScope
from aladin_service.http.access.audit import WriteRecord, log_write
from aladin_service.http.access.origins import check_site, is_own_host
from aladin_service.http.access.policy import AccessPolicy, KeyRing
from aladin_service.http.access.rate_limits import TokenBucket
from aladin_service.http.error_responses import error_response, unknown_route_response
from aladin_service.http.errors import (
    MissingScopeError,
    RateLimitedError,
    TooManyWrongKeysError,
    UnauthorizedError,
    UnknownHostError,
)

_BY_PATH: dict[str, dict[str, Needed]] = {}

# Longest logged client: an address fits; a proxy may pass on what a client wrote instead of one.
SHOWN_CLIENT_CHARS = 64

# Methods that change nothing and are cheap enough for a page that cannot read the answer.
_SAFE_METHODS = ("GET", "HEAD")

_NOTHING = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
_PAGE = (
    "script-src 'self'; style-src 'self'; connect-src 'self'; "
    # Photos that require a key are fetched and shown as blobs, as is a query photo.
    "img-src 'self' blob:"
)
# Headers of every answer, errors included; those of the pages let them load our own files.
DATA_HEADERS = [
    # Browsers use the declared content type of an answer, without inspecting its contents.
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    # Other sites cannot show our photos; pages of allowed origins read them with fetch.
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", _NOTHING.encode()),
]
_PAGE_HEADERS = [*DATA_HEADERS[:-1], (b"content-security-policy", f"{_NOTHING}; {_PAGE}".encode())]
HEADERS_BY_PATH = dict.fromkeys(("/", "/docs"), _PAGE_HEADERS)


class Needed(NamedTuple):
    """One row of the access table.

    Attributes:
        method: HTTP method.
        path: Path of the route in the route's notation.
        scope: Scope that a request needs, or "open" if it needs none.
    """

    method: str
    path: str
    scope: KeyScope | Literal["open"]


# Requests that are not listed here are rejected, even if there is a route: a new route stays closed
# until it is listed.
NEEDED = (
    Needed("POST", "/v1/search/images", "read"),
    Needed("POST", "/v1/search/texts", "read"),
    Needed("POST", "/v1/search/batch", "read"),
    Needed("GET", "/v1/explain", "read"),
    Needed("POST", "/v1/explain", "read"),
    Needed("GET", "/v1/explain.png", "read"),
    Needed("POST", "/v1/explain.png", "read"),
    Needed("POST", "/v1/rerank", "read"),
    Needed("POST", "/v2/rerank", "read"),
    Needed("POST", "/rerank", "read"),
    Needed("POST", "/v1/embeddings", "read"),
    Needed("GET", "/v1/models", "read"),
    Needed("GET", "/v1/models/{model:path}", "read"),
    Needed("POST", "/mcp", "read"),
    Needed("GET", "/v1/items/{target}/{item_id:path}", "read"),
    Needed("GET", "/v1/items/{target}", "read"),
    Needed("POST", "/v1/items/{target}", "write"),
    Needed("DELETE", "/v1/items/{target}/{item_id:path}", "write"),
    Needed("GET", "/v1/images/{item_id:path}", "read"),
    # Whoever may write gets the files as they are, see `routes.archive`.
    Needed("POST", "/v1/images.zip", "read"),
    Needed("GET", "/v1/index", "read"),
    Needed("GET", "/v1/index/fields", "read"),
    # It shows what others searched for.
    Needed("GET", "/healthz", "open"),
    Needed("GET", "/readyz", "open"),
    Needed("GET", "/metrics", "metrics"),
    # The page and the API description disclose nothing of the index; the page asks for a key.
    Needed("GET", "/", "open"),
    Needed("GET", "/page/limits.json", "open"),
    Needed("GET", "/page/{name}", "open"),
    Needed("GET", "/docs", "open"),
    Needed("GET", "/openapi.json", "open"),
)


def path_pattern(path: str) -> re.Pattern[str]:
    """Compile the path of a route.

    The framework's own patterns accept a line break behind a path, and none inside a part of it.
    """
    return re.compile(compile_path(path)[0].pattern.removesuffix("$") + r"\Z", re.DOTALL)


for _row in NEEDED:
    _BY_PATH.setdefault(_row.path, {})[_row.method] = _row
    if _row.method == "GET":
        _BY_PATH[_row.path]["HEAD"] = _row
_PATTERNS = [(path_pattern(path), rows) for path, rows in _BY_PATH.items() if "{" in path]


def rows_of(path: str) -> dict[str, Needed]:
    """Return the rows of a path by method; empty if the service has no such path."""
    exact = _BY_PATH.get(path)
    if exact is not None:
        return exact
    return next((rows for pattern, rows in _PATTERNS if pattern.match(path)), {})


def presented_key(headers: Headers) -> str | None:
    """Return the secret that a request carries, or None if there is none.

    Several that differ are refused: if a proxy checked one and the service another, neither
    check would be effective.
    """
    given = set(headers.getlist("x-api-key"))
    for value in headers.getlist("authorization"):
        kind, _, secret = value.partition(" ")
        if kind.lower() != "bearer":
            raise UnauthorizedError("expected Authorization: Bearer KEY, got another scheme")
        given.add(secret.strip())
    if len(given) > 1:
        raise UnauthorizedError("the request contains different keys")
    return given.pop() if given else None


class AccessControl:
    """Passes a request to its route, or rejects it.

    It looks at, in this order: the table's row for the route; the page that sent the request; its
    key; what the key, or whoever has none, may do; without a key its host; its client's rate.
    """

    def __init__(self, app: ASGIApp, policy: AccessPolicy) -> None:
        self._app = app
        self._policy = policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        state["key"] = state["limit"] = None
        headers = Headers(scope=scope)
        rows = rows_of(scope["path"])
        needed = rows.get(scope["method"])
        if needed is None:
            response = unknown_route_response(
                scope["method"], scope["path"], tuple(rows), state["request_id"]
            )
            await response(scope, receive, send)
        elif needed.scope == "open":
            await self._app(scope, receive, send)
        elif needed.scope == "write":
            await self._audited(headers, scope, receive, send)
        else:
            await self._checked(needed.scope, headers, scope, receive, send)

    async def _checked(
        self, needed: KeyScope, headers: Headers, scope: Scope, receive: Receive, send: Send
    ) -> None:
        policy, state = self._policy, scope["state"]
        try:
            if scope["method"] not in _SAFE_METHODS:
                check_site(headers, policy.origins)
            key = None if policy.keys is None else self._key(policy.keys, headers, scope)
            state["key"] = key
            limit = state["limit"] = self._admit(needed, key, headers, scope)
            if limit is not None:
                limit.take(1)
        except AladinError as error:
            await error_response(error, state["request_id"])(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _admit(
        self, needed: KeyScope, key: ApiKey | None, headers: Headers, scope: Scope
    ) -> TokenBucket | None:
        """Return the rate limit of a request that may do what it wants, or None if it has none."""
        policy = self._policy
        if key is not None and policy.keys is not None:
            if needed not in key.scopes:
                raise MissingScopeError(needed, key.name)
            return policy.keys.bucket(key)
        if needed not in policy.anonymous:
            if policy.keys is not None:
                raise UnauthorizedError("an API key is required", has_key=False)
            raise MissingScopeError(needed, None)
        host = headers.get("host", "")
        if not is_own_host(host, policy.hosts):
            raise UnknownHostError(host)
        return None if policy.clients is None else policy.clients.of(_client(scope))

    def _key(self, keys: KeyRing, headers: Headers, scope: Scope) -> ApiKey | None:
        try:
            secret = presented_key(headers)
            if secret is None:
                return None
            key = keys.find(secret)
            if key is None:
                raise UnauthorizedError("invalid API key")
        except UnauthorizedError:
            self._count_wrong_key(scope)
            raise
        return key

    def _count_wrong_key(self, scope: Scope) -> None:
        """Count rejected keys only: other clients with the same address may have accepted keys."""
        try:
            self._policy.wrong_keys.of(_client(scope)).take(1)
        except RateLimitedError as error:
            raise TooManyWrongKeysError(error.retry_after_s) from None

    async def _audited(self, headers: Headers, scope: Scope, receive: Receive, send: Send) -> None:
        state: dict[str, Any] = scope["state"]
        record = state["write_record"] = WriteRecord()
        status: int | None = None

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._checked("write", headers, scope, receive, send_and_note)
        finally:
            key: ApiKey | None = state["key"]
            log_write(
                record,
                key_name=None if key is None else key.name,
                client=_client(scope)[:SHOWN_CLIENT_CHARS],
                method=scope["method"],
                path=scope["path"],
                status=status,
            )


def _client(scope: Scope) -> str:
    """Return the address of a request's client; there is none for a Unix socket."""
    client: tuple[str, int] | None = scope.get("client")
    return "" if client is None else client[0]
