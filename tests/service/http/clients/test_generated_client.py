"""A client that openapi-python-client generates from /openapi.json searches and adds photos."""

from __future__ import annotations

import importlib
import io
import json
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from PIL import Image

from aladin_service.http.app import create_app
from aladin_service.observe.metrics import Metrics
from aladin_service.settings import ServiceSettings
from tests.service.http.conftest import b64

pytestmark = [
    pytest.mark.clients,
    # Other clients leave their connections to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

TEXT = "a red dog runs"
# The generator's own environment, see the Makefile.
GENERATOR = Path(sys.prefix) / "generator" / "bin" / "openapi-python-client"
# The generator knows no pictures; they are bytes.
CONFIG = """
post_hooks: []
content_type_overrides:
  image/png: application/octet-stream
  image/*: application/octet-stream
  application/zip: application/octet-stream
"""


class Generated:
    """The generated package, and clients of a service."""

    def __init__(self, package: Any, key: str, url: str) -> None:
        self.package = package
        self.client = package.AuthenticatedClient(base_url=url, token=key)
        self.stranger = package.AuthenticatedClient(base_url=url, token="wrong")

    def call(self, name: str, *args: Any, **fields: Any) -> Any:
        """Call an operation by its tag and its name, and return the parsed answer."""
        return self.answer(self.client, name, *args, **fields).parsed

    def answer(self, client: Any, name: str, *args: Any, **fields: Any) -> Any:
        """Call an operation with one of the clients, and return the whole answer."""
        module = importlib.import_module(f"{self.package.__name__}.api.{name}")
        return module.sync_detailed(*args, client=client, **fields)

    def model(self, name: str) -> Any:
        return getattr(importlib.import_module(f"{self.package.__name__}.models"), name)

    def body(self, model: str, **fields: Any) -> Any:
        return self.model(model).from_dict(fields)

    def file(self, content: bytes) -> Any:
        """Return a file of a form."""
        types = importlib.import_module(f"{self.package.__name__}.types")
        return types.File(io.BytesIO(content), "photo.png", "image/png")

    def route(self, path: str, **body: Any) -> dict[str, Any]:
        """Return the answer that the service gives to the same request."""
        http: httpx.Client = self.client.get_httpx_client()
        return http.post(path, json=body).json()


def openapi_document() -> dict[str, Any]:
    """Return the document of a service with the default settings; it takes no index."""
    return create_app(cast(Any, None), ServiceSettings(), Metrics()).openapi()


@pytest.fixture(scope="module")
def generated(
    key_and_url: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Generated]:
    """The package that is generated from the document, of which every module is imported."""
    if not GENERATOR.exists():
        pytest.skip(f"{GENERATOR} is missing: `make test-clients` installs it")
    folder = tmp_path_factory.mktemp("generated")
    (folder / "config.yaml").write_text(CONFIG)
    (folder / "openapi.json").write_text(json.dumps(openapi_document()))
    command = [
        *(str(GENERATOR), "generate", "--meta", "none"),
        *("--path", "openapi.json", "--config", "config.yaml"),
        *("--output-path", "generated_aladin", "--fail-on-warning"),
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        package = importlib.import_module("generated_aladin")
        for module in pkgutil.walk_packages(package.__path__, "generated_aladin."):
            importlib.import_module(module.name)
        clients = Generated(package, *key_and_url)
        with clients.client, clients.stranger:
            yield clients


def test_the_document_is_valid_openapi() -> None:
    from openapi_spec_validator import OpenAPIV31SpecValidator

    document = openapi_document()
    assert document["openapi"].startswith("3.1.")
    assert [fault.message for fault in OpenAPIV31SpecValidator(document).iter_errors()] == []
    # The validator sees what is wrong.
    del document["paths"]["/v1/index"]["get"]["responses"]["200"]["description"]
    assert list(OpenAPIV31SpecValidator(document).iter_errors())


def test_it_searches(generated: Generated, photo: bytes) -> None:
    asked = {"text": TEXT, "k": 3, "explain": True}
    answer = generated.call("search.search_images", body=generated.body("SearchBody", **asked))
    expected = generated.route("/v1/search/images", **asked)
    assert [hit.id for hit in answer.hits] == [hit["id"] for hit in expected["hits"]]
    for hit, other in zip(answer.hits, expected["hits"], strict=True):
        found = hit.score, hit.stages.align.score, hit.probability
        told = other["score"], other["stages"]["align"]["score"], other["probability"]
        assert found == pytest.approx(told, abs=1e-6)
        tokens = [word["token"] for word in other["evidence"]]
        assert [word.token for word in hit.evidence] == tokens
        assert hit.metadata.to_dict() == other["metadata"]
    form = generated.model("SearchForm")(image=generated.file(photo), k=2)
    assert len(generated.call("search.search_texts", body=form).hits) == 2
    queries = [{"target": "images", "text": TEXT, "k": 1}]
    several = generated.body("SearchBatch", queries=queries)
    batch = generated.call("search.search_batch", body=several)
    assert [hit.id for hit in batch.answers[0].hits] == [answer.hits[0].id]


def test_it_adds_shows_and_deletes_a_photo(generated: Generated, photo: bytes) -> None:
    images = generated.model("AddItemsTarget").IMAGES
    metadata = generated.body("NewItemFormMetadata", year=2026)
    form = generated.model("NewItemForm")
    added = form(id="new/1", image=generated.file(photo), metadata=metadata)
    assert generated.call("items.add_items", images, body=added).added == ["new/1"]
    year, target = json.dumps({"year": 2026}), generated.model("ListItemsTarget").IMAGES
    listed = generated.call("items.list_items", target, filter_=year)
    assert [item.id for item in listed.items] == ["new/1"]
    shown = generated.call("items.get_photo", "new/1", size=16)
    with Image.open(shown.payload) as picture:
        assert (picture.format, max(picture.size)) == ("JPEG", 16)
    body = generated.body("NewItem", id="new/1", image=b64(photo))
    refused = generated.answer(generated.client, "items.add_items", images, body=body)
    assert (refused.status_code, refused.parsed.error.code) == (409, "duplicate_id")
    target = generated.model("DeleteItemTarget").IMAGES
    assert generated.call("items.delete_item", target, "new/1").deleted == "new/1"
    gone = generated.answer(generated.client, "items.delete_item", target, "new/1")
    assert (gone.status_code, type(gone.parsed).__name__) == (404, "ErrorBody")


def test_it_reads_the_index_and_the_other_conventions(generated: Generated) -> None:
    index = generated.call("index.get_index")
    assert (index.texts.count, index.calibration.fitted_on.split) == (12, "val")
    body = generated.body("RerankBody", query=TEXT, documents=["a dog", "a"])
    ranked = generated.call("rerank.rerank_documents", body=body)
    assert sorted(each.index for each in ranked.results) == [0, 1]
    body = generated.body("EmbeddingsBody", input=[TEXT])
    assert len(generated.call("openai.create_embeddings", body=body).data) == 1
    assert generated.call("openai.list_models").data[0].id.startswith("aladin")


@pytest.mark.parametrize(
    ("operation", "model", "fields", "error"),
    [
        ("search.search_images", "SearchBody", {"text": "a"}, "ErrorBody"),
        (
            "rerank.rerank_documents",
            "RerankBody",
            {"query": "a", "documents": []},
            "CohereErrorBody",
        ),
        ("openai.create_embeddings", "EmbeddingsBody", {"input": "a"}, "OpenAIErrorBody"),
    ],
)
def test_refusals_are_answers_of_the_convention(
    generated: Generated, operation: str, model: str, fields: dict[str, Any], error: str
) -> None:
    body = generated.body(model, **fields)
    wrong_key = generated.answer(generated.stranger, operation, body=body)
    assert (wrong_key.status_code, type(wrong_key.parsed)) == (401, generated.model(error))
    form = generated.model("SearchForm")(image=generated.file(b"ABCDEFGH"))
    none = generated.answer(generated.client, "search.search_texts", body=form)
    assert (none.status_code, none.parsed.error.code) == (415, "not_an_image")
