"""The OpenAPI document, as programs read it that generate clients from it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from jsonschema import Draft202012Validator

pytestmark = pytest.mark.anyio

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]
Document = dict[str, Any]


async def document(service: Service) -> Document:
    """The document of a service without keys."""
    async with service() as client:
        return (await client.get("/openapi.json")).json()


def operations(described: Document) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each operation, after its method and path."""
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def references(node: object) -> Iterator[str]:
    """Every reference within a part of the document."""
    if isinstance(node, list):
        for each in cast(list[object], node):
            yield from references(each)
    elif isinstance(node, dict):
        for name, value in cast(dict[str, object], node).items():
            if name == "$ref":
                yield str(value)
            yield from references(value)


async def test_every_schema_has_one_readable_name(service: Service) -> None:
    schemas = (await document(service))["components"]["schemas"]
    assert {"SearchBody", "SearchForm", "NewItem", "IndexFacts"} <= set(schemas)
    for name, schema in schemas.items():
        assert re.fullmatch(r"[A-Z][A-Za-z0-9]+", name)
        assert schema["title"] == name


async def test_every_reference_leads_somewhere_and_every_schema_is_used(service: Service) -> None:
    described = await document(service)
    used = set(references(described))
    schemas = {f"#/components/schemas/{name}" for name in described["components"]["schemas"]}
    assert used == schemas | {"#/components/parameters/RequestId"}


async def test_operations_read_as_methods_and_are_summed_up_in_words(service: Service) -> None:
    described = await document(service)
    ids = [operation["operationId"] for _, operation in operations(described)]
    assert sorted(ids) == [
        "add_items",
        "create_embeddings",
        "delete_item",
        "draw_evidence",
        "draw_evidence_of_photo",
        "get_health",
        "get_index",
        "get_index_fields",
        "get_item",
        "get_metrics",
        "get_model",
        "get_photo",
        "get_readiness",
        "list_items",
        "list_models",
        "map_evidence",
        "map_evidence_of_photo",
        "rerank_documents",
        "search_batch",
        "search_images",
        "search_texts",
    ]
    tags = {tag["name"] for tag in described["tags"] if tag["description"]}
    for where, operation in operations(described):
        assert re.fullmatch(r"[A-Z][a-z]+( [a-z-]+)+", operation["summary"]), where
        assert set(operation["tags"]) <= tags, where


async def test_bodies_are_required_and_named(service: Service) -> None:
    bodies: dict[str, list[str]] = {}
    for where, operation in operations(await document(service)):
        if "requestBody" not in operation:
            continue
        assert operation["requestBody"]["required"] is True
        found: list[str] = []
        for media_type in operation["requestBody"]["content"].values():
            schema = media_type["schema"]
            for each in schema.get("anyOf", [schema]):
                assert set(each) == {"$ref"}
                found.append(each["$ref"].rpartition("/")[2])
        bodies[where] = found
    assert bodies == {
        "POST /v1/search/images": ["SearchBody", "SearchForm"],
        "POST /v1/search/texts": ["SearchBody", "SearchForm"],
        "POST /v1/search/batch": ["SearchBatch"],
        "POST /v1/explain": ["ExplainBody", "ExplainForm"],
        "POST /v1/explain.png": ["ExplainBody", "ExplainForm"],
        "POST /v1/rerank": ["RerankBody"],
        "POST /v1/embeddings": ["EmbeddingsBody"],
        "POST /v1/items/{target}": ["NewItem", "NewItemList", "NewItemForm"],
    }


SEARCH_FIELDS = {
    *("text", "image", "id", "regions", "all", "not", "like", "box"),
    *("k", "offset", "candidates", "rerank", "fusion", "explain", "filter", "sort"),
    *("min_probability", "lexical", "timeout_ms"),
}
ITEM_FIELDS = {"id", "image", "regions", "text", "uri", "metadata"}


async def test_forms_have_the_fields_of_json_and_files_in_place_of_base64(
    service: Service,
) -> None:
    schemas = (await document(service))["components"]["schemas"]
    body, form = schemas["SearchBody"], schemas["SearchForm"]
    assert set(form["properties"]) == set(body["properties"]) == SEARCH_FIELDS
    for name in ("NewItem", "NewItemForm"):
        assert set(schemas[name]["properties"]) == ITEM_FIELDS
    assert form["properties"]["image"]["format"] == "binary"
    assert form["properties"]["k"] == body["properties"]["k"]
    assert schemas["NewItemForm"]["required"] == ["id"]
    (entry,) = schemas["SearchBatch"]["properties"].values()
    assert entry["items"] == {"$ref": "#/components/schemas/BatchedSearch"}


async def test_every_operation_takes_an_optional_header(service: Service) -> None:
    """openapi-python-client 0.29 imports what bodies of two content types need only with it."""
    described = await document(service)
    assert described["components"]["parameters"]["RequestId"]["required"] is False
    for where, operation in operations(described):
        assert {"$ref": "#/components/parameters/RequestId"} in operation["parameters"], where


async def test_each_application_of_a_process_describes_the_same(service: Service) -> None:
    assert await document(service) == await document(service)


async def test_answers_are_as_described(
    service: Service, calibrated_index: Path, image_ids: list[str]
) -> None:
    async with service(index=calibrated_index) as client:
        described = (await client.get("/openapi.json")).json()
        asked = {"text": "a red dog", "explain": True}
        batch = {"queries": [{**asked, "target": "images"}, {"text": "", "target": "texts"}]}
        answers = {
            "get_index": await client.get("/v1/index"),
            "get_item": await client.get(f"/v1/items/images/{image_ids[2]}"),
            "search_images": await client.post("/v1/search/images", json=asked),
            "search_batch": await client.post("/v1/search/batch", json=batch),
            "rerank_documents": await client.post(
                "/v1/rerank",
                json={"query": "a dog", "documents": ["a", {"id": image_ids[0]}]},
            ),
            "create_embeddings": await client.post(
                "/v1/embeddings", json={"input": ["a dog"], "encoding_format": "base64"}
            ),
            "list_models": await client.get("/v1/models"),
            "get_readiness": await client.get("/readyz"),
        }
    by_id = {operation["operationId"]: operation for _, operation in operations(described)}
    for name, answer in answers.items():
        response = by_id[name]["responses"][str(answer.status_code)]
        schema = response["content"]["application/json"]["schema"]
        Draft202012Validator({**described, **schema}).validate(answer.json())
    assert answers["get_index"].json()["calibration"] is not None
    statuses = Counter(answer.status_code for answer in answers.values())
    assert statuses == {200: len(answers)}
