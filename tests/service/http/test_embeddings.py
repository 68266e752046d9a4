"""Embeddings and models in OpenAI's shape."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from aladin_index.generations.reader import open_index
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.errors import OverloadedError
from aladin_service.http import documents
from aladin_service.search.job import EncodedDocument, EncodeJob
from aladin_service.work.queues import QueryQueue

pytestmark = pytest.mark.anyio

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]
Encoded = Callable[..., bytes]


def data_url(photo: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(photo).decode()


async def embed(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    """Ask for embeddings; the answer has to be a success."""
    response = await client.post("/v1/embeddings", json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def refusal(client: httpx.AsyncClient, **body: Any) -> tuple[int, dict[str, Any]]:
    """Return the status and the error of a request that is refused."""
    response = await client.post("/v1/embeddings", json=body)
    assert set(response.json()) == {"error"}, response.text
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    return response.status_code, response.json()["error"]


@pytest.fixture(scope="session")
def stored(index_folder: Path, data_file: Path) -> list[tuple[str | bytes, np.ndarray]]:
    """Texts and photos as they were indexed, with their embeddings in the index."""
    found: list[tuple[str | bytes, np.ndarray]] = []
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


async def test_embeddings_are_those_of_the_index(
    service: Service, stored: list[tuple[str | bytes, np.ndarray]]
) -> None:
    inputs = [each if isinstance(each, str) else data_url(each) for each, _ in stored]
    async with service(max_batch=4) as client:  # so that there are several batches
        answer = await embed(client, input=inputs, model="aladin")
    assert [each["index"] for each in answer["data"]] == list(range(len(inputs)))
    found = np.array([each["embedding"] for each in answer["data"]])
    expected = np.stack([embedding for _, embedding in stored])
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert answer["object"] == "list"
    assert {each["object"] for each in answer["data"]} == {"embedding"}


async def test_queries_in_bfloat16_do_not_make_embeddings_less_precise(
    service: Service, stored: list[tuple[str | bytes, np.ndarray]]
) -> None:
    text, expected = stored[-1]
    async with service(query_precision="bfloat16") as client:
        answer = await embed(client, input=text)
    np.testing.assert_allclose(answer["data"][0]["embedding"], expected, atol=1e-6)


async def test_base64_holds_the_same_numbers(service: Service) -> None:
    async with service() as client:
        (plain,) = (await embed(client, input="a red dog"))["data"]
        (coded,) = (await embed(client, input="a red dog", encoding_format="base64"))["data"]
    numbers = np.frombuffer(base64.b64decode(coded["embedding"]), dtype="<f4")
    np.testing.assert_allclose(numbers, plain["embedding"], atol=1e-6)


async def test_tokens_are_those_of_the_second_stage(
    service: Service, query_photo: Image.Image, encoded: Encoded
) -> None:
    photo = encoded(query_photo)
    query = {"image": base64.b64encode(photo).decode(), "k": 12, "fusion": 1}
    async with service() as client:
        found = await client.post("/v1/search/texts", json=query)
        hits = {hit["text"]: hit for hit in found.json()["hits"]}
        asked = {"input": [{"image": data_url(photo)}, *hits], "return_multivector": True}
        answer = await embed(client, **asked)
        coded = await embed(client, **asked, encoding_format="base64")
    regions, *texts = (np.array(each["embeddings"]) for each in answer["data"])
    assert "embedding" not in answer["data"][0]
    np.testing.assert_allclose(np.linalg.norm(regions, axis=1), 1, atol=1e-5)
    for words, hit in zip(texts, hits.values(), strict=True):
        align = (words @ regions.T).max(axis=1).sum()
        # The index stores its tokens as float16.
        assert align == pytest.approx(hit["stages"]["align"]["score"], abs=0.01)
    for plain, own in zip([regions, *texts], coded["data"], strict=True):
        rows = [np.frombuffer(base64.b64decode(each), dtype="<f4") for each in own["embeddings"]]
        np.testing.assert_allclose(rows, plain, atol=1e-6)


async def test_tokens_are_counted_by_the_tokenizer(
    service: Service, build_tiny: Callable[[], Any], query_photo: Image.Image, encoded: Encoded
) -> None:
    texts = ["a red dog", "two men ride a motorcycle in the street"]
    tokenizer = build_tiny().text.encoder.tokenizer
    expected = sum(len(tokenizer.encode(text).ids) for text in texts)
    photo = data_url(encoded(query_photo))
    async with service() as client:
        usage = (await embed(client, input=texts))["usage"]
        assert usage == {"prompt_tokens": expected, "total_tokens": expected}
        regions = (await embed(client, input=photo, return_multivector=True))["data"][0]
        usage = (await embed(client, input=photo))["usage"]
        assert usage["prompt_tokens"] == len(regions["embeddings"])


async def test_every_form_of_a_photo_is_the_same_photo(
    service: Service, query_photo: Image.Image, encoded: Encoded
) -> None:
    photo = encoded(query_photo)
    url, plain = data_url(photo), base64.b64encode(photo).decode()
    forms = [
        url,
        {"image": url},
        {"image": plain},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    async with service() as client:
        answer = await embed(client, input=forms)
        one = await embed(client, input={"image": plain})
        text = await embed(client, input=[{"text": "a dog"}, {"type": "text", "text": "a dog"}])
    vectors = np.array([each["embedding"] for each in [*answer["data"], *one["data"]]])
    np.testing.assert_allclose(vectors, np.tile(vectors[:1], (5, 1)), atol=1e-6)
    assert text["data"][0]["embedding"] == pytest.approx(text["data"][1]["embedding"], abs=1e-6)


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({}, "input", "expected a text or a photo, or a list of them, got none"),
    ({"input": []}, "input", "expected 1 to 1000"),
    ({"input": ["a"] * 1001}, "input", "got 1001"),
    ({"input": [1, 2, 3]}, "input", "token ids are not accepted"),
    ({"input": [[1, 2], [3]]}, "input", "token ids are not accepted"),
    ({"input": [" ", ""]}, "input[0]", "the text is empty"),
    ({"input": [{"id": "plain"}]}, "input[0]", "unknown field 'id'"),
    ({"input": [{"text": "a", "image": "b"}]}, "input[0]", "got text and image"),
    ({"input": [{"image": 3}]}, "input[0].image", "expected a string, got a number"),
    ({"input": [None]}, "input[0]", "got null"),
    ({"input": ["data:image/png;base64,???"]}, "input[0]", "expected a data URL"),
    ({"input": "a", "dimensions": 8}, "dimensions", "expected 16, got 8"),
    ({"input": "a", "encoding_format": "int8"}, "encoding_format", "'float' or 'base64'"),
    ({"input": "a", "late_chunking": True}, "late_chunking", "unknown field"),
    ({"input": "word " * 500}, "input[0]", "2500 characters, at most 2000"),
    ({"input": "dog " * 100}, "input[0]", "tokens"),
]


async def test_wrong_requests(service: Service) -> None:
    async with service() as client:
        for body, param, part in WRONG:
            status, error = await refusal(client, **body)
            told = (status, error["type"], error["param"])
            assert told == (422, "invalid_request_error", param), error
            assert part in error["message"]


async def test_other_files_and_photos_that_are_too_large_are_refused(
    service: Service, query_photo: Image.Image, encoded: Encoded
) -> None:
    photo = data_url(encoded(query_photo))  # of 64 x 48 pixels
    async with service(max_document_pixels=7000) as client:
        status, error = await refusal(client, input=[{"image": "QUJDREVGR0g="}, ""])
        assert (status, error["code"], error["param"]) == (415, "not_an_image", "input[0]")
        await embed(client, input=[photo, photo])
        status, error = await refusal(client, input=[photo, photo, photo])
        assert (status, error["code"]) == (413, "image_too_large")
        assert "3 photos: more than 7000 pixels together" in error["message"]
        for url in ("http://10.0.0.1/a.png", "https://photos.test/a.png"):
            for image in ({"image": url}, {"type": "image_url", "image_url": {"url": url}}):
                status, error = await refusal(client, input=["a dog", image])
                assert (status, error["param"]) == (422, "input[1]")
                assert error["message"].endswith(
                    "expected a data URL of an image, or base64, got a URL; this service does not"
                    " fetch photos"
                )
    async with service(max_body_bytes=1024) as client:
        status, error = await refusal(client, input="a" * 2000)
        assert (status, error["code"]) == (413, "body_too_large")


async def test_long_texts_are_cut_if_that_is_asked_for(service: Service) -> None:
    async with service(max_text_chars=40) as client:
        cut = await embed(client, input="a red dog " * 50, truncate=True)
        same = await embed(client, input=("a red dog " * 50)[:40])
        tokens = await embed(client, input=["dog " * 9, "dog"], truncate=True)
    assert cut["data"][0]["embedding"] == pytest.approx(same["data"][0]["embedding"], abs=1e-6)
    assert cut["data"][0]["truncated"] is True
    assert all("truncated" not in each for each in tokens["data"])


@pytest.mark.parametrize("form", [{}, {"encoding_format": "base64"}, {"return_multivector": True}])
async def test_inputs_that_cannot_be_used_are_left_out_at_their_places(
    service: Service, form: dict[str, Any]
) -> None:
    """Clients join inputs and vectors by their order: there is an entry for each input."""
    inputs = ["a red dog", " ", {"image": "QUJDREVGR0g="}, "dog " * 100, "a star"]
    name = "embeddings" if "return_multivector" in form else "embedding"
    async with service() as client:
        found = await embed(client, input=inputs, **form)
        alone = await embed(client, input=["a red dog", "a star"], **form)
    assert [each["index"] for each in found["data"]] == [0, 1, 2, 3, 4]
    assert [each[name] for each in found["data"][1:4]] == [None] * 3
    own = [found["data"][place] for place in (0, 4)]
    if form.get("encoding_format") != "base64":
        for ours, theirs in zip(own, alone["data"], strict=True):
            np.testing.assert_allclose(ours[name], theirs[name], atol=1e-6)
    assert found["usage"] == alone["usage"]
    assert [each["index"] for each in found["skipped"]] == [1, 2, 3]
    reasons = [each["reason"] for each in found["skipped"]]
    assert reasons[0] == "the text is empty"
    assert "not an image" in reasons[1]
    assert "tokens, at most 32" in reasons[2]
    assert "skipped" not in alone


async def test_models(service: Service) -> None:
    async with service() as client:
        listed = (await client.get("/v1/models")).json()
        assert listed["object"] == "list"
        names = [each["id"] for each in listed["data"]]
        assert names[1] == "aladin"
        assert names[0].startswith("aladin-")
        first = listed["data"][0]
        assert (first["object"], first["dimensions"], first["token_dimensions"]) == ("model", 16, 8)
        for name in names:
            assert (await client.get(f"/v1/models/{name}")).json()["id"] == name
            assert (await embed(client, input="a", model=name))["model"] == names[0]
        for response in (
            await client.get("/v1/models/somebody/model"),
            await client.post("/v1/embeddings", json={"input": "a", "model": "somebody/model"}),
        ):
            assert response.status_code == 404
            error = response.json()["error"]
            assert (error["code"], error["param"]) == ("model_not_found", "model")
            assert names[0] in error["message"]


async def test_other_methods_and_rejections_have_the_same_shape(service: Service) -> None:
    async with service() as client:
        wrong = await client.get("/v1/embeddings")
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")
        foreign = await client.post(
            "/v1/embeddings", json={"input": "a"}, headers={"Origin": "http://evil.example"}
        )
        assert (foreign.status_code, foreign.json()["error"]["type"]) == (403, "permission_error")


async def test_a_service_without_an_index(service: Service, tmp_path: Path) -> None:
    async with service(index=tmp_path) as client:
        status, error = await refusal(client, input="a dog")
        assert (status, error["type"], error["code"]) == (503, "server_error", "index_not_ready")


async def test_a_full_queue_is_waited_for(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, calls = QueryQueue.answer, itertools.count()

    async def answer_every_other(self: QueryQueue, job: EncodeJob) -> EncodedDocument:
        if next(calls) % 2:
            raise OverloadedError(0.001)
        return await answer(self, job)

    monkeypatch.setattr(QueryQueue, "answer", answer_every_other)
    async with service() as client:
        assert len((await embed(client, input=["a dog"] * 20))["data"]) == 20
    assert next(calls) >= 39


async def test_a_queue_without_a_place_refuses_the_whole_request(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(self: QueryQueue, job: EncodeJob) -> EncodedDocument:
        del self, job
        raise OverloadedError(2.5)

    monkeypatch.setattr(QueryQueue, "answer", refuse)
    async with service() as client:
        response = await client.post("/v1/embeddings", json={"input": ["a dog"] * 20})
    assert (response.status_code, response.headers["retry-after"]) == (429, "3")
    error = response.json()["error"]
    assert (error["type"], error["code"]) == ("rate_limit_error", "overloaded")


async def test_vectors_together_have_a_largest_size(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with service() as client:
        whole = await client.post("/v1/embeddings", json={"input": ["a red dog"] * 8})
        monkeypatch.setattr(documents, "MAX_ANSWER_BYTES", len(whole.content) // 2)
        refused = await client.post("/v1/embeddings", json={"input": ["a red dog"] * 8})
        few = await client.post("/v1/embeddings", json={"input": ["a red dog"] * 2})
    assert whole.status_code == few.status_code == 200
    assert (refused.status_code, refused.json()["error"]["code"]) == (413, "answer_too_large")


async def test_many_requests_of_one_input_are_admitted_like_queries(service: Service) -> None:
    async with service() as client:
        asked = [embed(client, input=f"a red dog {n}") for n in range(40)]
        answers = await asyncio.gather(*asked)
        sizes = (await client.get("/metrics")).text
    assert all(len(each["data"]) == 1 for each in answers)
    batches = re.search(r'aladin_batch_size_count\{lane="document_text"\} (\d+)', sizes)
    assert batches is not None
    assert int(batches[1]) < 40  # concurrent requests are encoded together


async def test_documents_have_lanes_of_their_own(
    service: Service, query_photo: Image.Image, encoded: Encoded
) -> None:
    async with service() as client:
        await embed(client, input=["a dog", data_url(encoded(query_photo))])
        metrics = (await client.get("/metrics")).text
    assert 'aladin_batch_size_count{lane="document_text"} 1.0' in metrics
    assert 'aladin_batch_size_count{lane="document_photo"} 1.0' in metrics
    assert 'aladin_batch_size_count{lane="text"} 0.0' in metrics
    assert 'route="/v1/embeddings",status="200"' in metrics
