"""What the OpenAPI document says of keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from service.http.access.scopes import rows_of

pytestmark = pytest.mark.anyio


async def document(door: Any, **settings: object) -> dict[str, Any]:
    """Return the document."""
    async with door(**settings) as client:
        first = (await client.get("/openapi.json")).json()
        assert (await client.get("/openapi.json")).json() == first
        return first


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
                assert {"401", "403", "429"} <= set(operation["responses"])


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
