"""Re-ranking by the clients of Cohere and of LiteLLM."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import httpx
import pytest

pytestmark = [
    pytest.mark.clients,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]

TEXT = "a red dog runs"


def searched(key: str, url: str, **body: Any) -> dict[str, Any]:
    """Return the photos that a search finds, by id."""
    headers = {"Authorization": f"Bearer {key}"}
    answer = httpx.post(f"{url}/v1/search/images", json={"k": 20, **body}, headers=headers)
    return {hit["id"]: hit for hit in answer.json()["hits"]}


def test_cohere(key_and_url: tuple[str, str], photo_folder: Path) -> None:
    import cohere

    key, url = key_and_url
    photo = (photo_folder / "photo.jpg").read_bytes()
    data_url = "data:image/jpeg;base64," + base64.b64encode(photo).decode()
    client = cohere.ClientV2(api_key=key, base_url=url)
    hits = searched(key, url, text=TEXT)
    documents: Any = [{"id": each} for each in hits]
    answer = client.rerank(model="aladin", query=TEXT, documents=documents)
    assert len(answer.results) == len(hits)
    for result in answer.results:
        hit = list(hits.values())[result.index]
        assert result.relevance_score == pytest.approx(hit["probability"], abs=1e-6)
        assert result.score == pytest.approx(hit["score"], abs=1e-6)
        assert result.scored_by == "probability"
    assert answer.meta is not None
    assert answer.meta.tokens is not None
    encoded = httpx.post(
        f"{url}/v1/embeddings", json={"input": TEXT}, headers={"Authorization": f"Bearer {key}"}
    )
    assert answer.meta.tokens.input_tokens == encoded.json()["usage"]["total_tokens"]

    mixed = client.rerank(model="aladin", query=data_url, documents=[data_url, "a dog"], top_n=1)
    assert [each.index for each in mixed.results] == [0]
    assert mixed.results[0].relevance_score == pytest.approx(1, abs=1e-6)

    with pytest.raises(cohere.UnprocessableEntityError) as many:
        client.rerank(model="aladin", query="a", documents=["a"] * 10_000)
    assert "got 10000" in many.value.body["message"]
    with pytest.raises(cohere.NotFoundError, match="is not served here"):
        client.rerank(model="rerank-v3.5", query="a", documents=["a"])
    wrong = cohere.ClientV2(api_key="wrong", base_url=url)
    with pytest.raises(cohere.UnauthorizedError) as rejected:
        wrong.rerank(model="aladin", query="a", documents=["a"])
    assert rejected.value.body["message"] == "invalid API key"


@pytest.mark.parametrize("provider", ["cohere", "hosted_vllm", "jina_ai"])
def test_litellm(key_and_url: tuple[str, str], provider: str) -> None:
    import litellm

    key, url = key_and_url
    hits = searched(key, url, text=TEXT)
    answer: Any = litellm.rerank(
        model=f"{provider}/aladin",
        api_base=url,
        api_key=key,
        query=TEXT,
        documents=[*({"id": each} for each in hits), "a star"],
        top_n=3,
        return_documents=True,
    )
    assert len(answer.results) == 3
    best: dict[int, float] = {place: hit["probability"] for place, hit in enumerate(hits.values())}
    for result in answer.results:
        if result["index"] in best:
            expected = best[result["index"]]
            assert result["relevance_score"] == pytest.approx(expected, abs=1e-6)
            assert result["document"]["text"]
