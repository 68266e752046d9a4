"""Wrong keys, pictures that are none and a million hits, as each real client reports them."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from aladin_network.errors import InputError
from aladin_service.client_errors import NoAccessError, RefusedInputError
from tests.service.http.clients.generated_client import Generated

pytestmark = [
    pytest.mark.clients,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]

NONE = b"ABCDEFGH"  # no picture
NONE_URL = "data:image/png;base64," + base64.b64encode(NONE).decode()
Ask = Callable[..., Any]


def langchain(url: str, key: str, k: int, image: Path | None) -> Any:
    """Ask for `k` photos by LangChain's retriever."""
    from aladin_search.integrations.langchain import AladinRetriever

    with closing(AladinRetriever(url=url, api_key=key, k=k)) as retriever:  # type: ignore[arg-type]
        return retriever.invoke("a dog") if image is None else retriever.invoke("", image=image)


def llama_index(url: str, key: str, k: int, image: Path | None) -> Any:
    """Ask for `k` photos by LlamaIndex's retriever."""
    import asyncio

    from llama_index.core.schema import QueryBundle

    from aladin_search.integrations.llama_index import AladinRetriever

    retriever = AladinRetriever(url=url, api_key=key, similarity_top_k=k)
    text = "a dog" if image is None else ""
    query = QueryBundle(query_str=text, image_path=None if image is None else str(image))
    try:
        return retriever.retrieve(query)
    finally:
        asyncio.run(retriever.aclose())


def haystack(url: str, key: str, k: int, image: Path | None) -> Any:
    """Ask for `k` photos by Haystack's component."""
    from haystack.utils import Secret

    from aladin_search.integrations.haystack import AladinRetriever

    with closing(AladinRetriever(url=url, api_key=Secret.from_token(key), top_k=k)) as retriever:
        return retriever.run("a dog") if image is None else retriever.run("", image=image)


@pytest.mark.parametrize("ask", [langchain, llama_index, haystack])
def test_retrievers(ask: Ask, key_and_url: tuple[str, str], tmp_path: Path) -> None:
    key, url = key_and_url
    (tmp_path / "none.png").write_bytes(NONE)
    with pytest.raises(NoAccessError, match="invalid API key"):
        ask(url, "wrong", 3, None)
    with pytest.raises(RefusedInputError, match="k: Input should be less than or equal to 1000"):
        ask(url, key, 10**6, None)
    with pytest.raises(RefusedInputError, match="not an image"):
        ask(url, key, 3, tmp_path / "none.png")


def test_mteb(key_and_url: tuple[str, str]) -> None:
    from datasets import Dataset

    from aladin_search.integrations.mteb import IndexSearch

    with pytest.raises(InputError, match="hits: expected 1 to 1000, got 1000000"):
        IndexSearch(url=key_and_url[1], hits=10**6)
    model = IndexSearch(url=key_and_url[1], api_key="wrong")
    queries = Dataset.from_dict({"id": ["q"], "text": ["a dog"]})
    with pytest.raises(NoAccessError, match="invalid API key"):
        model.search(queries, task_metadata=_TextToImage, top_k=3)


class _TextToImage:
    """What the adapter reads of a task's description."""

    name = "task"

    @staticmethod
    def get_modalities(kind: Any) -> list[str]:
        """Return the modality of queries or of documents."""
        return ["text"] if "query" in str(kind).lower() else ["image"]


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
    left_out = client.embeddings.create(model="aladin", input=["a dog", NONE_URL])
    assert [each.embedding is None for each in left_out.data] == [False, True]
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
