"""The OpenAPI document says which requests need a key, from the table that decides it."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

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
    """Have an application's document name the keys and scopes that its requests need.

    The schemes are described for a service without keys too, so that a client generated from it
    can send a key to another one.
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

    app.openapi = describe_with_access


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
