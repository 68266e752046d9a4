"""Embeddings by the clients of OpenAI and of LiteLLM."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aladin_index.generations.reader import open_index
from aladin_index.search.searcher import TwoStageSearcher

pytestmark = [
    pytest.mark.clients,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]


def test_openai(key_and_url: tuple[str, str], calibrated_index: Path, data_file: Path) -> None:
    import openai

    key, url = key_and_url
    item = json.loads(data_file.read_text(encoding="utf-8").splitlines()[2])
    photo = (data_file.parent / item["image"]).read_bytes()
    with open_index(calibrated_index) as index:
        expected = TwoStageSearcher(index).stored_query(item["id"]).encoding.embedding[0]
    data_url = "data:image/png;base64," + base64.b64encode(photo).decode()
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)

    for form in ({}, {"encoding_format": "float"}):  # the client's own default is base64
        answer = client.embeddings.create(model="aladin", input=["a dog", data_url], **form)
        np.testing.assert_allclose(answer.data[1].embedding, expected, atol=1e-6)
        assert [each.index for each in answer.data] == [0, 1]
    models = [each.id for each in client.models.list()]
    assert answer.model == models[0]
    assert client.models.retrieve(models[0]).owned_by == "aladin-search"
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > 4

    with pytest.raises(openai.UnprocessableEntityError) as refused:
        client.embeddings.create(model="aladin", input=[[1, 2, 3]])
    assert (refused.value.code, refused.value.param) == ("invalid_field", "input")
    with pytest.raises(openai.NotFoundError) as missing:
        client.models.retrieve("gpt-5")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.AuthenticationError) as wrong:
        openai.OpenAI(base_url=f"{url}/v1", api_key="wrong").models.list()
    assert (wrong.value.type, wrong.value.code) == ("authentication_error", "unauthorized")


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm"])
def test_litellm(key_and_url: tuple[str, str], provider: str) -> None:
    import litellm
    import openai

    key, url = key_and_url
    texts = ["a red dog runs", "a star on the grass"]
    answer: Any = litellm.embedding(
        model=f"{provider}/aladin", api_base=f"{url}/v1", api_key=key, input=texts
    )
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=key)
    expected = client.embeddings.create(model="aladin", input=texts)
    for own, other in zip(answer.data, expected.data, strict=True):
        assert own["embedding"] == pytest.approx(other.embedding, abs=1e-6)
    with pytest.raises(litellm.exceptions.AuthenticationError):
        litellm.embedding(
            model=f"{provider}/aladin", api_base=f"{url}/v1", api_key="wrong", input=texts
        )
