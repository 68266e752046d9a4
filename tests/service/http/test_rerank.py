"""Re-ranking in Cohere's shape: the scores of a search, and probabilities where they are right."""

from __future__ import annotations

import base64
import logging
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from aladin_index.generations.info import describe
from aladin_index.generations.published import store_calibration
from aladin_network.calibration.calibration import Calibration
from aladin_service.http.app import create_app
from aladin_service.keys_file import add_key
from aladin_service.observe.metrics import Metrics
from aladin_service.search.document_encoder import DocumentEncoder
from aladin_service.settings import ServiceSettings
from aladin_service.work.processes import ProcessWorkers
from aladin_service.work.worker import WorkerPlan

pytestmark = pytest.mark.anyio

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]
Encoded = Callable[..., bytes]

TEXT = "a red dog rides a motorcycle"


def data_url(photo: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(photo).decode()


async def rerank(client: httpx.AsyncClient, query: object, *documents: object, **body: Any) -> Any:
    """Re-rank; the answer has to be a success."""
    asked = {"query": query, "documents": documents, **body}
    response = await client.post("/v1/rerank", json=asked)
    assert response.status_code == 200, response.text
    answer = response.json()
    relevances = [each["relevance_score"] for each in answer["results"]]
    assert relevances == sorted(relevances, reverse=True)
    assert all(0 < each < 1 for each in relevances)
    return answer


async def search(client: httpx.AsyncClient, target: str, **body: Any) -> dict[str, Any]:
    """Return all hits by their id."""
    response = await client.post(f"/v1/search/{target}", json={"k": 20, **body})
    assert response.status_code == 200, response.text
    return {hit["id"]: hit for hit in response.json()["hits"]}


def by_index(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted(answer["results"], key=lambda result: result["index"])


async def check_items(
    client: httpx.AsyncClient, target: str, query: object, **body: Any
) -> list[dict[str, Any]]:
    """Compare the scores of all items of a collection with those of a search."""
    hits = await search(client, target, **body)
    results = by_index(await rerank(client, query, *({"id": each} for each in hits)))
    assert len(results) == len(hits)
    for result, hit in zip(results, hits.values(), strict=True):
        assert result["score"] == pytest.approx(hit["score"], abs=1e-6)
        if result["scored_by"] == "probability":
            assert result["relevance_score"] == pytest.approx(hit["probability"], abs=1e-6)
        else:
            assert hit["probability"] is None
    return results


async def test_items_have_the_scores_and_probabilities_of_a_search(
    service: Service, calibrated_index: Path, query_photo: Image.Image, encoded: Encoded
) -> None:
    photo = encoded(query_photo)
    plain = base64.b64encode(photo).decode()
    async with service(calibrated_index) as client:
        of_text = await check_items(client, "images", TEXT, text=TEXT)
        of_photo = await check_items(client, "texts", data_url(photo), image=plain)
        of_item = await check_items(client, "texts", {"id": "plain"}, id="plain")
        same_kind = await check_items(client, "images", {"image": plain}, image=plain)
        texts = await check_items(client, "texts", {"text": TEXT}, text=TEXT)
    for results in (of_text, of_photo, of_item):
        assert {each["scored_by"] for each in results} == {"probability"}
    # Items of one modality: the embeddings decide alone.
    for results in (same_kind, texts):
        assert {each["scored_by"] for each in results} == {"matching"}
        for each in results:
            assert each["relevance_score"] == pytest.approx((1 + each["score"]) / 2, abs=1e-6)


async def test_items_that_were_added_are_scored_as_the_others(
    calibrated_index: Path, tmp_path: Path, service: Service
) -> None:
    index = Path(shutil.copytree(calibrated_index, tmp_path / "index"))
    async with service(index) as client:
        added = await client.post("/v1/items/texts", json={"id": "new", "text": "a red dog"})
        assert added.status_code == 201
        results = await check_items(client, "texts", {"id": "plain"}, id="plain")
    assert len(results) == 13


async def test_documents_are_scored_as_items_with_the_same_content(
    service: Service, calibrated_index: Path, data_file: Path
) -> None:
    """The index stores tokens as float16, which is the only difference."""
    photos = [(data_file.parent / f"photo-{n}.png").read_bytes() for n in range(6)]
    async with service(calibrated_index) as client:
        hits = await search(client, "images", text=TEXT)
        texts = await search(client, "texts", id="plain")
        given = by_index(await rerank(client, TEXT, *map(data_url, photos)))
        words = by_index(
            await rerank(client, {"id": "plain"}, *(h["text"] for h in texts.values()))
        )
    ids = ["dogs/red#1", "bike 2?", "plain", "ünïcode", "a%2Fb", "../street"]
    for result, item_id in zip(given, ids, strict=True):
        assert result["scored_by"] == "probability"
        assert result["score"] == pytest.approx(hits[item_id]["score"], abs=0.01)
        # A photo of the index that is sent again competes with itself.
        assert result["relevance_score"] == pytest.approx(hits[item_id]["probability"], abs=0.25)
    for result, hit in zip(words, texts.values(), strict=True):
        assert result["scored_by"] == "probability"
        assert result["score"] == pytest.approx(hit["score"], abs=0.01)


async def test_without_a_calibration_the_score_is_squashed(
    service: Service, image_ids: list[str]
) -> None:
    async with service() as client:
        hits = await search(client, "images", text=TEXT)
        answer = await rerank(client, TEXT, *({"id": each} for each in image_ids))
        manifest = (await client.get("/v1/index")).json()
    kind = "fusion" if manifest["alignment_trained"] else "matching"
    assert {each["scored_by"] for each in answer["results"]} == {kind}
    scores = [each["score"] for each in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    assert scores == pytest.approx([hit["score"] for hit in hits.values()], abs=1e-6)


async def test_probabilities_that_are_not_reliable_are_not_the_relevance(
    service: Service,
    index_folder: Path,
    tmp_path: Path,
    make_calibration: Callable[..., Calibration],
) -> None:
    index = Path(shutil.copytree(index_folder, tmp_path / "index"))
    calibration = make_calibration(describe(index).model.id)
    store_calibration(index, replace(calibration, other_photos=True))
    async with service(index) as client:
        hits = await search(client, "images", text=TEXT)
        answer = await rerank(client, TEXT, *({"id": each} for each in hits))
    assert {hit["probability"] for hit in hits.values()} == {None}
    assert "probability" not in {each["scored_by"] for each in answer["results"]}


async def test_mixed_documents_and_the_rest_of_the_answer(
    service: Service, calibrated_index: Path, query_photo: Image.Image, encoded: Encoded
) -> None:
    photo = data_url(encoded(query_photo))
    documents = ["two men", photo, {"id": "plain"}, {"text": "a star"}, {"image": photo}]
    async with service(calibrated_index) as client:
        answer = await rerank(client, TEXT, *documents, return_documents=True, model="aladin")
        kinds = [each["scored_by"] for each in by_index(answer)]
        shown = [each["document"] for each in by_index(answer)]
        assert kinds == ["matching", "probability", "probability", "matching", "probability"]
        assert shown == [
            {"text": "two men"},
            {"text": ""},
            {"id": "plain", "text": "a blue square above a circle"},
            {"text": "a star"},
            {"text": ""},
        ]
        usage = answer["usage"]["total_tokens"]
        assert answer["meta"] == {
            "api_version": {"version": "2"},
            "tokens": {"input_tokens": usage},
        }
        assert answer["model"].startswith("aladin-")
        assert answer["generation"] == 2
        two = await rerank(client, TEXT, *documents, top_n=2)
        assert two["results"] == [
            {name: value for name, value in each.items() if name != "document"}
            for each in answer["results"][:2]
        ]
        assert len((await rerank(client, TEXT, *documents, top_n=0))["results"]) == 5
        for path in ("/v2/rerank", "/rerank"):
            response = await client.post(path, json={"query": TEXT, "documents": documents})
            assert [each["index"] for each in response.json()["results"]] == [
                each["index"] for each in answer["results"]
            ]
        parts = [{"type": "image_url", "image_url": {"url": photo}}, {"type": "text", "text": "a"}]
        of_vllm = await client.post(
            "/v1/rerank", json={"query": TEXT, "documents": {"content": parts}}
        )
        assert len(of_vllm.json()["results"]) == 2


async def test_long_documents_are_cut_and_that_is_said(
    service: Service, build_tiny: Callable[[], Any]
) -> None:
    long = "a red dog runs in the street " * 100
    most = len(build_tiny().text.encoder.tokenizer.encode("a red dog").ids)
    async with service() as client:
        answer = await rerank(client, TEXT, long, "a dog", "a red dog runs")
        assert answer["meta"]["warnings"] == ["1 of 3 documents were cut"]
        short = await rerank(client, TEXT, long, "a red dog", max_tokens_per_doc=most)
        scores = [each["score"] for each in short["results"]]
        assert scores[0] == pytest.approx(scores[1], abs=1e-6)
        assert short["meta"]["warnings"] == ["1 of 2 documents were cut"]
        plain = await rerank(client, TEXT, "a dog")
        assert "warnings" not in plain["meta"]


async def test_documents_that_cannot_be_used_are_left_out_and_named(
    service: Service, calibrated_index: Path, query_photo: Image.Image, encoded: Encoded
) -> None:
    photo = data_url(encoded(query_photo))
    documents = ["", "a dog", {"id": "nobody"}, photo, {"image": "QUJDREVGR0g="}, {"id": "plain"}]
    usable = [documents[place] for place in (1, 3, 5)]
    async with service(calibrated_index) as client:
        answer = await rerank(client, TEXT, *documents)
        alone = await rerank(client, TEXT, *usable)
        one_kind = await rerank(client, TEXT, {"id": "plain"}, {"id": "nobody"})
    assert [each["index"] for each in by_index(answer)] == [1, 3, 5]
    for ours, theirs in zip(by_index(answer), by_index(alone), strict=True):
        assert ours["score"] == pytest.approx(theirs["score"], abs=1e-6)
        assert ours["scored_by"] == theirs["scored_by"]
    assert [each["index"] for each in answer["skipped"]] == [0, 2, 4]
    empty, unknown, no_photo = (each["reason"] for each in answer["skipped"])
    assert empty == "the text is empty"
    assert unknown.startswith("no item 'nobody'")
    assert no_photo.startswith("not an image")
    assert answer["meta"]["warnings"] == ["3 of 6 documents were left out"]
    assert "skipped" not in alone
    assert [each["index"] for each in one_kind["skipped"]] == [1]


WRONG: list[tuple[dict[str, Any], int, str]] = [
    ({}, 422, "documents: expected a list"),
    ({"query": "a", "documents": []}, 422, "expected 1 to 50 in a request"),
    ({"query": "a", "documents": ["a"] * 10_000}, 422, "got 10000"),
    ({"documents": ["a"]}, 422, "query: expected a text"),
    ({"query": " ", "documents": ["a"]}, 422, "query: the text is empty"),
    ({"query": "a" * 2001, "documents": ["a"]}, 422, "at most 2000"),
    ({"query": "a", "documents": ["", " "]}, 422, "documents[0]: the text is empty"),
    ({"query": "a", "documents": ["", {"id": "nobody"}]}, 422, "documents[0]: the text is empty"),
    ({"query": "a", "documents": [3]}, 422, "documents[0]: expected a text, or an object"),
    ({"query": "a", "documents": [{"text": "a", "id": "b"}]}, 422, "got text and id"),
    ({"query": "a", "documents": [{"title": "a"}]}, 422, "unknown field 'title'"),
    ({"query": "a", "documents": [{"image": "QUJDREVGR0g="}]}, 415, "documents[0]: not an image"),
    ({"query": {"image": "QUJDREVGR0g="}, "documents": ["a"]}, 415, "query: not an image"),
    ({"query": "a", "documents": [{"id": "nobody"}]}, 404, "no item 'nobody'"),
    ({"query": {"id": "nobody"}, "documents": ["a"]}, 404, "no item 'nobody'"),
    ({"query": "a", "documents": ["a"], "model": "rerank-v3.5"}, 404, "is not served here"),
    ({"query": "a", "documents": ["a"], "top_n": -1}, 422, "top_n"),
    ({"query": "a", "documents": ["a"], "max_tokens_per_doc": 0}, 422, "max_tokens_per_doc"),
    ({"query": "a", "documents": ["a"], "rank_fields": ["text"]}, 422, "rank_fields: unknown"),
    ({"query": "a", "documents": [{"image": "https://x.test/a"}]}, 422, "does not fetch photos"),
]


async def test_errors_have_the_shape_of_cohere(service: Service) -> None:
    async with service(max_documents=50) as client:
        for body, status, part in WRONG:
            response = await client.post("/v2/rerank", json=body)
            assert response.status_code == status, (body, response.text)
            assert set(response.json()) == {"id", "message"}
            assert response.json()["id"] == response.headers["x-request-id"]
            assert part in response.json()["message"]
        wrong = await client.post("/v1/rerank", content=b"[1]")
        assert (wrong.status_code, wrong.json()["message"]) == (422, "Input should be an object")


async def test_the_query_and_the_documents_share_the_pixels(
    service: Service, query_photo: Image.Image, encoded: Encoded
) -> None:
    photo = data_url(encoded(query_photo))  # of 64 x 48 pixels
    async with service(max_document_pixels=7000) as client:
        await rerank(client, photo, photo)
        body = {"query": photo, "documents": [photo, photo]}
        response = await client.post("/v1/rerank", json=body)
    assert response.status_code == 413
    assert "more than 7000 pixels together" in response.json()["message"]


async def test_a_model_that_is_replaced_meanwhile(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents that another model encoded are encoded again, and not for ever."""
    encode, replaced = DocumentEncoder.encode, 0

    def encode_with_the_old_one(self: DocumentEncoder, *arguments: Any) -> list[Any]:
        nonlocal replaced
        replaced -= 1
        found = encode(self, *arguments)
        return [each._replace(model_id="old") for each in found] if replaced >= 0 else found

    monkeypatch.setattr(DocumentEncoder, "encode", encode_with_the_old_one)
    async with service(max_batch=1) as client:
        expected = await rerank(client, TEXT, "a star")
        replaced = 1
        assert (await rerank(client, TEXT, "a star"))["results"] == expected["results"]
        replaced = 1  # of two documents, the first one
        answer = await client.post("/v1/embeddings", json={"input": ["a star", "a dog"]})
        assert answer.json()["model"] == expected["model"]
        replaced = 100
        body = {"query": TEXT, "documents": ["a star"]}
        refused = await client.post("/v1/rerank", json=body)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")


async def test_the_log_counts_documents_and_names_none(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="service.access")
    async with service() as client:
        await rerank(client, TEXT, "a star", "two men", {"id": "plain"})
        await client.post("/v2/rerank", json={"query": TEXT, "documents": []})
        metrics = (await client.get("/metrics")).text
    told = [
        record.__dict__["fields"] for record in caplog.records if record.name == "service.access"
    ]
    assert (told[0]["route"], told[0]["status"], told[0]["documents"]) == ("/v1/rerank", 200, 3)
    assert (told[1]["route"], told[1]["error"]) == ("/v2/rerank", "invalid_field")
    assert "star" not in caplog.text
    assert 'route="/v1/rerank",status="200"' in metrics
    assert 'route="/v2/rerank",status="422"' in metrics


async def test_keys_and_rates(service: Service, tmp_path: Path) -> None:
    keys_file = tmp_path / "keys.json"
    reader = add_key(keys_file, "reader", ["read"], requests_per_s=0.001, burst=8)
    writer = add_key(keys_file, "writer", ["write"])
    body, inputs = {"query": "a", "documents": ["a"] * 4}, {"input": ["a dog"] * 5}
    statuses: list[tuple[int, dict[str, Any]]] = []
    async with service(keys_file=keys_file) as client:
        for key in ("wrong", writer, reader, reader):
            headers = {"X-API-Key": key}
            response = await client.post("/v2/rerank", json=body, headers=headers)
            statuses.append((response.status_code, response.json()))
        limited = await client.post("/v1/embeddings", json=inputs, headers={"X-API-Key": reader})
        unknown = await client.post("/v1/embeddings", json=inputs, headers={"X-API-Key": "wrong"})
    assert [status for status, _ in statuses] == [401, 403, 200, 200]
    assert statuses[0][1]["message"] == "invalid API key"
    assert "requires the scope 'read'" in statuses[1][1]["message"]
    assert (limited.status_code, limited.json()["error"]["code"]) == (429, "rate_limited")
    assert int(limited.headers["retry-after"]) > 0
    error = unknown.json()["error"]
    assert (unknown.status_code, error["type"]) == (401, "authentication_error")
    assert error["code"] == "unauthorized"


@pytest.mark.slow
async def test_worker_processes_answer_the_same(
    calibrated_index: Path, service: Service, query_photo: Image.Image, encoded: Encoded
) -> None:
    documents = ["two men", data_url(encoded(query_photo)), {"id": "plain"}]
    settings, metrics = ServiceSettings(workers=2), Metrics()
    plan = WorkerPlan(index=calibrated_index, settings=settings)
    app = create_app(ProcessWorkers(plan, metrics), settings, metrics)
    async with service(calibrated_index) as client:
        expected = by_index(await rerank(client, TEXT, *documents))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://localhost"
        ) as client,
    ):
        found = by_index(await rerank(client, TEXT, *documents))
        vector = await client.post("/v1/embeddings", json={"input": documents[:2]})
    for name in ("score", "relevance_score"):
        values = [[each[name] for each in results] for results in (found, expected)]
        np.testing.assert_allclose(values[0], values[1], atol=1e-5)
    assert len(vector.json()["data"]) == 2
