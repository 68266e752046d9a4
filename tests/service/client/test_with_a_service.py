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
from tests.service.conftest import make_photo


@pytest.mark.parametrize("client", [AladinClient, AsyncAladinClient])
def test_the_examples_in_the_documentation(url: str, client: type) -> None:
    examples = doctest.DocTestFinder().find(client, module=clients, globs={"url": url})
    runner = doctest.DocTestRunner()
    for example in examples:
        runner.run(example)
    assert (runner.summarize().failed, runner.tries > 0) == (0, True)


FACTS, FIELDS = TypeAdapter(IndexFacts), TypeAdapter(IndexFields)


def test_the_client_reads_what_the_service_answers(url: str, image_ids: list[str]) -> None:
    with AladinClient(url) as client, httpx.Client(base_url=url) as plain:
        body = {"text": "a red dog", "k": 3, "explain": True}
        answer = client.search_images("a red dog", k=3, explain=True)
        expected = plain.post("/v1/search/images", json=body).json()
        written = json.loads(SEARCH_ANSWER.dump_json(answer))
        assert written == expected | {"took_ms": asdict(answer.took_ms)}
        assert FACTS.dump_python(client.index(), mode="json") == plain.get("/v1/index").json()
        fields = FIELDS.dump_python(client.index_fields(), mode="json")
        assert fields == plain.get("/v1/index/fields").json()
        assert client.health() and client.ready()
        assert [item.id for item in client.every_item(page_size=4)] == image_ids[::-1]
        page = client.list_items(sort="number", order="asc", filter={"number": {"gte": 2}}, limit=3)
        assert [item.metadata["number"] for item in page.items] == [2, 3, 4]
        assert (page.total, page.next) == (4, page.items[-1].id)


def test_evidence_is_read_as_numbers(url: str, encoded: Callable[..., bytes]) -> None:
    box = (0.0, 0.25, 0.5, 1.0)
    with AladinClient(url) as client:
        (hit,) = client.search_images("a red dog", k=1).hits
        maps = client.explain(hit.id, "a red dog")
        assert hit.stages.align is not None
        assert sum(word.score for word in maps.words) == pytest.approx(maps.align)
        assert maps.align == pytest.approx(hit.stages.align.score, abs=1e-4)
        assert {len(word.cosines) for word in maps.words} == {len(maps.regions)}
        (hit,) = client.search_images(id="plain", box=box, k=1, explain=True).hits
        maps = client.explain(hit.id, query_id="plain", box=box)
        (pair,) = read_evidence(client.explain_png(hit.id, query_id="plain", box=box))
        assert hit.found is not None
        assert maps.found == pytest.approx(hit.found)
        assert pair.found == pytest.approx(hit.found)
        regions = [each.region for each in maps.query_regions or []]
        assert regions == [each.region for each in hit.region_evidence or []] != []
        file = io.BytesIO(encoded(make_photo(99)))
        (pair,) = read_evidence(client.explain_png("plain#0", image=file))
        assert (pair.text_id, pair.photo_id) == ("plain#0", None)


def test_photos_are_fetched_added_found_and_deleted(
    url: str, image_ids: list[str], encoded: Callable[..., bytes], tmp_path: Path
) -> None:
    file = tmp_path / "new.png"
    file.write_bytes(encoded(make_photo(99)))
    with AladinClient(url) as client:
        for item_id in image_ids:
            assert client.item("images", item_id).id == item_id
            photo = client.photo(item_id)
            assert photo.media_type == "image/png"
            (hit,) = client.search_images(image=io.BytesIO(photo.data), k=1).hits
            assert (hit.id, hit.score) == (item_id, pytest.approx(1, abs=1e-3))
        with Image.open(io.BytesIO(client.photo(image_ids[0], 16).data)) as picture:
            assert max(picture.size) == 16
        new = NewPhoto("new", file, metadata={"n": 1})
        assert client.add_photo(new).added == ["new"]
        assert client.add_photo(new, "skip").kept == ["new"]
        report = client.add_photos([new, NewPhoto("../2", file, text="two")], "replace")
        assert (report.added, report.replaced) == (["../2"], ["new"])
        assert client.item("images", "../2").text == "two"
        assert {hit.id for hit in client.search_images(image=file, k=2).hits} == {"new", "../2"}
        with pytest.raises(ConflictError):
            client.add_photo(new)
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
            many = client.search_many(queries, "texts", batch_size=4, k=1)
            outcomes = [outcome async for outcome in many]
            assert isinstance(outcomes.pop(2), RefusedInputError)
            found = [each.hits[0].id for each in outcomes if isinstance(each, SearchAnswer)]
            assert found == ["t0", "t1", "t2", "t3", "t4"]
            alone = await client.search(Search(words[3], "texts", k=1))
            assert alone.hits[0].id == "t3"
            for text in texts:
                await client.delete("texts", text.id)

    asyncio.run(run())
