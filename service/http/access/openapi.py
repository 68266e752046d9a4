"""The OpenAPI document says which requests need a key, from the table that decides it."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from service.http.access.policy import AccessPolicy
from service.http.access.scopes import rows_of
from service.http.errors import error_docs

_SCHEMES = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "A key made by `aladin key add`.",
    },
    "header": {
        "type": "apiKey",
        "in": "header",
        "name": "X-API-Key",
        "description": "The same key, for clients that cannot set Authorization.",
    },
}


def describe_access(app: FastAPI, policy: AccessPolicy) -> None:
    """Serve an application's document, which names the keys and scopes that its requests need.

    The schemes are described for a service without keys too, so that a client generated from it
    can send a key to another one. The document is sent as it was written at the first request:
    everybody may ask for it, and writing it anew takes longer than a search.
    """
    describe = app.openapi

    def describe_with_access() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = describe()
            for path, operations in document["paths"].items():
                for method, operation in operations.items():
                    _describe(operation, path, method.upper(), policy)
            document.setdefault("components", {})["securitySchemes"] = _SCHEMES
        return app.openapi_schema or {}

    @cache
    def write() -> bytes:
        return json.dumps(app.openapi(), ensure_ascii=False, separators=(",", ":")).encode()

    async def send(request: Request) -> Response:
        del request
        return Response(write(), media_type="application/json")

    app.openapi = describe_with_access
    app.add_route("/openapi.json", send, include_in_schema=False)


def _describe(operation: dict[str, Any], path: str, method: str, policy: AccessPolicy) -> None:
    row = rows_of(path).get(method)
    if row is None or row.scope == "open":
        return
    refusals = [401, 403, 429]
    # What OpenAPI calls scopes belongs to OAuth 2; for keys it takes no more than their names.
    ways: list[dict[str, list[str]]] = [{name: [row.scope]} for name in _SCHEMES]
    if row.scope in policy.anonymous:
        refusals.append(421)
        ways.append({})
    if policy.keys is not None:
        refusals.append(503)  # the file of keys may be missing
    operation["security"] = ways
    responses: dict[str, Any] = operation["responses"]
    for status, described in error_docs(*refusals).items():
        responses.setdefault(
            str(status),
            {
                "description": described["description"],
                "content": {
                    "application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}
                },
            },
        )
    operation["responses"] = dict(sorted(responses.items()))
