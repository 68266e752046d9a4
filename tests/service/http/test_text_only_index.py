"""An index of a network for texts alone, over HTTP: texts find texts, photos are refused."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

import aladin_search
from aladin_network.checkpoint import load_checkpoint
from aladin_network.conversion.multivector import convert_multivector
from aladin_network.model import AladinModel
from aladin_network.scoring.scores import alignment_scores
from tests.aladin.conversion.text_networks import DOCUMENTS, QUERIES, write_of_pylate
from tests.tensors import encode_documents, encode_texts

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    write_of_pylate(folder / "source")
    convert_multivector(str(folder / "source"), folder / "model")
    lines = [{"id": f"d{number}", "text": text} for number, text in enumerate(DOCUMENTS)]
    (folder / "texts.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    built = aladin_search.build(
        None, folder / "texts.jsonl", model=folder / "model", out=folder / "index"
    )
    built.close()
    return folder


@pytest.fixture(scope="module")
def network(folder: Path) -> AladinModel:
    return load_checkpoint(folder / "model").model


def photo() -> bytes:
    file = BytesIO()
    Image.fromarray(np.zeros((20, 30, 3), dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()


async def test_text_queries_find_texts(
    service: Service, folder: Path, network: AladinModel
) -> None:
    documents = encode_documents(network, DOCUMENTS)
    async with service(folder / "index") as client:
        info = (await client.get("/v1/index")).json()
        assert info["text_only"] and info["alignment_trained"]
        assert info["images"] is None and info["texts"]["count"] == len(DOCUMENTS)
        for query in QUERIES:
            scores = alignment_scores(documents, encode_texts(network, [query]))[:, 0]
            body = {"text": query, "k": 5}
            answer = (await client.post("/v1/search/texts", json=body)).json()
            assert answer["reranked"] is True and answer["degraded"] == []
            found = {hit["id"]: hit["stages"]["align"]["score"] for hit in answer["hits"]}
            order = [f"d{number}" for number in scores.argsort(descending=True).tolist()]
            assert list(found) == order
            expected = {f"d{number}": score for number, score in enumerate(scores.tolist())}
            assert found == pytest.approx(expected, abs=0.01)


async def test_documents_are_ranked_and_embedded_in_their_roles(
    service: Service, folder: Path, network: AladinModel
) -> None:
    texts = [*DOCUMENTS[:3], "red " * 40]
    documents = encode_documents(network, texts)
    queries = encode_texts(network, ["a red dog"])
    scores = alignment_scores(documents, queries)[:, 0]

    async def embedded(client: httpx.AsyncClient, **body: Any) -> np.ndarray:
        response = await client.post("/v1/embeddings", json=body)
        assert response.status_code == 200, response.text
        return np.array([each["embedding"] for each in response.json()["data"]])

    async with service(folder / "index") as client:
        body = {"query": "a red dog", "documents": texts}
        ranked = (await client.post("/v1/rerank", json=body)).json()["results"]
        order = scores.argsort(descending=True).tolist()
        assert [each["index"] for each in ranked] == order
        found = await embedded(client, input=texts, truncate=True)
        np.testing.assert_allclose(found, documents.embedding, atol=1e-6)
        own = await embedded(client, input=["a red dog"], input_type="query")
        np.testing.assert_allclose(own, queries.embedding, atol=1e-6)
        long = await client.post("/v1/embeddings", json={"input": texts})
        assert [each["embedding"] is None for each in long.json()["data"]] == [False] * 3 + [True]
        (left_out,) = long.json()["left_out"]
        assert "43 tokens" in left_out["reason"], long.text


async def test_photos_are_refused(service: Service, folder: Path) -> None:
    url = "data:image/png;base64," + base64.b64encode(photo()).decode()
    async with service(folder / "index") as client:
        asked = [
            await client.post("/v1/search/texts", files={"image": ("a.png", photo())}),
            await client.post("/v1/rerank", json={"query": {"image": url}, "documents": ["a"]}),
            await client.post("/v1/embeddings", json={"input": [{"image": url}]}),
            await client.get("/v1/explain", params={"text": "a dog", "id": "d0"}),
            await client.get("/v1/explain.png", params={"text": "a dog", "id": "d0"}),
        ]
        for response in asked:
            assert response.status_code == 422, response.text
            assert "reads texts only" in response.text
        missing = await client.post("/v1/search/images", json={"text": "a dog"})
        assert missing.status_code == 404
        assert "this index has no images, only texts" in missing.text
        added = await client.post(
            "/v1/items/images", files={"image": ("a.png", photo())}, data={"item": '{"id": "a"}'}
        )
        assert added.status_code in (404, 422), added.text
