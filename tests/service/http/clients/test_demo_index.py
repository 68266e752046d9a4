"""Real clients against one service of the demo's index, with what the service's routes answer.

The demo is drawn, trained and calibrated by its own code and recipe, on fewer scenes. With
TEST_DEMO, the folder that `aladin demo` has left, the clients are tested against that index.
"""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from shutil import copytree
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest

from aladin_index.generations.reader import open_index
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.types import NullProgress
from aladin_service.demo.prepare import prepare_index
from aladin_service.http.access.policy import make_policy
from aladin_service.http.app import create_app
from aladin_service.keys_file import add_key
from aladin_service.observe.metrics import Metrics
from aladin_service.settings import ServiceSettings
from aladin_service.work.worker import WorkerPlan
from aladin_service.work.workers import ThreadWorkers
from aladin_training.data import Record, read_records
from tests.service.http.clients.generated_client import Generated

pytestmark = [
    pytest.mark.clients,
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning"),
]

# Of `aladin demo`'s 6,000: enough for probabilities, and for a training of about a minute.
SCENES = 640
K = 20


class Demo(NamedTuple):
    """The demo, and a service of its index."""

    folder: Path
    records: list[Record]
    url: str
    key: str

    def answer(self, target: str = "images", **body: Any) -> dict[str, Any]:
        """Return the answer of the service's own route."""
        headers = {"Authorization": f"Bearer {self.key}"}
        body = {"k": K, **body}
        answer = httpx.post(f"{self.url}/v1/search/{target}", json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        assert answer.json()["hits"]
        return answer.json()

    def hits(self, target: str = "images", **body: Any) -> list[dict[str, Any]]:
        """Return the hits of the service's own route."""
        return self.answer(target, **body)["hits"]

    @property
    def text(self) -> str:
        """The first caption of a test scene."""
        return self.records[0].captions[0]


@pytest.fixture(scope="module")
def demo(
    tmp_path_factory: pytest.TempPathFactory,
    serve_in_thread: Callable[..., AbstractContextManager[str]],
) -> Iterator[Demo]:
    import mcp  # two threads must not import it at once, and the service does at its start

    assert mcp
    folder = tmp_path_factory.mktemp("demo")
    if given := os.environ.get("TEST_DEMO"):
        source = Path(given).absolute()
    else:
        source = folder
        prepare_index(folder / "index", folder, NullProgress(), scenes=SCENES)
    index = folder / "served"
    copytree(source / "index", index)
    key = add_key(folder / "keys.json", "writer", ["read", "write"])
    settings, metrics = ServiceSettings(keys_file=folder / "keys.json"), Metrics()
    workers = ThreadWorkers(WorkerPlan(index=index, settings=settings).make(), settings, metrics)
    policy = make_policy(settings)
    records = read_records(source / "data" / "captions.jsonl", "test")
    with serve_in_thread(create_app(workers, settings, metrics, policy=policy)) as url:
        yield Demo(source, records, url, key)


def check(found: list[tuple[str, float]], hits: list[dict[str, Any]]) -> None:
    """Check ids, in their order, and scores."""
    assert [item_id for item_id, _ in found] == [hit["id"] for hit in hits]
    assert [score for _, score in found] == pytest.approx([h["score"] for h in hits], abs=1e-6)


def data_url(photo: bytes) -> str:
    """Write a picture file into a URL."""
    return "data:image/png;base64," + base64.b64encode(photo).decode()


async def test_mcp(demo: Demo) -> None:
    import httpx2
    import mcp
    from mcp.client.streamable_http import streamable_http_client

    headers = {"Authorization": f"Bearer {demo.key}"}
    best, photo = demo.hits(text=demo.text)[0]["id"], demo.records[0].id
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        mcp.Client(streamable_http_client(f"{demo.url}/mcp", http_client=http)) as client,
    ):
        for tool, arguments, hits in (
            ("search", {"query": demo.text}, demo.hits(text=demo.text)),
            ("search", {"query": demo.text, "find": "texts"}, demo.hits("texts", text=demo.text)),
            ("search", {"id": photo, "find": "photos"}, demo.hits(id=photo)),
            ("search", {"id": photo, "find": "texts"}, demo.hits("texts", id=photo)),
        ):
            result = await client.call_tool(tool, {**arguments, "k": K})
            assert not result.is_error, result.content
            found = result.structured_content["hits"]
            check([(hit["id"], hit["score"]) for hit in found], hits)
        explained = await client.call_tool("show", {"id": best, "query": demo.text})
        words = explained.structured_content["words"]
        assert len(words) >= len(demo.text.split())
        maps = httpx.get(
            f"{demo.url}/v1/explain", params={"id": best, "text": demo.text}, headers=headers
        ).json()
        total = sum(word["score"] for word in words)
        assert total == pytest.approx(maps["align"], abs=1e-6 * len(words))


def test_cohere(demo: Demo) -> None:
    import cohere

    client = cohere.ClientV2(api_key=demo.key, base_url=demo.url)
    photo = demo.records[1].photo.read()
    by_photo = demo.answer("texts", image=base64.b64encode(photo).decode())
    for query, expected in ((demo.text, demo.answer(text=demo.text)), (data_url(photo), by_photo)):
        hits = expected["hits"]
        documents: Any = [{"id": hit["id"]} for hit in hits]
        answer = client.rerank(model="aladin", query=query, documents=documents)
        results = sorted(answer.results, key=lambda each: each.index)
        check([(hits[each.index]["id"], each.score) for each in results], hits)
        # Few scenes may be too few for probabilities that are reliable.
        scored_by = "probability" if expected["probabilities_reliable"] else "fusion"
        assert {each.scored_by for each in results} == {scored_by}
        if scored_by == "probability":
            for each, hit in zip(results, hits, strict=True):
                assert each.relevance_score == pytest.approx(hit["probability"], abs=1e-6)


def test_openai(demo: Demo) -> None:
    import openai

    client = openai.OpenAI(base_url=f"{demo.url}/v1", api_key=demo.key, max_retries=0)
    photos = [data_url(record.photo.read()) for record in demo.records[:8]]
    answer = client.embeddings.create(model="aladin", input=[demo.text, *photos])
    text, *vectors = (np.asarray(each.embedding) for each in answer.data)
    with open_index(demo.folder / "index") as index:
        searcher = TwoStageSearcher(index)
        for record, vector in zip(demo.records, vectors, strict=False):
            expected = searcher.stored_query(record.id).encoding.embedding[0]
            np.testing.assert_allclose(vector, expected, atol=1e-6)
    # Their cosines are the scores of the first stage.
    nearest = demo.hits(text=demo.text, rerank=False, k=len(demo.records))
    cosines = {hit["id"]: hit["stages"]["match"]["score"] for hit in nearest}
    for record, vector in zip(demo.records, vectors, strict=False):
        assert float(text @ vector) == pytest.approx(cosines[record.id], abs=1e-6)


def test_the_generated_client(demo: Demo, generated_aladin: Any) -> None:
    clients = Generated(generated_aladin, demo.url, demo.key)
    with clients.client, clients.stranger:
        for target in ("images", "texts"):
            body = clients.model("SearchBody").from_dict({"text": demo.text, "k": K})
            answer = clients.call(f"search.search_{target}", body=body)
            found = [(hit.id, hit.score) for hit in answer.hits]
            check(found, demo.hits(target, text=demo.text))
        images = clients.model("AddItemsTarget").IMAGES
        file = clients.file(io.BytesIO(demo.records[0].photo.read()), "a.png", "image/png")
        form = clients.model("NewItemForm")(id="added/1", image=file)
        assert clients.call("items.add_items", images, body=form).added == ["added/1"]
        body = clients.model("SearchBody").from_dict({"id": demo.records[0].id, "k": 1})
        (twin,) = clients.call("search.search_images", body=body).hits
        assert (twin.id, twin.score) == ("added/1", pytest.approx(1, abs=1e-5))
        target = clients.model("DeleteItemTarget").IMAGES
        assert clients.call("items.delete_item", target, "added/1").deleted == "added/1"
