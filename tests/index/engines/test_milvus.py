"""The client against brute force, on a real server."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from itertools import count

import numpy as np
import pytest

from aladin_index.engines.collections import INDEX_KINDS
from aladin_index.engines.milvus import EngineClient, EngineOptions, EngineQuery
from aladin_index.engines.rows import EngineItem
from aladin_index.format.layout import EngineLocation
from aladin_index.items.filters import parse_filter
from aladin_index.open import connect
from aladin_network.errors import EngineError, EngineUnavailableError, InputError
from benchmarks.lib.milvus_server import MilvusServer
from benchmarks.lib.processes import free_ports
from tests.index.engines.made_up import EMBEDDING_DIM, assert_same, codec_of, entry, schema_of, unit

pytestmark = pytest.mark.cluster

_NUMBERS = count()


@pytest.fixture(scope="module")
def location(milvus_server: MilvusServer) -> EngineLocation:
    """Where an index of this module is."""
    name = f"client{next(_NUMBERS)}"
    return EngineLocation(url=milvus_server.url, name=name, index="flat", shards=2)


@pytest.fixture
def engine(location: EngineLocation) -> Generator[EngineClient]:
    """A client; each test takes a generation of its own."""
    client = connect(location, EngineOptions(timeout_s=20, retries=1))
    assert isinstance(client, EngineClient)
    with closing(client):
        yield client


@pytest.fixture
def generation(engine: EngineClient) -> Generator[int]:
    """A generation that nobody else uses."""
    number = next(_NUMBERS) + 10
    yield number
    if engine.live_generation() != number:
        engine.drop_generation(number)


def filled(engine: EngineClient, generation: int) -> list[EngineItem]:
    codec = codec_of("4bit")
    entries = [entry(number, codec) for number in range(20)]
    engine.create_collection(generation, "images", schema_of(codec))
    engine.upsert(generation, "images", entries)
    return entries


def rows_of(entries: Sequence[EngineItem], query: np.ndarray, most: int) -> list[int]:
    cosines = {each.item.row: float(each.embedding @ query) for each in entries}
    return sorted(cosines, key=lambda row: -cosines[row])[:most]


def test_writes_are_visible_to_the_next_read_as_they_were_put_in(
    engine: EngineClient, generation: int
) -> None:
    entries, codec = filled(engine, generation), codec_of("4bit")
    again = entry(50, codec)
    again = again._replace(item=again.item._replace(id=entries[0].item.id))
    engine.upsert(generation, "images", [entries[0], again])  # of one id the later one stays
    kept, deleted = [again, *entries[1:]], entry(51, codec)
    engine.upsert(generation, "images", [deleted])
    engine.delete(generation, "images", [deleted.item.id, "nobody"])
    engine.delete(generation, "images", [])
    engine.create_collection(generation, "images", schema_of(codec))  # is there already
    ids = [each.item.id for each in kept]
    found = engine.fetch(
        generation, "images", [*ids[::-1], "nobody"], with_embeddings=True, with_tokens=True
    )
    found.sort(key=lambda each: ids.index(each.item.id))
    for got, put in zip(found, kept, strict=True):
        assert_same(got, put)
        np.testing.assert_array_equal(got.embedding, put.embedding)
    assert engine.fetch(generation, "images", ids[:1]) == [EngineItem(again.item, None, None)]
    assert engine.fetch(generation, "images", []) == []
    assert engine.count(generation, "images") == 20


def test_a_generation_is_live_at_once_and_others_can_go(milvus_server: MilvusServer) -> None:
    location = EngineLocation(url=milvus_server.url, name="generations")
    longer = EngineLocation(url=milvus_server.url, name="generations_2")
    with closing(connect(location)) as engine, closing(connect(longer)) as neighbour:
        assert (engine.generations(), engine.live_generation()) == ([], None)
        assert engine.read_record(1) is None
        engine.write_record(1, {"manifest": b"\0\xff" * 100_000, "empty": b""})
        engine.write_record(1, {"manifest": b"\0\xff", "empty": b""})
        engine.make_live(1)
        engine.make_live(1)
        engine.write_record(2, {"manifest": b"2" * 100_000})
        neighbour.write_record(3, {"manifest": b"3"})
        engine.make_live(2)

        assert engine.generations() == [1, 2]
        assert engine.live_generation() == 2
        assert engine.read_record(1) == {"manifest": b"\0\xff", "empty": b""}
        assert engine.read_record(2) == {"manifest": b"2" * 100_000}
        with pytest.raises(EngineError, match="generation 2 of 'generations' is live"):
            engine.drop_generation(2)
        engine.drop_generation(1)
        engine.drop_generation(1)
        assert engine.generations() == [2]
        assert engine.read_record(1) is None
        assert (neighbour.generations(), neighbour.live_generation()) == ([3], None)


def test_a_missing_collection_raises_engine_error(engine: EngineClient) -> None:
    query = unit(np.random.default_rng(0), EMBEDDING_DIM)
    for call in (
        lambda: engine.search(EngineQuery(generation=9, target="texts", embedding=query, count=1)),
        lambda: engine.count(9, "texts"),
        lambda: engine.make_live(9),
    ):
        with pytest.raises(EngineError, match="not found") as raised:
            call()
        assert not isinstance(raised.value, EngineUnavailableError)


def test_an_item_that_is_too_large_changes_nothing(engine: EngineClient, generation: int) -> None:
    codec = codec_of("4bit")
    filled(engine, generation)
    too_large = entry(70, codec, {"text": "x" * 70_000})
    with pytest.raises(InputError, match="photo 70"):
        engine.upsert(generation, "images", [entry(60, codec), too_large])
    assert engine.count(generation, "images") == 20


@pytest.mark.parametrize("kind", INDEX_KINDS)
def test_each_kind_of_index_finds_the_nearest(milvus_server: MilvusServer, kind: str) -> None:
    location = EngineLocation(
        url=milvus_server.url, name=f"kind_{kind}", index=kind, index_params={}
    )
    # Fewer than 1,024 rows get no index.
    entries = [entry(number, codec_of("int8")) for number in range(3000)]
    with closing(connect(location)) as engine:
        schema = schema_of(codec_of("int8"), len(entries))
        engine.create_collection(1, "images", schema)
        engine.upsert(1, "images", entries)
        engine.open_collection(1, "images")
        random, found = np.random.default_rng(1), 0
        filter = parse_filter({"number": {"gte": 1000}})
        for query in unit(random, 20, EMBEDDING_DIM):
            for passes, passing in ((None, entries), (filter, entries[1000:])):
                hits = engine.search(
                    EngineQuery(
                        generation=1,
                        target="images",
                        embedding=query,
                        count=10,
                        filter=passes,
                        with_tokens=True,
                    )
                )
                matches = [hit.match for hit in hits]
                assert matches == sorted(matches, reverse=True)
                for hit in hits:
                    kept = entries[hit.entry.item.row]
                    assert_same(hit.entry, kept)
                    tolerance = 0.02 if kind == "ivf_sq8" else 1e-6
                    assert hit.match == pytest.approx(float(kept.embedding @ query), abs=tolerance)
                wanted = set(rows_of(passing, query, 10))
                found += len(wanted & {hit.entry.item.row for hit in hits})
        # Eight bits change the order of near ones; of what passes a filter, a graph misses a few.
        assert found >= {"flat": 400, "ivf_sq8": 380}.get(kind, 396)
        everything = engine.search(
            EngineQuery(generation=1, target="images", embedding=query, count=3000)
        )
        assert kind != "flat" or len(everything) == 3000
        engine.drop_generation(1)


def test_an_unreachable_server_raises_unavailable() -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    with closing(connect(EngineLocation(url=url, name="n"))) as engine:
        with pytest.raises(EngineUnavailableError):
            engine.check_health()
        with pytest.raises(EngineUnavailableError):
            engine.live_generation()
