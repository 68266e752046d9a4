"""Embeddings in OpenAI's shape and re-ranking in Cohere's: documents that are encoded, or items."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from aladin_index.generations.info import describe
from aladin_index.generations.published import store_calibration
from aladin_index.generations.reader import open_index
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.errors import OverloadedError
from aladin_service.http.app import create_app
from aladin_service.observe.metrics import Metrics
from aladin_service.search.document_encoder import DocumentEncoder
from aladin_service.search.job import EncodedDocument, EncodeJob
from aladin_service.settings import ServiceSettings
from aladin_service.work.admission import QueryQueue
from aladin_service.work.processes import ProcessWorkers
from aladin_service.work.worker import WorkerPlan
from tests.conftest import made_up_calibration, tiny_model
from tests.service.http.conftest import Service, b64, data_url, opened, told

pytestmark = pytest.mark.anyio

TEXT = "a red dog rides a motorcycle"
NO_PHOTO = {"image": "QUJDREVGR0g="}
Stored = list[tuple[str | bytes, np.ndarray]]


async def embed(client: httpx.AsyncClient, *inputs: object, **body: Any) -> dict[str, Any]:
    """Ask for embeddings; the answer has to be a success."""
    response = await client.post("/v1/embeddings", json={"input": inputs, **body})
    assert response.status_code == 200, response.text
    return response.json()


async def rerank(client: httpx.AsyncClient, query: object, *texts: object, **body: Any) -> Any:
    """Re-rank; the answer has to be a success, in the order of its relevances."""
    response = await client.post("/v1/rerank", json={"query": query, "documents": texts, **body})
    assert response.status_code == 200, response.text
    relevances = [each["relevance_score"] for each in response.json()["results"]]
    assert relevances == sorted(relevances, reverse=True)
    assert all(0 < each < 1 for each in relevances)
    return response.json()


async def search(client: httpx.AsyncClient, target: str, **body: Any) -> dict[str, Any]:
    """Return all hits by their id."""
    response = await client.post(f"/v1/search/{target}", json={"k": 20, **body})
    assert response.status_code == 200, response.text
    return {hit["id"]: hit for hit in response.json()["hits"]}


def by_index(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted(answer["results"], key=lambda result: result["index"])


def vectors(answer: dict[str, Any]) -> np.ndarray:
    return np.array([each["embedding"] for each in answer["data"]])


def decoded(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype="<f4")


@pytest.fixture(scope="module")
def stored(index_folder: Path, data_file: Path) -> Stored:
    """Texts and photos as they were indexed, with their embeddings in the index."""
    found: Stored = []
    with open_index(index_folder) as index:
        searcher = TwoStageSearcher(index)
        for line in data_file.read_text(encoding="utf-8").splitlines():
            item = json.loads(line)
            photo = (data_file.parent / item["image"]).read_bytes()
            found.append((photo, searcher.stored_query(item["id"]).encoding.embedding[0]))
        texts = index.collection("texts")
        for item in texts.items.by_rows([0, 5, 11]):
            assert item.text is not None
            found.append((item.text, texts.embedding(item.row)))
    return found


async def test_embeddings_are_those_of_the_index_whatever_the_precision_of_queries(
    service: Service, stored: Stored
) -> None:
    # Every form of a photo and of a text, in turn.
    photos: Iterator[Callable[[bytes], object]] = itertools.cycle(
        (
            data_url,
            lambda photo: {"image": data_url(photo)},
            lambda photo: {"image": b64(photo)},
            lambda photo: {"type": "image_url", "image_url": {"url": data_url(photo)}},
        )
    )
    texts: Iterator[Callable[[str], object]] = itertools.cycle(
        (
            lambda text: text,
            lambda text: {"text": text},
            lambda text: {"type": "text", "text": text},
        )
    )
    inputs = [
        next(texts)(each) if isinstance(each, str) else next(photos)(each) for each, _ in stored
    ]
    expected = np.stack([embedding for _, embedding in stored])
    # So that there are several batches.
    async with service(max_batch=4, query_precision="bfloat16") as client:
        answer = await embed(client, *inputs, model="aladin")
        coded = await embed(client, *inputs, encoding_format="base64")
        one = (await client.post("/v1/embeddings", json={"input": stored[-1][0]})).json()
        parts = {"content": [*inputs[:2], inputs[-1]]}  # as vLLM's clients send them
        ranked = await client.post("/v1/rerank", json={"query": TEXT, "documents": parts})
    assert len(ranked.json()["results"]) == 3
    np.testing.assert_allclose(vectors(one)[0], expected[-1], atol=1e-6)
    np.testing.assert_allclose(vectors(answer), expected, atol=1e-6)
    np.testing.assert_allclose(
        [decoded(each["embedding"]) for each in coded["data"]], expected, atol=1e-6
    )
    assert [each["index"] for each in answer["data"]] == list(range(len(inputs)))
    assert {answer["object"], *(each["object"] for each in answer["data"])} == {"list", "embedding"}


async def test_tokens_are_those_of_the_second_stage_and_all_are_counted(
    client: httpx.AsyncClient, photo: bytes
) -> None:
    hits = await search(client, "texts", image=b64(photo), fusion=1)
    texts = {hit["text"]: hit for hit in hits.values()}
    asked = [{"image": data_url(photo)}, *texts]
    answer = await embed(client, *asked, return_multivector=True)
    coded = await embed(client, *asked, return_multivector=True, encoding_format="base64")
    regions, *words = (np.array(each["embeddings"]) for each in answer["data"])
    assert "embedding" not in answer["data"][0]
    np.testing.assert_allclose(np.linalg.norm(regions, axis=1), 1, atol=1e-5)
    for tokens, hit in zip(words, texts.values(), strict=True):
        # The index stores its tokens as float16.
        expected = pytest.approx(hit["stages"]["align"]["score"], abs=0.01)
        assert (tokens @ regions.T).max(axis=1).sum() == expected
    for plain, own in zip([regions, *words], coded["data"], strict=True):
        np.testing.assert_allclose(list(map(decoded, own["embeddings"])), plain, atol=1e-6)
    tokenizer = tiny_model().text.encoder.tokenizer
    count = len(regions) + sum(len(tokenizer.encode(text).ids) for text in texts)
    assert answer["usage"] == {"prompt_tokens": count, "total_tokens": count}


async def test_long_texts_are_cut_if_that_is_asked_for(service: Service) -> None:
    long = "a red dog " * 50
    async with service(max_text_chars=40) as client:
        answer = await embed(client, long, long[:40], "dog", truncate=True)
    found = vectors(answer)
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)
    assert [each.get("truncated") for each in answer["data"]] == [True, None, None]


@pytest.mark.parametrize("form", [{}, {"encoding_format": "base64"}, {"return_multivector": True}])
async def test_inputs_that_cannot_be_used_are_left_out_at_their_places(
    client: httpx.AsyncClient, form: dict[str, Any]
) -> None:
    """Clients join inputs and vectors by their order: there is an entry for each input."""
    name = "embeddings" if "return_multivector" in form else "embedding"
    found = await embed(client, "a red dog", " ", NO_PHOTO, "dog " * 100, "a star", **form)
    alone = await embed(client, "a red dog", "a star", **form)
    assert [each["index"] for each in found["data"]] == [0, 1, 2, 3, 4]
    assert [each[name] is None for each in found["data"]] == [False, True, True, True, False]
    if form.get("encoding_format") != "base64":
        for place, theirs in zip((0, 4), alone["data"], strict=True):
            np.testing.assert_allclose(found["data"][place][name], theirs[name], atol=1e-6)
    assert found["usage"] == alone["usage"]
    reasons = {each["index"]: each["reason"] for each in found["skipped"]}
    assert list(reasons) == [1, 2, 3]
    for reason, words in zip(
        reasons.values(), ("empty", "not an image", "at most 32"), strict=True
    ):
        assert words in reason
    assert "skipped" not in alone


async def test_the_model_is_listed_under_both_of_its_names(client: httpx.AsyncClient) -> None:
    listed = (await client.get("/v1/models")).json()
    names = [each["id"] for each in listed["data"]]
    assert (listed["object"], names[0][:7], names[1]) == ("list", "aladin-", "aladin")
    facts = ("object", "dimensions", "token_dimensions")
    assert [listed["data"][0][name] for name in facts] == ["model", 16, 8]
    for name in names:
        assert (await client.get(f"/v1/models/{name}")).json()["id"] == name
        assert (await embed(client, "a", model=name))["model"] == names[0]
        assert (await rerank(client, "a", "a", model=name))["model"] == names[0]
    unknown = await client.get("/v1/models/somebody/model")
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (404, "model")
    assert unknown.json()["error"]["code"] == "model_not_found"


async def test_a_full_queue_is_waited_for_and_one_without_a_place_refuses_the_whole(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, calls, open_ = QueryQueue.answer, itertools.count(), True

    async def answer_every_other(self: QueryQueue, job: EncodeJob) -> EncodedDocument:
        if not open_ or next(calls) % 2:
            raise OverloadedError(0.001 if open_ else 2.5)
        return await answer(self, job)

    monkeypatch.setattr(QueryQueue, "answer", answer_every_other)
    async with service() as client:
        assert len((await embed(client, *["a dog"] * 20))["data"]) == 20
        assert next(calls) >= 39
        open_ = False
        refused = await client.post("/v1/embeddings", json={"input": ["a dog"] * 20})
    assert (told(refused)[:2], refused.headers["retry-after"]) == ((429, "overloaded"), "3")


async def test_documents_have_lanes_of_their_own_and_requests_of_one_are_encoded_together(
    service: Service, photo: bytes
) -> None:
    async with service() as client:
        await asyncio.gather(*(embed(client, f"a red dog {number}") for number in range(40)))
        await embed(client, data_url(photo))
        metrics = (await client.get("/metrics")).text
    batches = re.search(r'aladin_batch_size_count\{lane="document_text"\} (\d+)', metrics)
    assert batches is not None
    assert 0 < int(batches[1]) < 40
    assert 'aladin_batch_size_count{lane="document_photo"} 1.0' in metrics
    assert 'aladin_batch_size_count{lane="text"} 0.0' in metrics


async def check_items(
    client: httpx.AsyncClient, target: str, query: object, **body: Any
) -> set[str]:
    """Compare the scores of all items of a collection with those of a search."""
    hits = await search(client, target, **body)
    results = by_index(await rerank(client, query, *({"id": each} for each in hits)))
    for result, hit in zip(results, hits.values(), strict=True):
        assert result["score"] == pytest.approx(hit["score"], abs=1e-6)
        relevance = hit["probability"]
        if result["scored_by"] == "matching":
            assert relevance is None
            relevance = (1 + result["score"]) / 2
        if result["scored_by"] != "fusion":
            assert result["relevance_score"] == pytest.approx(relevance, abs=1e-6)
    return {each["scored_by"] for each in results}


async def test_items_have_the_scores_and_probabilities_of_a_search(
    calibrated: httpx.AsyncClient, client: httpx.AsyncClient, photo: bytes
) -> None:
    plain = b64(photo)
    by_probability: list[tuple[str, object, dict[str, str]]] = [
        ("images", TEXT, {"text": TEXT}),
        ("texts", data_url(photo), {"image": plain}),
        ("texts", {"id": "plain"}, {"id": "plain"}),
    ]
    # Items of one modality: the embeddings decide alone.
    by_matching: list[tuple[str, object, dict[str, str]]] = [
        ("images", {"image": plain}, {"image": plain}),
        ("texts", {"text": TEXT}, {"text": TEXT}),
    ]
    for asked, scored_by in ((by_probability, "probability"), (by_matching, "matching")):
        for target, query, body in asked:
            assert await check_items(calibrated, target, query, **body) == {scored_by}
    kind = "fusion" if (await client.get("/v1/index")).json()["alignment_trained"] else "matching"
    answer = await rerank(
        client, TEXT, *({"id": each} for each in await search(client, "images", text=TEXT))
    )
    assert {each["scored_by"] for each in answer["results"]} == {kind}


async def test_added_items_are_scored_as_the_others_and_unreliable_probabilities_are_no_relevance(
    service: Service, index: Path
) -> None:
    store_calibration(index, made_up_calibration(describe(index).model.id))
    async with service(index) as client:
        new = {"id": "new", "text": "a red dog"}
        assert (await client.post("/v1/items/texts", json=new)).status_code == 201
        assert await check_items(client, "texts", {"id": "plain"}, id="plain") == {"probability"}
        made = made_up_calibration(describe(index).model.id)
        store_calibration(index, replace(made, other_photos=True))
        assert "probability" not in {
            each["scored_by"] for each in (await rerank(client, TEXT, {"id": "plain"}))["results"]
        }


async def test_documents_are_scored_as_items_with_the_same_content(
    calibrated: httpx.AsyncClient, data_file: Path, image_ids: list[str]
) -> None:
    """The index stores tokens as float16, which is the only difference."""
    photos = [(data_file.parent / f"photo-{n}.png").read_bytes() for n in range(6)]
    hits = await search(calibrated, "images", text=TEXT)
    texts = list((await search(calibrated, "texts", id="plain")).values())
    given = by_index(await rerank(calibrated, TEXT, *map(data_url, photos)))
    words = by_index(await rerank(calibrated, {"id": "plain"}, *(hit["text"] for hit in texts)))
    images = [hits[item_id] for item_id in image_ids]
    for result, hit in zip([*given, *words], [*images, *texts], strict=True):
        assert result["scored_by"] == "probability"
        assert result["score"] == pytest.approx(hit["score"], abs=0.01)
    for result, hit in zip(given, images, strict=True):
        # A photo of the index that is sent again competes with itself.
        assert result["relevance_score"] == pytest.approx(hit["probability"], abs=0.25)


async def test_mixed_documents_and_the_rest_of_the_answer(
    calibrated: httpx.AsyncClient, photo: bytes
) -> None:
    url = data_url(photo)
    given = ["two men", url, {"id": "plain"}, {"text": "a star"}, {"image": url}]
    answer = await rerank(calibrated, TEXT, *given, return_documents=True)
    kinds = [each["scored_by"] for each in by_index(answer)]
    assert kinds == ["matching", "probability", "probability", "matching", "probability"]
    assert [each["document"] for each in by_index(answer)] == [
        {"text": "two men"},
        {"text": ""},
        {"id": "plain", "text": "a blue square above a circle"},
        {"text": "a star"},
        {"text": ""},
    ]
    tokens = {"input_tokens": answer["usage"]["total_tokens"]}
    assert answer["meta"] == {"api_version": {"version": "2"}, "tokens": tokens}
    assert answer["generation"] == 2
    results = [
        {name: each[name] for name in each if name != "document"} for each in answer["results"]
    ]
    assert (await rerank(calibrated, TEXT, *given, top_n=2))["results"] == results[:2]
    for path in ("/v1/rerank", "/v2/rerank", "/rerank"):
        body = {"query": TEXT, "documents": given, "top_n": 0}
        assert (await calibrated.post(path, json=body)).json()["results"] == results


async def test_documents_are_cut_or_left_out_and_that_is_said(
    calibrated: httpx.AsyncClient, photo: bytes
) -> None:
    long, url = "a red dog runs in the street " * 100, data_url(photo)
    most = len(tiny_model().text.encoder.tokenizer.encode("a red dog").ids)
    cut = await rerank(calibrated, TEXT, long, "a red dog", max_tokens_per_doc=most)
    scores = [each["score"] for each in cut["results"]]
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)
    given = ["", "a dog", {"id": "nobody"}, url, NO_PHOTO, {"id": "plain"}, long]
    answer = await rerank(calibrated, TEXT, *given)
    alone = await rerank(calibrated, TEXT, "a dog", url, {"id": "plain"}, "a dog")
    assert [each["index"] for each in by_index(answer)] == [1, 3, 5, 6]
    for ours, theirs in zip(by_index(answer)[:3], by_index(alone), strict=False):
        assert ours["score"] == pytest.approx(theirs["score"], abs=1e-6)
        assert ours["scored_by"] == theirs["scored_by"]
    reasons = {each["index"]: each["reason"] for each in answer["skipped"]}
    assert list(reasons) == [0, 2, 4]
    for reason, words in zip(reasons.values(), ("empty", "'nobody'", "not an image"), strict=True):
        assert words in reason
    warnings = [each["meta"].get("warnings") for each in (cut, answer, alone)]
    counts = ["1 of 7 documents were cut", "3 of 7 documents were left out"]
    assert warnings == [["1 of 2 documents were cut"], counts, None]
    one_kind = await rerank(calibrated, TEXT, {"id": "plain"}, {"id": "nobody"})
    assert [each["index"] for each in one_kind["skipped"]] == [1]
    assert "skipped" not in alone


async def test_a_model_that_is_replaced_meanwhile(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents that another model encoded are encoded again, and not for ever."""
    encode, replaced = DocumentEncoder.encode, 0

    def encode_with_the_old_one(self: DocumentEncoder, *arguments: Any) -> Sequence[Any]:
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
        assert (await embed(client, "a star", "a dog"))["model"] == expected["model"]
        replaced = 100
        body = {"query": TEXT, "documents": ["a star"]}
        refused = await client.post("/v1/rerank", json=body)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")


@pytest.mark.slow
async def test_worker_processes_answer_the_same(
    calibrated_index: Path, calibrated: httpx.AsyncClient, photo: bytes
) -> None:
    given = ["two men", data_url(photo), {"id": "plain"}]
    settings, metrics = ServiceSettings(workers=2), Metrics()
    plan = WorkerPlan(index=calibrated_index, settings=settings)
    async with opened(create_app(ProcessWorkers(plan, metrics), settings, metrics)) as client:
        answers = [by_index(await rerank(each, TEXT, *given)) for each in (client, calibrated)]
        assert len((await embed(client, *given[:2]))["data"]) == 2
    for name in ("score", "relevance_score"):
        found, expected = ([each[name] for each in results] for results in answers)
        np.testing.assert_allclose(found, expected, atol=1e-5)
