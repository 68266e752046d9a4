"""The engine's client over every form of Qdrant, against brute force."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from aladin_index.engines.client import EngineItem, EngineOptions, EngineQuery
from aladin_index.engines.qdrant.client import QdrantEngine
from aladin_index.format.layout import EngineLocation
from aladin_index.open import connect
from aladin_network.errors import EngineError
from aladin_network.types import TOKEN_DTYPES, TokenDtype
from tests.index.engines.made_up import (
    EMBEDDING_DIM,
    TOKEN_DIM,
    assert_same,
    codec_of,
    entry,
    schema_of,
    unit,
)


def filled(engine: QdrantEngine, dtype: TokenDtype = "2bit", count: int = 20) -> list[EngineItem]:
    codec = codec_of(dtype)
    entries = [entry(number, codec) for number in range(count)]
    engine.create_collection(1, "images", schema_of(codec))
    engine.upsert(1, "images", entries)
    return entries


def by_row(entries: Sequence[EngineItem]) -> list[EngineItem]:
    return sorted(entries, key=lambda each: each.item.row)


def test_nothing_is_there_at_first(engine: QdrantEngine) -> None:
    assert engine.generations() == []
    assert engine.live_generation() is None
    assert engine.read_record(1) is None
    engine.check_health()


@pytest.mark.parametrize("dtype", TOKEN_DTYPES)
def test_items_come_back_as_they_were_put_in(engine: QdrantEngine, dtype: TokenDtype) -> None:
    entries = filled(engine, dtype, 7)

    ids = [each.item.id for each in entries]
    found = by_row(
        engine.fetch(1, "images", [*ids[::-1], "nobody"], with_embeddings=True, with_tokens=True)
    )

    assert len(found) == 7
    for got, put in zip(found, entries, strict=True):
        assert_same(got, put)
        np.testing.assert_array_equal(got.embedding, put.embedding)
    bare = engine.fetch(1, "images", ids[:1])
    assert bare == [EngineItem(entries[0].item, None, None)]


def test_all_items_are_listed_once(engine: QdrantEngine) -> None:
    entries = filled(engine, count=1203)
    engine.delete(1, "images", [entries[7].item.id])
    listed = [item for part in engine.items(1, "images") for item in part]
    expected = [each.item for each in entries if each is not entries[7]]
    assert sorted(listed, key=lambda item: item.row) == expected


def test_the_nearest_are_found_best_first(engine: QdrantEngine) -> None:
    entries = filled(engine)
    engine.open_collection(1, "images")
    for query in unit(np.random.default_rng(1), 5, EMBEDDING_DIM):
        cosines = np.array([each.embedding @ query for each in entries])

        found = engine.search(
            EngineQuery(generation=1, target="images", embedding=query, count=8, with_tokens=True)
        )

        assert [each.entry.item.row for each in found] == np.argsort(-cosines)[:8].tolist()
        np.testing.assert_allclose(
            [each.match for each in found], np.sort(cosines)[::-1][:8], atol=1e-6
        )
        for each in found:
            assert each.align is None
            assert_same(each.entry, entries[each.entry.item.row])


@pytest.mark.parametrize("dtype", ["float16", "4bit"])
def test_words_are_scored_by_the_engine(engine: QdrantEngine, dtype: TokenDtype) -> None:
    entries, random = filled(engine, dtype), np.random.default_rng(2)
    codec = codec_of(dtype)
    query, words = unit(random, EMBEDDING_DIM), unit(random, 5, TOKEN_DIM)
    without = engine.search(EngineQuery(generation=1, target="images", embedding=query, count=12))

    found = engine.search(
        EngineQuery(
            generation=1, target="images", embedding=query, count=12, with_tokens=True, words=words
        )
    )

    assert [each.entry.item for each in found] == [each.entry.item for each in without]
    assert [each.match for each in found] == [each.match for each in without]
    for each in found:
        tokens = entries[each.entry.item.row].tokens
        assert tokens is not None
        similarities = words @ codec.unpack(tokens).T  # (words, regions)
        assert each.align == pytest.approx(sum(max(row) for row in similarities), abs=1e-5)
        assert each.entry.tokens is None


def test_an_item_without_tokens_is_found_and_not_scored(engine: QdrantEngine) -> None:
    entries = filled(engine, "float16", 3)
    codec = codec_of("float16")
    nothing = codec.pack(np.empty((0, TOKEN_DIM), np.float32))
    bare = EngineItem(entries[0].item._replace(id="bare", row=9), entries[0].embedding, nothing)
    engine.upsert(1, "images", [bare])
    words = unit(np.random.default_rng(0), 2, TOKEN_DIM)
    assert entries[0].embedding is not None

    found = engine.search(
        EngineQuery(
            generation=1, target="images", embedding=entries[0].embedding, count=4, words=words
        )
    )

    assert {each.entry.item.id: each.align is None for each in found} == {
        **{each.item.id: False for each in entries},
        "bare": True,
    }
    (fetched,) = engine.fetch(1, "images", ["bare"], with_tokens=True)
    assert_same(fetched, bare)


def test_items_replace_those_of_the_same_id(engine: QdrantEngine) -> None:
    entries = filled(engine)
    codec = codec_of("2bit")
    other = entry(50, codec)
    new = EngineItem(other.item._replace(id=entries[3].item.id), other.embedding, other.tokens)

    engine.upsert(1, "images", [new])

    assert engine.count(1, "images") == 20
    (found,) = engine.fetch(1, "images", [entries[3].item.id], with_tokens=True)
    assert_same(found, new)
    assert other.embedding is not None
    best = engine.search(
        EngineQuery(generation=1, target="images", embedding=other.embedding, count=1)
    )[0]
    assert best.entry.item == new.item


def test_removed_items_are_gone_and_unknown_ones_no_error(engine: QdrantEngine) -> None:
    entries = filled(engine)

    engine.delete(1, "images", [entries[0].item.id, entries[1].item.id, "nobody"])
    engine.delete(1, "images", [])

    assert engine.count(1, "images") == 18
    assert engine.fetch(1, "images", [entries[0].item.id]) == []
    assert entries[0].embedding is not None
    found = engine.search(
        EngineQuery(generation=1, target="images", embedding=entries[0].embedding, count=20)
    )
    assert {each.entry.item.row for each in found} == set(range(2, 20))


def test_a_generation_is_live_at_once_and_others_can_go(engine: QdrantEngine) -> None:
    filled(engine)
    engine.write_record(1, {"manifest": b"\0\xff", "empty": b""})
    engine.make_live(1)
    engine.write_record(2, {"manifest": b"2"})
    engine.write_record(2, {"other": b"3"})
    engine.make_live(2)

    assert engine.generations() == [1, 2]
    assert engine.live_generation() == 2
    assert engine.read_record(1) == {"manifest": b"\0\xff", "empty": b""}
    assert engine.read_record(2) == {"other": b"3"}
    with pytest.raises(EngineError, match="generation 2 of 'test' is live"):
        engine.drop_generation(2)
    engine.drop_generation(1)
    engine.drop_generation(1)
    assert engine.generations() == [2]
    assert engine.read_record(1) is None


def test_making_a_side_again_keeps_what_is_in_it(engine: QdrantEngine) -> None:
    filled(engine)
    engine.create_collection(1, "images", schema_of(codec_of("2bit")))
    assert engine.count(1, "images") == 20


def test_a_side_that_is_not_there_is_said_so(engine: QdrantEngine) -> None:
    filled(engine)
    query = unit(np.random.default_rng(0), EMBEDDING_DIM)
    with pytest.raises(EngineError, match="generation 1 of 'test' has no texts"):
        engine.search(EngineQuery(generation=1, target="texts", embedding=query, count=1))
    with pytest.raises(EngineError):
        engine.count(1, "texts")
    with pytest.raises(EngineError):
        engine.make_live(7)


def test_another_client_sees_what_was_acknowledged(
    engine: QdrantEngine, location: EngineLocation
) -> None:
    other = connect(location, EngineOptions(url=location.url))
    entries = filled(engine)
    engine.write_record(1, {"manifest": b"1"})
    engine.make_live(1)
    assert other.live_generation() == 1
    assert len(other.fetch(1, "images", [each.item.id for each in entries])) == 20
    other.close()
    other.close()
    assert engine.count(1, "images") == 20


def test_threads_find_what_is_there_while_it_is_changed(engine: QdrantEngine) -> None:
    entries = filled(engine)
    stays, changing = entries[:10], entries[10:]

    def search(seed: int) -> None:
        query = unit(np.random.default_rng(seed), EMBEDDING_DIM)
        words = unit(np.random.default_rng(seed), 2, TOKEN_DIM)
        for _ in range(12):
            found = engine.search(
                EngineQuery(generation=1, target="images", embedding=query, count=20, words=words)
            )
            rows = [each.entry.item.row for each in found]
            assert len(rows) == len(set(rows))
            assert {each.item.row for each in stays} <= set(rows)
            assert [each.match for each in found] == sorted(
                (each.match for each in found), reverse=True
            )

    with ThreadPoolExecutor(2) as pool:
        searching = [pool.submit(search, seed) for seed in range(2)]
        for _ in range(2):
            engine.delete(1, "images", [each.item.id for each in changing])
            engine.upsert(1, "images", changing)
        for each in searching:
            each.result()
    assert engine.count(1, "images") == 20
