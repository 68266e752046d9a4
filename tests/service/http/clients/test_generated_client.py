"""A client that openapi-python-client generates from /openapi.json searches and adds photos."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from shutil import copytree
from typing import Any, Protocol

import httpx
import pytest
from PIL import Image

from aladin_service.http.access.policy import make_policy
from aladin_service.http.app import create_app
from aladin_service.keys_file import add_key
from aladin_service.observe.metrics import Metrics
from aladin_service.settings import ServiceSettings
from aladin_service.work.worker import WorkerPlan
from aladin_service.work.workers import ThreadWorkers
from tests.service.http.clients.generated_client import Generated, openapi_document

pytestmark = pytest.mark.clients

TEXT = "a red dog runs"


class Serve(Protocol):
    """Serves an application on a socket."""

    def __call__(self, app: Any) -> AbstractContextManager[str]:
        """Return the URL while it is served."""
        ...


@pytest.fixture(scope="module")
def generated(
    calibrated_index: Path,
    generated_aladin: Any,
    serve_in_thread: Serve,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Generated]:
    """A client that was generated from the file, of a service with keys that may be changed."""
    folder = tmp_path_factory.mktemp("changed")
    index = folder / "index"
    copytree(calibrated_index, index)
    key = add_key(folder / "keys.json", "writer", ["read", "write"])
    settings, metrics = ServiceSettings(keys_file=folder / "keys.json"), Metrics()
    workers = ThreadWorkers(WorkerPlan(index=index, settings=settings).make(), settings, metrics)
    policy = make_policy(settings)
    with serve_in_thread(create_app(workers, settings, metrics, policy=policy)) as url:
        clients = Generated(generated_aladin, url, key)
        with clients.client, clients.stranger:
            yield clients


def route(generated: Generated, path: str, **body: Any) -> dict[str, Any]:
    """Return the answer that the service gives to the same request."""
    http: httpx.Client = generated.client.get_httpx_client()
    return http.post(path, json=body).json()


def test_the_document_is_valid_openapi() -> None:
    from openapi_spec_validator import OpenAPIV31SpecValidator

    document = openapi_document()
    assert document["openapi"].startswith("3.1.")
    faults = [error.message for error in OpenAPIV31SpecValidator(document).iter_errors()]
    assert faults == []
    # The validator sees what is wrong.
    del document["paths"]["/v1/index"]["get"]["responses"]["200"]["description"]
    assert list(OpenAPIV31SpecValidator(document).iter_errors())


def test_it_searches(generated: Generated, query_photo: Image.Image, encoded: Any) -> None:
    body = generated.model("SearchBody").from_dict({"text": TEXT, "k": 3, "explain": True})
    answer = generated.call("search.search_images", body=body)
    expected = route(generated, "/v1/search/images", text=TEXT, k=3, explain=True)
    assert [hit.id for hit in answer.hits] == [hit["id"] for hit in expected["hits"]]
    for hit, other in zip(answer.hits, expected["hits"], strict=True):
        assert hit.score == pytest.approx(other["score"], abs=1e-6)
        assert hit.stages.align.score == pytest.approx(other["stages"]["align"]["score"], abs=1e-6)
        assert hit.probability == pytest.approx(other["probability"], abs=1e-6)
        assert [word.token for word in hit.evidence] == [
            word["token"] for word in other["evidence"]
        ]
        assert hit.metadata.to_dict() == other["metadata"]
    file = generated.file(io.BytesIO(encoded(query_photo)), "photo.png", "image/png")
    form = generated.model("SearchForm")(image=file, k=2)
    assert len(generated.call("search.search_texts", body=form).hits) == 2
    several = {"queries": [{"target": "images", "text": TEXT, "k": 1}]}
    batch = generated.call(
        "search.search_batch", body=generated.model("SearchBatch").from_dict(several)
    )
    assert [hit.id for hit in batch.answers[0].hits] == [answer.hits[0].id]


def test_it_adds_shows_and_deletes_a_photo(
    generated: Generated, query_photo: Image.Image, encoded: Any
) -> None:
    images = generated.model("AddItemsTarget").IMAGES
    file = generated.file(io.BytesIO(encoded(query_photo)), "photo.png", "image/png")
    metadata = generated.model("NewItemFormMetadata").from_dict({"year": 2026})
    form = generated.model("NewItemForm")(id="new/1", image=file, metadata=metadata)
    assert generated.call("items.add_items", images, body=form).added == ["new/1"]
    listed = generated.call(
        "items.list_items",
        generated.model("ListItemsTarget").IMAGES,
        filter_=json.dumps({"year": 2026}),
    )
    assert [item.id for item in listed.items] == ["new/1"]
    photo = generated.call("items.get_photo", "new/1", size=16)
    with Image.open(photo.payload) as picture:
        assert (picture.format, max(picture.size)) == ("JPEG", 16)
    body = generated.model("SearchBody").from_dict({"id": "new/1", "k": 1})
    assert len(generated.call("search.search_images", body=body).hits) == 1
    content = base64.b64encode(encoded(query_photo)).decode()
    again = generated.model("NewItem").from_dict({"id": "new/1", "image": content})
    refused = generated.answer(generated.client, "items.add_items", images, body=again)
    assert (refused.status_code, refused.parsed.error.code) == (409, "duplicate_id")
    target = generated.model("DeleteItemTarget").IMAGES
    assert generated.call("items.delete_item", target, "new/1") is not None
    gone = generated.answer(generated.client, "items.delete_item", target, "new/1")
    assert (gone.status_code, type(gone.parsed).__name__) == (404, "ErrorBody")


def test_it_reads_the_index_and_the_other_conventions(generated: Generated) -> None:
    index = generated.call("index.get_index")
    assert index.texts.count == 12
    assert index.calibration.fitted_on.split == "val"
    body = generated.model("RerankBody").from_dict({"query": TEXT, "documents": ["a dog", "a"]})
    ranked = generated.call("rerank.rerank_documents", body=body)
    assert sorted(each.index for each in ranked.results) == [0, 1]
    body = generated.model("EmbeddingsBody").from_dict({"input": [TEXT]})
    vectors = generated.call("openai.create_embeddings", body=body)
    assert len(vectors.data) == 1
    models = generated.call("openai.list_models")
    assert models.data[0].id.startswith("aladin")


@pytest.mark.parametrize(
    ("operation", "body", "error"),
    [
        ("search.search_images", "SearchBody", "ErrorBody"),
        ("rerank.rerank_documents", "RerankBody", "CohereErrorBody"),
        ("openai.create_embeddings", "EmbeddingsBody", "OpenAIErrorBody"),
    ],
)
def test_a_wrong_key_is_an_answer_of_the_convention(
    generated: Generated, operation: str, body: str, error: str
) -> None:
    fields = {"SearchBody": {"text": "a"}, "RerankBody": {"query": "a", "documents": ["a"]}}
    content = generated.model(body).from_dict(fields.get(body, {"input": "a"}))
    answer = generated.answer(generated.stranger, operation, body=content)
    assert answer.status_code == 401
    assert type(answer.parsed) is generated.model(error)
