"""The OpenAPI document: shared schemas, common parameters, and required keys.

Which requests need a key is taken from the table that access control uses,
`aladin_service.http.access.policy`.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any, cast

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from aladin_service.http.access.control import rows_of
from aladin_service.http.access.policy import AccessPolicy
from aladin_service.http.error_responses import error_docs

_REF = "#/components/schemas/"
_REQUEST_ID_REF = "#/components/parameters/RequestId"

# Schema keywords whose values are not schemas.
_VALUES = {"const", "default", "enum", "example", "examples"}

OPENAPI_TAGS = [
    {"name": "search", "description": "Searches, and the evidence for their hits."},
    {"name": "items", "description": "Photos and texts of the index: reading, adding, deleting."},
    {"name": "index", "description": "The index as a whole: its contents, history and quality."},
    {"name": "health", "description": "Probes and metrics for those who operate the service."},
    {"name": "rerank", "description": "Re-ranking, for the clients of Cohere, Jina and vLLM."},
    {"name": "openai", "description": "Embeddings and models, for the clients of OpenAI."},
]

# Without a pattern: other values are replaced, not rejected.
_REQUEST_ID = {
    "name": "X-Request-ID",
    "in": "header",
    "required": False,
    "description": "Identifies the request in the log and in errors: 1 to 64 letters, digits, dots,"
    " underscores and hyphens; anything else is replaced. The answer has it in the same header.",
    "schema": {"type": "string"},
}

# Sent by `aladin_service.http.connections`, before the application sees the request.
_LONG_URL = {"description": "the URL has more than 65,535 bytes; this answer has no body"}

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


def complete_document(app: FastAPI) -> None:
    """Give an application's document readable schema names and the header that all requests take.

    Schemas of bodies that are read by hand become components too, and every component is called
    by its title, so two models of the same class name need different titles.
    """
    describe = app.openapi

    def describe_completely() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = describe()
            components = document.setdefault("components", {})
            schemas: dict[str, Any] = components.setdefault("schemas", {})
            components["parameters"] = {"RequestId": _REQUEST_ID}
            for operations in document["paths"].values():
                for operation in operations.values():
                    if any(map(_takes_text_in_url, operation.get("parameters", []))):
                        operation["responses"]["414"] = _LONG_URL
                    operation.setdefault("parameters", []).append({"$ref": _REQUEST_ID_REF})
                    if "requestBody" in operation:
                        operation["requestBody"] = _share(operation["requestBody"], schemas)
            names = {name: schema["title"] for name, schema in schemas.items()}
            renamed = {
                names[name]: schemas[name] for name in sorted(schemas, key=names.__getitem__)
            }
            if len(renamed) < len(schemas):
                raise ValueError(f"two schemas share a title: {sorted(names.items())}")
            components["schemas"] = renamed
            _point(document, names)
        return app.openapi_schema or {}

    app.openapi = describe_completely


def _takes_text_in_url(parameter: dict[str, Any]) -> bool:
    schema = parameter["schema"]
    kinds = schema.get("anyOf", [schema])
    is_text = any(each.get("type") == "string" and "enum" not in each for each in kinds)
    return is_text and parameter["in"] in ("path", "query")


def _share(node: Any, schemas: dict[str, Any]) -> Any:
    """Move the object schemas within a part of the document to the components."""
    if isinstance(node, list):
        return [_share(each, schemas) for each in cast(list[Any], node)]
    if not isinstance(node, dict):
        return node
    fields = cast(dict[str, Any], node)
    for name in fields.keys() - _VALUES:
        fields[name] = _share(fields[name], schemas)
    if "title" not in fields or "properties" not in fields:
        return fields
    if schemas.setdefault(fields["title"], fields) != fields:
        raise ValueError(f"two schemas share the title {fields['title']}")
    return {"$ref": _REF + fields["title"]}


def _point(node: Any, names: dict[str, str]) -> None:
    """Rename the schemas in the references within a part of the document."""
    if isinstance(node, list):
        for each in cast(list[Any], node):
            _point(each, names)
    elif isinstance(node, dict):
        fields = cast(dict[str, Any], node)
        target = fields.get("$ref")
        if isinstance(target, str) and target.startswith(_REF):
            fields["$ref"] = _REF + names[target.removeprefix(_REF)]
        for each in fields.values():
            _point(each, names)


def describe_access(app: FastAPI, policy: AccessPolicy) -> None:
    """Serve an application's document with the required keys and scopes of its requests.

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
    refusals = [401, 403, 422, 429]
    # OpenAPI's own scopes apply to OAuth 2 only; for keys it accepts only their names.
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
