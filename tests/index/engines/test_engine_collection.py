"""Searches of an index in an engine against those of the files that it was pushed from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aladin_index.engines.engine_index import EngineIndex, open_engine_index
from aladin_index.engines.milvus import EngineQuery, FoundItem
from aladin_index.engines.push import PushReport
from aladin_index.generations.reader import SearchIndex
from aladin_index.search.collection import FirstStageQuery, SecondStageQuery
from aladin_index.search.results import SearchAnswer
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.errors import EngineUnavailableError, InputError
from aladin_network.inference import encode_texts
from aladin_network.scoring.encoding import Encoding
from aladin_network.types import Target
from tests.index.engines.memory_engine import MemoryEngine, MemoryServer
from tests.index.searching import run_search

TEXT = "two dogs run on the green grass"


@pytest.fixture
def remote(
    push: Callable[..., PushReport],
    published: Path,
    server: MemoryServer,
    tmp_path: Path,
    search_index: SearchIndex,
) -> EngineIndex:
    """`published` in an engine."""
    push(published)
    server.calls.clear()
    client = MemoryEngine(server)
    return open_engine_index(tmp_path / "remote", client, checkpoint=search_index.checkpoint)


@pytest.fixture(scope="module")
def query(search_index: SearchIndex) -> Encoding:
    return encode_texts(search_index.checkpoint.model, [TEXT])


def assert_same(actual: SearchAnswer, expected: SearchAnswer) -> None:
    """Compare two answers; cosines may be added up in another order."""
    assert replace(actual, hits=[], took_ms=expected.took_ms) == replace(expected, hits=[])
    assert [hit.id for hit in actual.hits] == [hit.id for hit in expected.hits]
    for ours, theirs in zip(actual.hits, expected.hits, strict=True):
        assert ours.stages.match.score == pytest.approx(theirs.stages.match.score, abs=1e-6)
        assert ours.stages.match.rank == theirs.stages.match.rank
        assert ours.stages.align == theirs.stages.align
        assert (
            replace(ours, score=theirs.score, per_word=theirs.per_word, stages=theirs.stages)
            == theirs
        )


def leave_tokens_out(remote: EngineIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the engine find items without their tokens, as one does whose messages are full."""
    whole = remote.client.search

    def search(query: EngineQuery) -> list[FoundItem]:
        return whole(replace(query, with_tokens=False))

    monkeypatch.setattr(remote.client, "search", search)


@pytest.mark.parametrize(
    ("target", "explain"), [("images", False), ("images", True), ("texts", True)]
)
def test_both_stages_take_one_call(
    remote: EngineIndex,
    server: MemoryServer,
    searcher: TwoStageSearcher,
    query: Encoding,
    target: Target,
    explain: bool,
) -> None:
    modality = "text" if target == "images" else "image"
    if modality == "image":
        query = searcher.stored_query("photo 3").encoding
    server.calls.clear()
    run_search(TwoStageSearcher(remote), query, modality, target, k=5, explain=explain, text=TEXT)
    assert server.calls == ["search"]


def test_items_removed_after_a_search_keep_their_tokens(
    remote: EngineIndex, server: MemoryServer, searcher: TwoStageSearcher
) -> None:
    photo, modality = searcher.stored_query("photo 3")[:2]
    tokens = photo.item_tokens(0)
    collection, files = remote.collection("texts"), searcher.index.collection("texts")
    second_stage = SecondStageQuery(tokens, modality)
    rows = collection.order(FirstStageQuery(photo.embedding[0], 4, 4, second_stage)).rows
    server.collections[1, "texts"].clear()
    server.calls.clear()
    assert collection.lengths(rows).tolist() == files.lengths(rows).tolist()
    assert collection.align(tokens, modality, rows).tolist() == (
        files.align(tokens, modality, rows).tolist()
    )
    assert server.calls == []


def test_an_item_becomes_a_query_in_one_call_for_a_collection(
    remote: EngineIndex, server: MemoryServer, searcher: TwoStageSearcher
) -> None:
    for item_id, calls in (("photo 3", 1), ("text 4", 2)):
        server.calls.clear()
        encoding, modality = TwoStageSearcher(remote).stored_query(item_id)[:2]
        expected, its_modality = searcher.stored_query(item_id)[:2]
        assert modality == its_modality
        assert np.array_equal(encoding.embedding, expected.embedding)
        assert np.array_equal(encoding.tokens, expected.tokens)
        assert server.calls == calls * ["fetch_tokens"]


def test_without_tokens_the_first_stage_decides_and_without_that_nothing(
    remote: EngineIndex,
    server: MemoryServer,
    searcher: TwoStageSearcher,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leave_tokens_out(remote, monkeypatch)
    photo = searcher.stored_query("photo 3").encoding
    expected = run_search(searcher, photo, "image", "texts", k=5, rerank=False)
    whole = run_search(searcher, photo, "image", "texts", k=5)
    assert_same(run_search(TwoStageSearcher(remote), photo, "image", "texts", k=5), whole)
    server.down = {"fetch_tokens"}
    result = run_search(TwoStageSearcher(remote), photo, "image", "texts", k=5)
    assert (result.reranked, result.degraded) == (False, ["rerank_unavailable"])
    assert [hit.id for hit in result.hits] == [hit.id for hit in expected.hits]
    server.down = {"search"}
    with pytest.raises(EngineUnavailableError, match="memory: no answer to search"):
        run_search(TwoStageSearcher(remote), photo, "image", "texts", k=5)


def test_items_removed_before_their_tokens_are_fetched_score_zero(
    remote: EngineIndex, server: MemoryServer, searcher: TwoStageSearcher
) -> None:
    photo = searcher.stored_query("photo 3").encoding
    collection = remote.collection("texts")
    rows = collection.order(FirstStageQuery(photo.embedding[0], 4, 4)).rows
    removed, replaced, *_ = (item.id for item in collection.items.by_rows(rows.tolist()))
    stored = server.collections[1, "texts"]
    del stored[removed]
    newer = stored[replaced].item._replace(row=99, text="newer")
    stored[replaced] = stored[replaced]._replace(item=newer)
    scores = collection.align(photo.item_tokens(0), "image", rows)
    assert scores[:2].tolist() == [0, 0]
    assert np.all(scores[2:] != 0)
    assert collection.lengths(rows).tolist()[:2] == [0, 0]
    assert collection.items.by_rows(rows[1:2].tolist())[0].text != "newer"
    assert not collection.embedding(int(rows[0])).any()
    assert not collection.embedding(int(rows[1])).any()


def test_no_more_is_asked_for_than_one_search_finds(remote: EngineIndex, query: Encoding) -> None:
    searcher = TwoStageSearcher(remote)
    remote.client.max_results = 10  # type: ignore[misc]
    found = run_search(searcher, query, "text", "images", k=4, offset=6, candidates=5)
    assert [hit.rank for hit in found.hits] == [7, 8, 9, 10]
    with pytest.raises(InputError, match=r"at most 10 candidates, as Milvus .* got 11"):
        run_search(searcher, query, "text", "images", k=1, candidates=11)
    with pytest.raises(InputError, match=r"at most 10 hits, skipped ones included, .* got 15"):
        run_search(searcher, query, "text", "images", k=5, offset=6, candidates=5)
    # Of those that pass there are fewer.
    few = {"number": {"lt": 3}}
    result = run_search(searcher, query, "text", "images", k=5, offset=50, filter=few, candidates=5)
    assert result.hits == []


def test_a_longer_order_begins_with_a_shorter_one_where_searches_are_not_exact(
    remote: EngineIndex, query: Encoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine finds the best three of four items, and others of a wider search."""
    exact = remote.client.search

    def search(query: EngineQuery) -> list[FoundItem]:
        found = exact(replace(query, count=1000))
        kept = [each for place, each in enumerate(found) if (place + query.count) % 4]
        return kept[: query.count]

    monkeypatch.setattr(remote.client, "search", search)
    embedding = query.embedding[0]
    longest = remote.collection("images").order(FirstStageQuery(embedding, 17, 3))
    assert len(longest.rows) == len(set(longest.rows.tolist())) == 17
    for count in range(17):
        rows, match, candidates, *_ = remote.collection("images").order(
            FirstStageQuery(embedding, count, 3)
        )
        assert candidates == 3
        assert rows.tolist() == longest.rows[:count].tolist()
        assert match.tolist() == longest.match[:count].tolist()
