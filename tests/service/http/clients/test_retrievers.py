"""Retrievers of LangChain, LlamaIndex and Haystack, over an index and over a service."""

from __future__ import annotations

import asyncio
import base64
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

import aladin_search

pytestmark = [
    pytest.mark.clients,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]

GUIDE = Path(__file__).parents[4] / "docs" / "doors" / "retrievers.md"
TEXT = "a red dog runs"
# Both of the data's fields: a number, and a list of texts.
TESTS = {"and": [{"number": {"gte": 1}}, {"not": {"tags": "odd"}}]}


@pytest.fixture(scope="module")
def opened(calibrated_index: Path) -> Iterator[aladin_search.Index]:
    with aladin_search.open(calibrated_index) as index:
        yield index


@pytest.fixture(params=["index", "service"])
def place(
    request: pytest.FixtureRequest, opened: aladin_search.Index, key_and_url: tuple[str, str]
) -> dict[str, Any]:
    """Each place where a search can be answered, as arguments of a retriever."""
    key, url = key_and_url
    return {"index": opened} if request.param == "index" else {"url": url, "api_key": key}


def route(key_and_url: tuple[str, str], **body: Any) -> list[dict[str, Any]]:
    """Return the hits of the service's own route."""
    key, url = key_and_url
    headers = {"Authorization": f"Bearer {key}"}
    answer = httpx.post(f"{url}/v1/search/images", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()["hits"]


def check(found: list[tuple[str, dict[str, Any]]], hits: list[dict[str, Any]]) -> None:
    """Check ids, and metadata with both stages' scores, against the hits of the route."""
    assert [item_id for item_id, _ in found] == [hit["id"] for hit in hits]
    assert hits
    for (_, metadata), hit in zip(found, hits, strict=True):
        details = metadata["aladin"]
        assert metadata["number"] == hit["metadata"]["number"]
        assert details["score"] == pytest.approx(hit["score"], abs=1e-6)
        assert details["match"] == pytest.approx(hit["stages"]["match"], abs=1e-6)
        assert details["align"] == pytest.approx(hit["stages"]["align"], abs=1e-6)
        assert details["probability"] == pytest.approx(hit["probability"], abs=1e-6)
        assert bool(details["evidence"]) == bool(hit["evidence"])


def pixels(data: bytes) -> int:
    """Return the longest side of a picture."""
    with Image.open(io.BytesIO(data)) as picture:
        return max(picture.size)


def test_langchain(
    place: dict[str, Any], key_and_url: tuple[str, str], photo_folder: Path, image_ids: list[str]
) -> None:
    from langchain_core.structured_query import (
        Comparator,
        Comparison,
        Operation,
        Operator,
        StructuredQuery,
    )

    from aladin_search.integrations.langchain import AladinRetriever, AladinTranslator

    retriever = AladinRetriever(**place, k=3, options={"explain": True}, photo_bytes=True)
    hits = route(key_and_url, text=TEXT, k=3, explain=True)

    async def ask(*args: Any, **options: Any) -> Any:
        try:
            return await retriever.ainvoke(*args, **options)
        finally:
            await retriever.aclose()

    documents = retriever.invoke(TEXT)
    for found in (documents, asyncio.run(ask(TEXT))):
        check([(each.id, each.metadata) for each in found], hits)
        assert [each.page_content for each in found] == [hit["text"] for hit in hits]
        block = found[0].metadata["aladin"]["photo"]
        assert (block["type"], block["mime_type"]) == ("image", "image/jpeg")
        assert pixels(base64.b64decode(block["base64"])) == max(hits[0]["size_px"])
        assert found[0].metadata["source"]
    retriever = AladinRetriever(**place, filter=TESTS)
    filtered = route(key_and_url, text=TEXT, filter=TESTS)
    check([(each.id, each.metadata) for each in retriever.invoke(TEXT)], filtered)
    not_odd = Operation(Operator.NOT, [Comparison(Comparator.EQ, "tags", "odd")])
    both = Operation(Operator.AND, [Comparison(Comparator.GTE, "number", 1), not_odd])
    text, arguments = AladinTranslator().visit_structured_query(StructuredQuery(TEXT, both, 2))
    for given in (arguments, {"filter": both, "k": 2}):
        found = asyncio.run(ask(text, **given))
        check([(each.id, each.metadata) for each in found], filtered[:2])
    by_photo = retriever.invoke("", image=photo_folder / "photo.jpg", filter={})
    assert len(by_photo) == len(image_ids)
    with pytest.raises(aladin_search.InputError, match="'contain' is not supported"):
        retriever.invoke(TEXT, filter=Comparison(Comparator.CONTAIN, "tags", "odd"))
    with pytest.raises(aladin_search.InputError, match="got neither"):
        AladinRetriever()
    retriever.close()
    chain: Any = AladinRetriever(**place, k=1) | (lambda found: found[0].id)
    assert chain.invoke(TEXT) == hits[0]["id"]


def test_llama_index(
    place: dict[str, Any], key_and_url: tuple[str, str], photo_folder: Path
) -> None:
    from llama_index.core.schema import ImageNode, MetadataMode, QueryBundle, TextNode
    from llama_index.core.vector_stores.types import (
        FilterCondition,
        FilterOperator,
        MetadataFilter,
        MetadataFilters,
    )

    from aladin_search.integrations.llama_index import AladinRetriever

    options = {"explain": True}
    retriever = AladinRetriever(
        **place, similarity_top_k=3, options=options, photo_bytes=True, photo_px=16
    )
    hits = route(key_and_url, text=TEXT, k=3, explain=True)

    async def ask(asked: AladinRetriever, query: Any) -> Any:
        try:
            return await asked.aretrieve(query)
        finally:
            await asked.aclose()

    for found in (retriever.retrieve(TEXT), asyncio.run(ask(retriever, TEXT))):
        check([(each.node.node_id, each.node.metadata) for each in found], hits)
        assert [each.score for each in found] == pytest.approx([hit["score"] for hit in hits])
        node = found[0].node
        assert isinstance(node, ImageNode)
        assert pixels(node.resolve_image().read()) == 16
        assert (node.text, node.image_mimetype) == (hits[0]["text"], "image/jpeg")
        assert "aladin" not in node.get_content(MetadataMode.LLM)
        assert "number" in node.get_content(MetadataMode.LLM)
    filters = MetadataFilters(
        filters=[
            MetadataFilter(key="number", value=1, operator=FilterOperator.GTE),
            MetadataFilters(
                filters=[MetadataFilter(key="tags", value="odd", operator=FilterOperator.CONTAINS)],
                condition=FilterCondition.NOT,
            ),
        ]
    )
    filtered = AladinRetriever(**place, filters=filters)
    expected = route(key_and_url, text=TEXT, filter=TESTS)
    found = filtered.retrieve(TEXT)
    check([(each.node.node_id, each.node.metadata) for each in found], expected)
    for operator in FilterOperator:
        value: Any = ["odd"] if operator.value in ("in", "nin", "any", "all") else "odd"
        one = MetadataFilters(filters=[MetadataFilter(key="tags", value=value, operator=operator)])
        if operator.value.startswith("text_match"):
            with pytest.raises(aladin_search.InputError, match="is not supported"):
                AladinRetriever(**place, filters=one)
        else:
            asked = AladinRetriever(**place, filters=one)
            tags = {each.node.metadata["tags"][0] for each in asked.retrieve(TEXT)}
            assert tags <= {"odd", "even"}
            if operator in (FilterOperator.EQ, FilterOperator.CONTAINS, FilterOperator.ALL):
                assert tags == {"odd"}
            asyncio.run(asked.aclose())
    texts = AladinRetriever(**place, target="texts")
    assert all(type(each.node) is TextNode for each in asyncio.run(ask(texts, TEXT)))
    picture = QueryBundle(query_str="", image_path=str(photo_folder / "photo.jpg"))
    by_photo = asyncio.run(ask(filtered, picture))
    assert [each.node.node_id for each in by_photo] != []
    with pytest.raises(aladin_search.InputError, match="expected one text, got 2"):
        filtered.retrieve(QueryBundle(TEXT, custom_embedding_strs=["a", "b"]))


def test_haystack(
    place: dict[str, Any], key_and_url: tuple[str, str], photo_folder: Path, image_ids: list[str]
) -> None:
    from haystack import Document, Pipeline
    from haystack.dataclasses import ByteStream
    from haystack.utils import Secret

    from aladin_search.integrations.haystack import AladinRetriever

    if "api_key" in place:
        place = {**place, "api_key": Secret.from_token(place["api_key"])}
    retriever = AladinRetriever(**place, top_k=3, options={"explain": True}, photo_bytes=True)
    retriever.warm_up()
    hits = route(key_and_url, text=TEXT, k=3, explain=True)

    async def ask(*args: Any, **options: Any) -> Any:
        try:
            return await retriever.run_async(*args, **options)
        finally:
            await retriever.close_async()

    for answer in (retriever.run(TEXT), asyncio.run(ask(TEXT))):
        found = answer["documents"]
        check([(each.id, each.meta) for each in found], hits)
        assert [each.content for each in found] == [hit["text"] for hit in hits]
        assert [each.score for each in found] == pytest.approx([hit["score"] for hit in hits])
        assert found[0].blob.mime_type == "image/jpeg"
        assert pixels(found[0].blob.data) == max(hits[0]["size_px"])
        assert Document.from_dict(found[0].to_dict()) == found[0]
    number = {"field": "meta.number", "operator": ">=", "value": 1}
    odd = {"field": "meta.tags", "operator": "==", "value": "odd"}
    filters = {
        "operator": "AND",
        "conditions": [number, {"operator": "NOT", "conditions": [odd]}],
    }
    filtered = AladinRetriever(**place, filters=filters, filter_policy="merge")
    expected = route(key_and_url, text=TEXT, filter=TESTS)
    found = filtered.run(TEXT)["documents"]
    check([(each.id, each.meta) for each in found], expected)
    less = {"operator": "AND", "conditions": [{**number, "operator": "<", "value": 3}]}
    merged = filtered.run(TEXT, filters=less)["documents"]
    assert [each.meta["number"] for each in merged] == [2]
    picture = ByteStream.from_file_path(photo_folder / "photo.jpg")
    for image in (picture, "photo.jpg"):
        assert len(retriever.run("", image=image, top_k=9)["documents"]) == len(image_ids)
    with pytest.raises(aladin_search.InputError, match="'like' is not supported"):
        retriever.run(TEXT, filters={**odd, "operator": "like"})

    pipeline = Pipeline()
    pipeline.add_component("photos", AladinRetriever(**place, top_k=2))
    documents = pipeline.run({"photos": {"query": TEXT}})["photos"]["documents"]
    assert [each.id for each in documents] == [hit["id"] for hit in hits[:2]]


def test_haystack_writes_and_reads_a_pipeline(
    calibrated_index: Path,
    opened: aladin_search.Index,
    key_and_url: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from haystack import Pipeline
    from haystack.utils import Secret

    from aladin_search.integrations.haystack import AladinRetriever

    key, url = key_and_url
    monkeypatch.setenv("MY_KEY", key)
    expected = [hit["id"] for hit in route(key_and_url, text=TEXT, k=2)]
    for retriever in (
        AladinRetriever(url=url, api_key=Secret.from_env_var("MY_KEY"), top_k=2),
        AladinRetriever(calibrated_index, top_k=2, filter_policy="merge"),
        AladinRetriever(opened, top_k=2),
    ):
        pipeline = Pipeline()
        pipeline.add_component("photos", retriever)
        modules = ["aladin_search.integrations.haystack"]
        again = Pipeline.loads(pipeline.dumps(), allowed_modules=modules)
        assert again.dumps() == pipeline.dumps()
        assert key not in pipeline.dumps()
        documents = again.run({"photos": {"query": TEXT}})["photos"]["documents"]
        assert [each.id for each in documents] == expected
        component: Any = again.get_component("photos")
        component.close()
    with pytest.raises(ValueError, match="token-based secret"):
        AladinRetriever(url=url, api_key=Secret.from_token(key)).to_dict()


def test_a_wrong_key_is_refused(key_and_url: tuple[str, str]) -> None:
    from aladin_search.integrations.langchain import AladinRetriever
    from aladin_service.client import NoAccessError

    retriever = AladinRetriever(url=key_and_url[1], api_key="wrong")  # type: ignore[arg-type]
    assert "wrong" not in repr(retriever)
    with pytest.raises(NoAccessError, match="invalid API key"):
        retriever.invoke(TEXT)
    retriever.close()


def test_the_snippets_of_the_guide_run(
    key_and_url: tuple[str, str],
    calibrated_index: Path,
    photo_folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key, url = key_and_url
    monkeypatch.setenv("ALADIN_API_KEY", key)
    (photo_folder / "INDEX").symlink_to(calibrated_index)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 4
    for block in blocks:
        exec(block.replace("http://127.0.0.1:8000", url), {})
        printed = capsys.readouterr().out
        assert printed.strip()
