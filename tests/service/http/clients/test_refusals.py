"""Wrong keys, pictures that are none and a million hits, as each real client reports them."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from typing import Any

import pytest

from tests.service.http.clients.generated_client import Generated

pytestmark = [
    pytest.mark.clients,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]

NONE = b"ABCDEFGH"  # no picture
NONE_URL = "data:image/png;base64," + base64.b64encode(NONE).decode()


def test_cohere_and_litellm(key_and_url: tuple[str, str]) -> None:
    import cohere
    import litellm

    key, url = key_and_url
    client = cohere.ClientV2(api_key=key, base_url=url)
    for query, documents in (("a dog", [NONE_URL]), (NONE_URL, ["a dog"])):
        with pytest.raises(cohere.core.ApiError) as refused:
            client.rerank(model="aladin", query=query, documents=documents)
        assert refused.value.status_code == 415
        assert "not an image" in refused.value.body["message"]
    for provider in ("cohere", "hosted_vllm", "jina_ai"):
        options = {"model": f"{provider}/aladin", "api_base": url, "query": "a"}
        with pytest.raises(Exception, match="got 10000"):
            litellm.rerank(**options, api_key=key, documents=["a"] * 10_000)
        with pytest.raises(Exception, match="invalid API key"):
            litellm.rerank(**options, api_key="wrong", documents=["a"])


def test_openai(key_and_url: tuple[str, str]) -> None:
    import openai

    key, url = key_and_url
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)
    with pytest.raises(openai.APIStatusError) as refused:
        client.embeddings.create(model="aladin", input=[NONE_URL])
    found = (refused.value.status_code, refused.value.code, refused.value.param)
    assert found == (415, "not_an_image", "input[0]")
    skipped = client.embeddings.create(model="aladin", input=["a dog", NONE_URL])
    assert [each.embedding is None for each in skipped.data] == [False, True]
    with pytest.raises(openai.UnprocessableEntityError, match="got 10000") as many:
        client.embeddings.create(model="aladin", input=["a"] * 10_000)
    assert many.value.param == "input"


@pytest.fixture
def generated(key_and_url: tuple[str, str], generated_aladin: Any) -> Iterator[Generated]:
    clients = Generated(generated_aladin, key_and_url[1], key_and_url[0])
    with clients.client, clients.stranger:
        yield clients


def test_the_generated_client(generated: Generated) -> None:
    body = generated.model("SearchBody").from_dict({"text": "a dog", "k": 10**6})
    many = generated.answer(generated.client, "search.search_images", body=body)
    assert (many.status_code, many.parsed.error.code) == (422, "invalid_field")
    assert "k: " in many.parsed.error.message
    file = generated.file(io.BytesIO(NONE), "none.png", "image/png")
    form = generated.model("SearchForm")(image=file)
    none = generated.answer(generated.client, "search.search_texts", body=form)
    assert (none.status_code, none.parsed.error.code) == (415, "not_an_image")
