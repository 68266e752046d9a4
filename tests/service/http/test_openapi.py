"""The OpenAPI document, as programs read it that generate clients from it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from jsonschema import Draft202012Validator

from aladin_service.http.access.control import rows_of
from tests.service.http.conftest import Open, Service

pytestmark = pytest.mark.anyio

Document = dict[str, Any]

OPERATIONS = """
    add_items create_embeddings delete_item draw_evidence draw_evidence_of_photo get_health
    get_index get_index_fields get_item get_metrics get_model get_photo get_photos_zip
    get_readiness list_items list_models map_evidence map_evidence_of_photo
    rerank_documents search_batch search_images search_texts
"""
BODIES = {
    "search_images": ["SearchBody", "SearchForm"],
    "search_texts": ["SearchBody", "SearchForm"],
    "search_batch": ["SearchBatch"],
    "get_photos_zip": ["WantedPhotos"],
    "map_evidence_of_photo": ["ExplainBody", "ExplainForm"],
    "draw_evidence_of_photo": ["ExplainBody", "ExplainForm"],
    "rerank_documents": ["RerankBody"],
    "create_embeddings": ["EmbeddingsBody"],
    "add_items": ["NewItem", "NewItemList", "NewItemForm"],
}


@pytest.fixture
async def document(client: httpx.AsyncClient) -> Document:
    """The document of a service without keys."""
    return (await client.get("/openapi.json")).json()


def operations(described: Document) -> dict[str, dict[str, Any]]:
    """The operations by their ids, each with its path, method and scope."""
    return {
        operation["operationId"]: operation | {"scope": rows_of(path)[method.upper()].scope}
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    }


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


async def test_every_schema_has_one_readable_name_and_is_used(document: Document) -> None:
    schemas = document["components"]["schemas"]
    for name, schema in schemas.items():
        assert re.fullmatch(r"[A-Z][A-Za-z0-9]+", name)
        assert schema["title"] == name
    used = {f"#/components/schemas/{name}" for name in schemas}
    assert set(references(document)) == used | {"#/components/parameters/RequestId"}


async def test_operations_read_as_methods_with_words_and_named_bodies(document: Document) -> None:
    found = operations(document)
    assert sorted(found) == OPERATIONS.split()
    tags = {tag["name"] for tag in document["tags"] if tag["description"]}
    # openapi-python-client 0.29 imports what bodies of two content types need only with it.
    header = {"$ref": "#/components/parameters/RequestId"}
    assert document["components"]["parameters"]["RequestId"]["required"] is False
    bodies: dict[str, list[str]] = {}
    for name, operation in found.items():
        assert re.fullmatch(r"[A-Z][a-z]+( [a-z-]+)+", operation["summary"]), name
        assert set(operation["tags"]) <= tags, name
        assert header in operation["parameters"], name
        if "requestBody" in operation:
            assert operation["requestBody"]["required"] is True
            content = operation["requestBody"]["content"].values()
            bodies[name] = [each.rpartition("/")[2] for each in references(list(content))]
    assert bodies == BODIES
    # Forms have the fields of JSON, and files in place of base64.
    schemas = document["components"]["schemas"]
    for in_json, form in (("SearchBody", "SearchForm"), ("NewItem", "NewItemForm")):
        fields = schemas[form]["properties"]
        assert set(fields) == set(schemas[in_json]["properties"]) > {"image", "regions", "text"}
        assert fields["image"]["format"] == "binary"
    assert schemas["NewItemForm"]["required"] == ["id"]
    (entry,) = schemas["SearchBatch"]["properties"].values()
    assert entry["items"] == {"$ref": "#/components/schemas/BatchedSearch"}


async def test_examples_of_bodies_are_answered(
    document: Document, service: Service, index: Path
) -> None:
    """The first body of each operation that has an example; a batch, a list of one."""
    asked = 0
    async with service(index) as client:
        for path, methods in document["paths"].items():
            for name in BODIES.get(methods.get("post", {}).get("operationId"), ())[:1]:
                examples = document["components"]["schemas"][name].get("examples", [])
                for example in examples:
                    answer = await client.post(path.replace("{target}", "texts"), json=example)
                    assert answer.is_success, (path, answer.text)
                    asked += 1
    assert asked >= 4


async def test_answers_are_as_described_and_searches_have_all_their_fields(
    calibrated: httpx.AsyncClient, image_ids: list[str]
) -> None:
    described = (await calibrated.get("/openapi.json")).json()
    asked = {"text": "a red dog", "explain": True}
    batch = {"queries": [{**asked, "target": "images"}, {"text": "", "target": "texts"}]}
    documents = ["a", {"id": image_ids[0]}]
    encoded = {"input": ["a dog"], "encoding_format": "base64"}
    answers = {
        "get_index": await calibrated.get("/v1/index"),
        "get_item": await calibrated.get(f"/v1/items/images/{image_ids[2]}"),
        "search_images": await calibrated.post("/v1/search/images", json=asked),
        "search_batch": await calibrated.post("/v1/search/batch", json=batch),
        "rerank_documents": await calibrated.post(
            "/v1/rerank", json={"query": "a dog", "documents": documents}
        ),
        "create_embeddings": await calibrated.post("/v1/embeddings", json=encoded),
        "list_models": await calibrated.get("/v1/models"),
        "get_readiness": await calibrated.get("/readyz"),
    }
    found = operations(described)
    for name, answer in answers.items():
        assert answer.status_code == 200
        schema = found[name]["responses"]["200"]["content"]["application/json"]["schema"]
        Draft202012Validator({**described, **schema}).validate(answer.json())
    search = answers["search_images"].json()
    schemas = described["components"]["schemas"]
    assert list(search) == list(schemas["SearchAnswer"]["properties"])
    for hit in search["hits"]:
        assert list(hit) == list(schemas["SearchHit"]["properties"])
        assert list(hit["stages"]) == list(schemas["HitStages"]["properties"])


@pytest.mark.parametrize("keys_needed", [True, False])
@pytest.mark.parametrize("anonymous", [True, False])
async def test_closed_operations_name_both_ways_of_a_key_and_their_refusals(
    door: Open, keys_file: Path, keys: dict[str, str], keys_needed: bool, anonymous: bool
) -> None:
    assert keys
    settings: dict[str, Any] = {"keys_file": keys_file} if keys_needed else {}
    async with door(**settings, allow_anonymous=anonymous) as client:
        described = (await client.get("/openapi.json")).json()
    schemes = described["components"]["securitySchemes"]
    assert (schemes["bearer"]["type"], schemes["bearer"]["scheme"]) == ("http", "bearer")
    header = [schemes["header"][name] for name in ("type", "in", "name")]
    assert header == ["apiKey", "header", "X-API-Key"]
    for name, operation in operations(described).items():
        scope = operation["scope"]
        if scope == "open":
            assert "security" not in operation
            assert "401" not in operation["responses"]
            continue
        optional = not keys_needed or (anonymous and scope == "read")
        ways = [{"bearer": [scope]}, {"header": [scope]}, *[{}] * optional]
        assert operation["security"] == ways, name
        assert {"401", "403", "429"} <= set(operation["responses"]), name
        # Whoever needs a key in any case is not asked for the host's name.
        if name in ("search_images", "get_metrics"):
            assert ("421" in operation["responses"]) == optional, name
