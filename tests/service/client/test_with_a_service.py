"""Both clients and a service on a socket."""

from __future__ import annotations

import asyncio
import doctest
import io
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import httpx
import pytest
from PIL import Image
from pydantic import TypeAdapter

from aladin_index.facts import IndexFacts, IndexFields
from aladin_index.search.results import SEARCH_ANSWER
from aladin_service.client import (
    AladinClient,
    AsyncAladinClient,
    ConflictError,
    NewPhoto,
    NewText,
    NotFoundError,
    RefusedInputError,
    Search,
    SearchAnswer,
    clients,
)
from aladin_service.evidence.png import read_evidence


@pytest.mark.parametrize("client", [AladinClient, AsyncAladinClient])
def test_the_examples_in_the_documentation(url: str, client: type) -> None:
    examples = doctest.DocTestFinder().find(client, module=clients, globs={"url": url})
    runner = doctest.DocTestRunner()
    for example in examples:
        runner.run(example)
    assert (runner.summarize().failed, runner.tries > 0) == (0, True)


FACTS, FIELDS = TypeAdapter(IndexFacts), TypeAdapter(IndexFields)


def test_the_client_reads_what_the_service_answers(url: str) -> None:
    with AladinClient(url) as client, httpx.Client(base_url=url) as plain:
        body = {"text": "a red dog", "k": 3, "explain": True}
        answer = client.search_images("a red dog", k=3, explain=True)
        expected = plain.post("/v1/search/images", json=body).json()
        written = json.loads(SEARCH_ANSWER.dump_json(answer))
        assert written == expected | {"took_ms": asdict(answer.took_ms)}
        assert client.index().images is not None
        assert FACTS.dump_python(client.index(), mode="json") == plain.get("/v1/index").json()
        assert client.health()
        assert client.ready()


def test_items_and_fields_are_listed(url: str, image_ids: list[str]) -> None:
    with AladinClient(url) as client, httpx.Client(base_url=url) as plain:
        newest = list(client.every_item(page_size=4))
        assert [item.id for item in newest] == image_ids[::-1]
        page = client.list_items(sort="number", order="asc", filter={"number": {"gte": 2}}, limit=3)
        assert [item.metadata["number"] for item in page.items] == [2, 3, 4]
        assert (page.total, page.next) == (4, page.items[-1].id)
        fields = client.index_fields()
        assert FIELDS.dump_python(fields, mode="json") == plain.get("/v1/index/fields").json()
        assert fields.images is not None
        with pytest.raises(RefusedInputError, match="limit"):
            client.list_items(limit=1000)


def test_the_evidence_is_read_as_numbers(url: str) -> None:
    async def run() -> None:
        async with AsyncAladinClient(url) as client:
            answer = await client.search_images("a red dog", k=1)
            (hit,) = answer.hits
            maps = await client.explain(hit.id, "a red dog")
        assert hit.stages.align is not None
        assert sum(word.score for word in maps.words) == pytest.approx(maps.align)
        assert maps.align == pytest.approx(hit.stages.align.score, abs=1e-4)
        assert {len(word.cosines) for word in maps.words} == {len(maps.regions)}

    asyncio.run(run())


def test_where_a_box_is_found_is_read(url: str) -> None:
    box = (0.0, 0.25, 0.5, 1.0)
    with AladinClient(url) as client:
        (hit,) = client.search_images(id="plain", box=box, k=1, explain=True).hits
        maps = client.explain(hit.id, query_id="plain", box=box)
        (pair,) = read_evidence(client.explain_png(hit.id, query_id="plain", box=box))
        with pytest.raises(RefusedInputError, match="box"):
            client.search_images(id="plain", box=(0, 0, 2, 1))
    assert hit.found is not None
    assert maps.found == pytest.approx(hit.found)
    assert pair.found == pytest.approx(hit.found)
    assert maps.query_regions is not None
    assert hit.region_evidence is not None
    assert [each.region for each in maps.query_regions] == [
        each.region for each in hit.region_evidence
    ]


def test_a_photo_is_searched_with_fetched_and_found(url: str, image_ids: list[str]) -> None:
    with AladinClient(url) as client:
        for item_id in image_ids:
            assert client.item("images", item_id).id == item_id
            photo = client.photo(item_id)
            assert photo.media_type == "image/png"
            found = client.search_images(image=io.BytesIO(photo.data), k=1)
            assert found.hits[0].id == item_id
            assert found.hits[0].score == pytest.approx(1, abs=1e-3)
        small = client.photo(image_ids[0], 16)
        with Image.open(io.BytesIO(small.data)) as picture:
            assert max(picture.size) == 16


def test_a_photo_that_is_not_in_the_index_is_drawn_with_a_text(
    url: str, query_photo: Image.Image, encoded: Callable[..., bytes]
) -> None:
    with AladinClient(url) as client:
        file = io.BytesIO(encoded(query_photo))
        (pair,) = read_evidence(client.explain_png("plain#0", image=file))
        assert (pair.text_id, pair.photo_id) == ("plain#0", None)
        with pytest.raises(NotFoundError):
            client.explain_png("nobody", "a dog")
        with pytest.raises(RefusedInputError, match="one of the texts"):
            client.explain_png("plain", query_id="bike 2?")


def test_added_items_are_found_and_deleted_ones_are_not(
    url: str, query_photo: Image.Image, encoded: Callable[..., bytes], tmp_path: Path
) -> None:
    file = tmp_path / "new.png"
    file.write_bytes(encoded(query_photo))
    with AladinClient(url) as client:
        assert client.add_photo(NewPhoto("new", file, metadata={"n": 1})).added == ["new"]
        with pytest.raises(ConflictError):
            client.add_photo(NewPhoto("new", file))
        assert client.add_photo(NewPhoto("new", file), "skip").kept == ["new"]
        several = [NewPhoto("new", file), NewPhoto("../2", file, text="two")]
        report = client.add_photos(several, "replace")
        assert (report.added, report.replaced) == (["../2"], ["new"])
        assert client.item("images", "../2").text == "two"
        assert {hit.id for hit in client.search_images(image=file, k=2).hits} == {"new", "../2"}
        for item_id in ("new", "../2"):
            client.delete("images", item_id)
            with pytest.raises(NotFoundError):
                client.item("images", item_id)
        with pytest.raises(RefusedInputError, match="broken"):
            client.add_photo(NewPhoto("broken", b"no picture"))


def test_many_items_and_many_searches(url: str) -> None:
    async def run() -> None:
        words = ["a dog", "two men", "a blue square", "a yellow circle", "the white star"]
        texts = [NewText(f"t{number}", text) for number, text in enumerate(words)]
        async with AsyncAladinClient(url) as client:
            reports = [report async for report in client.add_many(texts, max_items=2)]
            assert [report.added for report in reports] == [["t0", "t1"], ["t2", "t3"], ["t4"]]
            queries = [*words[:2], " ", *words[2:]]
            outcomes = [
                outcome async for outcome in client.search_many(queries, "texts", batch_size=4, k=1)
            ]
            assert isinstance(outcomes.pop(2), RefusedInputError)
            found = [each.hits[0].id for each in outcomes if isinstance(each, SearchAnswer)]
            assert found == ["t0", "t1", "t2", "t3", "t4"]
            alone = await client.search(Search(words[3], "texts", k=1))
            assert alone.hits[0].id == "t3"
            for text in texts:
                await client.delete("texts", text.id)

    asyncio.run(run())
