"""An index in an engine: what opens it, what is said of it, and what a search asks the engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aladin_index.encode.encoded import ItemBatch
from aladin_index.engines.engine_index import (
    EngineCollection,
    EngineIndex,
    describe_engine_index,
    open_engine_index,
)
from aladin_index.engines.milvus import EngineQuery, FoundItem, read_generation
from aladin_index.engines.push import PushReport
from aladin_index.engines.record import CHANGED, MANIFEST, GenerationRecord
from aladin_index.engines.writer import EngineWriter
from aladin_index.generations.reader import SearchIndex
from aladin_index.search.collection import FirstStageQuery, SecondStageQuery
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.errors import (
    EngineUnavailableError,
    IndexCorruptError,
    IndexMismatchError,
    IndexNotReadyError,
    InputError,
    NoSuchTargetError,
)
from aladin_network.scoring.encoding import Encoding
from tests.index.contract_items import made_up_query
from tests.index.engines.conftest import LOCATION
from tests.index.engines.memory_engine import MemoryEngine, MemoryServer
from tests.index.searching import run_search

Push = Callable[..., PushReport]


@pytest.fixture
def remote(
    push: Push, published: Path, server: MemoryServer, tmp_path: Path, search_index: SearchIndex
) -> EngineIndex:
    """`published` in an engine, open."""
    push(published)
    server.calls.clear()
    checkpoint = search_index.checkpoint
    return open_engine_index(tmp_path / "remote", MemoryEngine(server), checkpoint=checkpoint)


@pytest.fixture
def query() -> Encoding:
    return made_up_query(np.random.default_rng(0))


def test_an_open_index_stays_at_its_generation_and_closes_its_client(
    remote: EngineIndex, push: Push, published: Path, server: MemoryServer, tmp_path: Path
) -> None:
    client = remote.client
    with remote:
        push(published)
        assert (remote.generation, remote.collection("images").count) == (1, 23)
        facts = describe_engine_index(tmp_path / "remote", LOCATION, MemoryEngine(server))
        assert facts.generations == [1, 2]
        with open_engine_index(tmp_path / "remote", MemoryEngine(server)) as newer:
            assert newer.generation == 2
            assert newer.checkpoint.model_id == remote.checkpoint.model_id
        remote.check_health()
        server.down = {"check_health"}
        with pytest.raises(EngineUnavailableError):
            remote.check_health()
    assert isinstance(client, MemoryEngine) and client.closed


@pytest.mark.parametrize("problem", ["nothing", "unfinished", "gone", "model", "cut", "down"])
def test_an_index_that_cannot_be_opened_closes_its_client(
    push: Push, published: Path, server: MemoryServer, tmp_path: Path, problem: str
) -> None:
    push(published)
    folder, client = tmp_path / "remote", MemoryEngine(server)
    kind: type[Exception] = IndexNotReadyError
    if problem == "nothing":
        server.live, message = None, "nothing was pushed to milvus yet"
    elif problem == "unfinished":
        del server.records[1][MANIFEST]
        message = "generation 1 is missing or incomplete"
    elif problem == "gone":
        server.live, message = 7, "generation 7 is missing"
    elif problem == "model":
        (folder / "model" / "model.safetensors").unlink()
        kind, message = IndexCorruptError, "missing"
    elif problem == "cut":
        server.records[1][MANIFEST] = server.records[1][MANIFEST][:100]
        kind, message = IndexCorruptError, "milvus: generation 1: its record cannot be read"
    else:
        server.down, kind, message = {"*"}, EngineUnavailableError, "no answer"
    with pytest.raises(kind, match=message):
        open_engine_index(folder, client)
    assert client.closed


def test_another_model_and_a_collection_that_was_not_pushed_are_refused(
    push: Push,
    server: MemoryServer,
    search_index: SearchIndex,
    made_up: Callable[..., ItemBatch],
    write_made_up: Callable[..., int],
    tmp_path: Path,
) -> None:
    write_made_up(tmp_path / "files", images=made_up(["a"]))
    push(tmp_path / "files")
    other = replace(search_index.checkpoint, model_id="another")
    with pytest.raises(IndexMismatchError, match="got another"):
        open_engine_index(tmp_path / "remote", MemoryEngine(server), checkpoint=other)
    checkpoint = search_index.checkpoint
    with (
        open_engine_index(
            tmp_path / "remote", MemoryEngine(server), checkpoint=checkpoint
        ) as index,
        pytest.raises(NoSuchTargetError, match="no texts, only images"),
    ):
        index.collection("texts")


@pytest.mark.parametrize("dtype", ["float16", "4bit"])
def test_a_record_is_read_as_it_was_written(
    push: Push,
    server: MemoryServer,
    made_up: Callable[..., ItemBatch],
    write_made_up: Callable[..., int],
    tmp_path: Path,
    dtype: str,
) -> None:
    ids = [f"item {number}" for number in range(20)]
    write_made_up(tmp_path / "files", dtype, images=made_up(ids), texts=made_up(ids))
    push(tmp_path / "files")
    record = read_generation(MemoryEngine(server), 1)
    assert record.pieces() == server.records[1]
    changed = GenerationRecord.read(record.with_changes().pieces(), "again")
    assert (record.changed, changed.changed) == (False, True)
    assert changed.pieces() == record.pieces() | {CHANGED: b"1"}
    codec = record.codecs["images"]
    assert (codec.centroids is None, codec.feedback is None) == (dtype == "float16",) * 2

    pieces = record.pieces()
    del pieces["source.json"]
    with pytest.raises(IndexCorruptError, match=r"has no 'source\.json'"):
        GenerationRecord.read(pieces, "generation 1")
    newer = pieces[MANIFEST].replace(b'"schema_version": 1', b'"schema_version": 2')
    with pytest.raises(IndexMismatchError, match="schema version: expected 1, got 2"):
        GenerationRecord.read({**record.pieces(), MANIFEST: newer}, "generation 1")


def test_a_description_counts_items_and_changes(
    remote: EngineIndex, server: MemoryServer, made_up: Callable[..., ItemBatch]
) -> None:
    folder, client = remote.path, MemoryEngine(server)
    model_id = remote.checkpoint.model_id
    facts = describe_engine_index(folder, LOCATION, client)
    assert (facts.path, facts.engine) == (folder, LOCATION)
    assert (facts.generation, facts.generations, facts.model.id) == (1, [1], model_id)
    counts = {target: each.count for target, each in facts.collections.items()}
    assert (counts, facts.changed) == ({"images": 23, "texts": 16}, False)
    EngineWriter(folder, client, model_id).add("images", made_up(["x"]), "error")
    facts = describe_engine_index(folder, LOCATION, client)
    images = facts.collections["images"]
    assert (images.count, images.built, facts.changed) == (24, 23, True)
    assert np.isclose(images.ann.recall, 1)


def test_a_search_takes_one_call_and_an_item_as_a_query_one_for_each_collection(
    remote: EngineIndex, server: MemoryServer, query: Encoding
) -> None:
    searcher = TwoStageSearcher(remote)
    for item_id, calls in (("photo 3", 1), ("text 4", 2)):
        server.calls.clear()
        searcher.stored_query(item_id)
        assert server.calls == calls * ["fetch_tokens"]
    for explain in (False, True):
        server.calls.clear()
        run_search(searcher, query, "text", "images", k=5, explain=explain, text="two dogs run")
        run_search(searcher, query, "image", "texts", k=5, explain=explain)
        assert server.calls == ["search", "search"]


def test_without_tokens_the_first_stage_decides_and_without_that_nothing(
    remote: EngineIndex,
    server: MemoryServer,
    searcher: TwoStageSearcher,
    query: Encoding,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hits(searcher: TwoStageSearcher, **options: bool) -> list[str]:
        found = run_search(searcher, query, "image", "texts", k=5, **options)
        assert found.degraded == ["rerank_unavailable"] * bool(server.down)
        assert found.reranked == (not server.down and options.get("rerank", True))
        return [hit.id for hit in found.hits]

    whole = remote.client.search

    def bare(query: EngineQuery) -> list[FoundItem]:  # as one does whose messages are full
        return whole(replace(query, with_tokens=False))

    monkeypatch.setattr(remote.client, "search", bare)
    ours = TwoStageSearcher(remote)
    assert hits(ours) == hits(searcher)
    expected = hits(searcher, rerank=False)
    server.down = {"fetch_tokens"}
    assert hits(ours) == expected
    server.down = {"search"}
    with pytest.raises(EngineUnavailableError, match="memory: no answer to search"):
        hits(ours)


def test_without_the_tokens_of_the_hits_there_is_an_order_and_no_evidence(
    remote: EngineIndex, query: Encoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise EngineUnavailableError("memory", "no answer")

    searcher = TwoStageSearcher(remote)
    options = {"k": 5, "explain": True}
    plain = run_search(searcher, query, "image", "texts", **options)
    monkeypatch.setattr(EngineCollection, "similarities", fail)
    found = run_search(searcher, query, "image", "texts", **options)
    assert (found.degraded, found.reranked) == (["evidence_unavailable"], True)
    assert all(hit.evidence is None for hit in found.hits)
    assert [(hit.id, hit.score) for hit in found.hits] == [(h.id, h.score) for h in plain.hits]


def test_items_removed_or_replaced_during_a_search_keep_their_tokens_or_score_zero(
    remote: EngineIndex, server: MemoryServer, search_index: SearchIndex, query: Encoding
) -> None:
    tokens, stored = query.item_tokens(0), server.collections[1, "texts"]
    files = search_index.collection("texts")
    fetched, known = remote.collection("texts"), remote.collection("texts")
    rows = fetched.order(FirstStageQuery(query.embedding[0], 4, 4)).rows
    known.order(FirstStageQuery(query.embedding[0], 4, 4, SecondStageQuery(tokens, "image")))
    removed, replaced, *_ = (item.id for item in fetched.items.by_rows(rows.tolist()))
    del stored[removed]
    newer = stored[replaced].item._replace(row=99, text="newer")
    stored[replaced] = stored[replaced]._replace(item=newer)
    server.calls.clear()
    assert known.lengths(rows).tolist() == files.lengths(rows).tolist()
    expected = files.align(tokens, "image", rows).tolist()
    assert known.align(tokens, "image", rows).tolist() == expected
    assert server.calls == []
    assert fetched.align(tokens, "image", rows).tolist() == [0, 0, *expected[2:]]
    assert fetched.lengths(rows).tolist()[:2] == [0, 0]
    assert fetched.items.by_rows(rows[1:2].tolist())[0].text != "newer"
    assert not fetched.embeddings(rows[:2].tolist()).any()


def test_no_more_is_asked_for_than_one_search_finds(remote: EngineIndex, query: Encoding) -> None:
    searcher = TwoStageSearcher(remote)
    remote.client.max_results = 10  # type: ignore[misc]
    found = run_search(searcher, query, "text", "images", k=4, offset=6, candidates=5)
    assert [hit.rank for hit in found.hits] == [7, 8, 9, 10]
    with pytest.raises(InputError, match=r"at most 10 candidates, .* got 11"):
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
        found = remote.collection("images").order(FirstStageQuery(embedding, count, 3))
        assert found.candidates == 3
        assert found.rows.tolist() == longest.rows[:count].tolist()
        assert found.match.tolist() == longest.match[:count].tolist()
