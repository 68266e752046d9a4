"""Embeddings and re-ranking by the clients of OpenAI, Cohere and LiteLLM, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from aladin_index.generations.reader import open_index
from aladin_index.search.searcher import TwoStageSearcher
from tests.service.http.conftest import data_url

pytestmark = [
    pytest.mark.clients,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]

TEXT = "a red dog runs"
NO_PHOTO = data_url(b"ABCDEFGH")


def answer(key_and_url: tuple[str, str], path: str, **body: Any) -> dict[str, Any]:
    """Return what the service's own route answers."""
    key, url = key_and_url
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.post(f"{url}/v1/{path}", json=body, headers=headers).raise_for_status().json()


def test_embeddings_by_openai(
    key_and_url: tuple[str, str], calibrated_index: Path, data_file: Path
) -> None:
    import openai

    key, url = key_and_url
    item = json.loads(data_file.read_text(encoding="utf-8").splitlines()[2])
    photo = data_url((data_file.parent / item["image"]).read_bytes())
    with open_index(calibrated_index) as index:
        expected = TwoStageSearcher(index).stored_query(item["id"]).encoding.embedding[0]
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)
    for form in ({}, {"encoding_format": "float"}):  # the client's own default is base64
        found = client.embeddings.create(model="aladin", input=["a dog", photo], **form)
        np.testing.assert_allclose(found.data[1].embedding, expected, atol=1e-6)
        assert [each.index for each in found.data] == [0, 1]
    models = [each.id for each in client.models.list()]
    assert found.model == models[0]
    assert client.models.retrieve(models[0]).owned_by == "aladin-search"
    assert found.usage.prompt_tokens == found.usage.total_tokens > 4
    skipped = client.embeddings.create(model="aladin", input=["a dog", NO_PHOTO])
    assert [each.embedding is None for each in skipped.data] == [False, True]
    refusals: list[tuple[Any, int, str, str]] = [
        ([[1, 2, 3]], 422, "invalid_field", "input"),
        (["a"] * 10_000, 422, "invalid_field", "input"),
        ([NO_PHOTO], 415, "not_an_image", "input[0]"),
    ]
    for inputs, status, code, param in refusals:
        with pytest.raises(openai.APIStatusError) as refused:
            client.embeddings.create(model="aladin", input=inputs)
        told = refused.value.status_code, refused.value.code, refused.value.param
        assert told == (status, code, param)
    with pytest.raises(openai.NotFoundError) as missing:
        client.models.retrieve("gpt-5")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.AuthenticationError) as wrong:
        openai.OpenAI(base_url=f"{url}/v1", api_key="wrong").models.list()
    assert (wrong.value.type, wrong.value.code) == ("authentication_error", "unauthorized")


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm"])
def test_embeddings_by_litellm(key_and_url: tuple[str, str], provider: str) -> None:
    import litellm

    key, url = key_and_url
    texts = ["a red dog runs", "a star on the grass"]
    asked = {"model": f"{provider}/aladin", "api_base": f"{url}/v1", "input": texts}
    found: Any = litellm.embedding(**asked, api_key=key)
    expected = answer(key_and_url, "embeddings", input=texts)
    for own, other in zip(found.data, expected["data"], strict=True):
        assert own["embedding"] == pytest.approx(other["embedding"], abs=1e-6)
    with pytest.raises(litellm.exceptions.AuthenticationError):
        litellm.embedding(**asked, api_key="wrong")


def test_rerank_by_cohere(key_and_url: tuple[str, str], photo: bytes) -> None:
    import cohere

    key, url = key_and_url
    client = cohere.ClientV2(api_key=key, base_url=url)
    hits = answer(key_and_url, "search/images", text=TEXT, k=20)["hits"]
    documents: Any = [{"id": hit["id"]} for hit in hits]
    found = client.rerank(model="aladin", query=TEXT, documents=documents)
    assert len(found.results) == len(hits)
    for result in found.results:
        hit = hits[result.index]
        assert result.relevance_score == pytest.approx(hit["probability"], abs=1e-6)
        assert result.score == pytest.approx(hit["score"], abs=1e-6)
        assert result.scored_by == "probability"
    assert found.meta is not None
    assert found.meta.tokens is not None
    usage = answer(key_and_url, "embeddings", input=TEXT)["usage"]
    assert found.meta.tokens.input_tokens == usage["total_tokens"]
    picture = data_url(photo)
    mixed = client.rerank(model="aladin", query=picture, documents=[picture, "a dog"], top_n=1)
    (best,) = mixed.results
    assert (best.index, best.relevance_score) == (0, pytest.approx(1, abs=1e-6))
    wrong = cohere.ClientV2(api_key="wrong", base_url=url)
    for asked, model, query, texts, status, words in (
        (client, "aladin", "a", ["a"] * 10_000, 422, "got 10000"),
        (client, "aladin", "a dog", [NO_PHOTO], 415, "not an image"),
        (client, "aladin", NO_PHOTO, ["a dog"], 415, "not an image"),
        (client, "rerank-v3.5", "a", ["a"], 404, "is not served here"),
        (wrong, "aladin", "a", ["a"], 401, "invalid API key"),
    ):
        with pytest.raises(cohere.core.ApiError) as refused:
            asked.rerank(model=model, query=query, documents=texts)
        assert refused.value.status_code == status
        assert words in refused.value.body["message"]


@pytest.mark.parametrize("provider", ["cohere", "hosted_vllm", "jina_ai"])
def test_rerank_by_litellm(key_and_url: tuple[str, str], provider: str) -> None:
    import litellm

    key, url = key_and_url
    hits = answer(key_and_url, "search/images", text=TEXT, k=20)["hits"]
    asked = {"model": f"{provider}/aladin", "api_base": url, "query": TEXT}
    documents = [*({"id": hit["id"]} for hit in hits), "a star"]
    more = {"api_key": key, "top_n": 3, "return_documents": True}
    found: Any = litellm.rerank(**asked, **more, documents=documents)
    assert len(found.results) == 3
    for result in found.results:
        if result["index"] < len(hits):
            expected = hits[result["index"]]["probability"]
            assert result["relevance_score"] == pytest.approx(expected, abs=1e-6)
            assert result["document"]["text"]
    with pytest.raises(Exception, match="got 10000"):
        litellm.rerank(**asked, api_key=key, documents=["a"] * 10_000)
    with pytest.raises(Exception, match="invalid API key"):
        litellm.rerank(**asked, api_key="wrong", documents=["a"])
