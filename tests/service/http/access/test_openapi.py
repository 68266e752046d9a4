"""What the OpenAPI document says of keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aladin_service.http.access.control import rows_of

pytestmark = pytest.mark.anyio


async def document(door: Any, **settings: object) -> dict[str, Any]:
    """Return the document."""
    async with door(**settings) as client:
        first = (await client.get("/openapi.json")).json()
        assert (await client.get("/openapi.json")).json() == first
        return first


async def test_the_document_is_written_once(
    door: Any, keys_file: Path, keys: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert keys
    written: list[object] = []
    dumps = json.dumps

    def note(*values: Any, **options: Any) -> str:
        if "openapi" in values[0]:
            written.append(values[0])
        return dumps(*values, **options)

    monkeypatch.setattr(json, "dumps", note)
    async with door(keys_file=keys_file) as client:
        answers = [await client.get("/openapi.json") for _ in range(5)]
    assert len(written) == 1
    assert {answer.content for answer in answers} == {answers[0].content}
    assert answers[0].headers["content-type"] == "application/json"
    assert answers[0].json()["info"]["title"] == "ALADIN search"


async def test_with_keys_every_closed_operation_names_both_ways_and_its_scope(
    door: Any, keys_file: Path, keys: dict[str, str]
) -> None:
    assert keys
    described = await document(door, keys_file=keys_file)
    schemes = described["components"]["securitySchemes"]
    assert schemes["bearer"]["scheme"] == "bearer"
    assert (schemes["header"]["in"], schemes["header"]["name"]) == ("header", "X-API-Key")
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            scope = rows_of(path)[method.upper()].scope
            if scope == "open":
                assert "security" not in operation
            else:
                assert operation["security"] == [{"bearer": [scope]}, {"header": [scope]}]
                assert {"401", "403", "429", "503"} <= set(operation["responses"])


async def test_where_a_key_is_optional_it_says_so(
    door: Any, keys_file: Path, keys: dict[str, str]
) -> None:
    assert keys
    paths = (await document(door, keys_file=keys_file, allow_anonymous=True))["paths"]
    assert {} in paths["/v1/search/images"]["post"]["security"]
    assert {} not in paths["/v1/items/{target}"]["post"]["security"]


async def test_a_service_without_keys_describes_them_as_optional(door: Any) -> None:
    described = await document(door)
    assert set(described["components"]["securitySchemes"]) == {"bearer", "header"}
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            scope = rows_of(path)[method.upper()].scope
            if scope == "open":
                assert "security" not in operation
            else:
                assert operation["security"] == [{"bearer": [scope]}, {"header": [scope]}, {}]
                assert {"401", "403", "421", "429"} <= set(operation["responses"])


async def test_ways_and_refusals_are_described_whole(
    door: Any, keys_file: Path, keys: dict[str, str]
) -> None:
    assert keys
    described = await document(door, keys_file=keys_file, allow_anonymous=True)
    assert described["components"]["securitySchemes"] == {
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
    search = described["paths"]["/v1/search/images"]["post"]
    refused = {
        "401": "missing or invalid API key",
        "403": "the key lacks the scope, the page's origin or the photo's URL is not allowed, or "
        "the service is read-only",
        "421": "request without a key for a host name that is not allowed",
    }
    schema = {"$ref": "#/components/schemas/ErrorBody"}
    for status, description in refused.items():
        assert search["responses"][status] == {
            "description": description,
            "content": {"application/json": {"schema": schema}},
        }
    # Whoever needs a key in any case is not asked for the host's name.
    assert "421" not in described["paths"]["/metrics"]["get"]["responses"]
    assert "401" not in described["paths"]["/healthz"]["get"]["responses"]


async def test_without_keys_hosts_are_what_is_looked_at(door: Any) -> None:
    described = await document(door)
    metrics = described["paths"]["/metrics"]["get"]["responses"]
    assert {"403", "421", "429"} <= set(metrics)
