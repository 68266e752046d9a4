"""What a server is sent."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import pytest

from aladin_index.engines.client import EngineClient, EngineOptions, EngineQuery
from aladin_index.engines.qdrant import client_store
from aladin_index.format.layout import EngineLocation
from aladin_index.items.filters import parse_filter
from aladin_index.open import connect
from aladin_network.errors import EngineError, EngineUnavailableError
from tests.index.engines.made_up import EMBEDDING_DIM, TOKEN_DIM, codec_of, entry, schema_of, unit
from tests.index.engines.qdrant.rest_server import Fault, RestServer


@contextmanager
def client(rest: RestServer, retries: int = 0, **location: Any) -> Generator[EngineClient]:
    where = EngineLocation(engine="qdrant", url=rest.url, name="test", **location)
    with closing(connect(where, EngineOptions(timeout_s=5, retries=retries))) as engine:
        yield engine


def test_a_side_is_made_with_its_options(rest: RestServer) -> None:
    params: dict[str, int | float | str] = {"m": 24, "ef_construct": 99, "tokens": "float16"}
    with client(rest, shards=3, replicas=3, index_params=params) as engine:
        engine.create_collection(1, "images", schema_of(codec_of("4bit")))

    (record,) = rest.named("PUT", "_record")
    assert record.body["shard_number"] == 1
    side = rest.named("PUT", "test_000001_images")[0].body
    for name, value in {
        "shard_number": 3,
        "replication_factor": 3,
        "write_consistency_factor": 2,
        "optimizers_config": {"indexing_threshold": 0},
    }.items():
        assert side[name] == value
    match, tokens = side["vectors"]["match"], side["vectors"]["tokens"]
    assert (match["size"], match["distance"]) == (EMBEDDING_DIM, "Dot")
    assert match["hnsw_config"] == {"m": 24, "ef_construct": 99}
    assert (tokens["size"], tokens["distance"], tokens["datatype"]) == (TOKEN_DIM, "Dot", "float16")
    assert tokens["multivector_config"] == {"comparator": "max_sim"}
    assert tokens["hnsw_config"] == {"m": 0}
    (index,) = rest.named("PUT", "test_000001_images/index")
    assert index.body == {"field_name": "values", "field_schema": "keyword"}


def test_a_side_without_token_vectors_is_never_asked_to_score(rest: RestServer) -> None:
    codec = codec_of("4bit")
    with client(rest, index="flat", index_params={"tokens": "none"}) as engine:
        engine.create_collection(1, "images", schema_of(codec))
        engine.upsert(1, "images", [entry(1, codec)])
        words = unit(np.random.default_rng(0), 2, TOKEN_DIM)
        query = unit(np.random.default_rng(0), EMBEDDING_DIM)
        (found,) = engine.search(
            EngineQuery(
                generation=1,
                target="images",
                embedding=query,
                count=3,
                with_tokens=True,
                words=words,
            )
        )

    vectors = rest.named("PUT", "test_000001_images")[0].body["vectors"]
    assert set(vectors) == {"match"}
    assert vectors["match"]["hnsw_config"]["m"] == 0
    assert found.align is None
    assert found.entry.tokens is not None
    assert len(rest.named("POST", "query/batch")[0].body["searches"]) == 1


def test_one_request_brings_both_scores(rest: RestServer) -> None:
    codec, random = codec_of("4bit"), np.random.default_rng(0)
    with client(rest) as engine:
        engine.create_collection(1, "images", schema_of(codec))
        engine.upsert(1, "images", [entry(number, codec) for number in range(4)])
        before = len(rest.requests)
        query, words = unit(random, EMBEDDING_DIM), unit(random, 2, TOKEN_DIM)
        filter = parse_filter({"number": {"gte": 1}})
        found = engine.search(
            EngineQuery(
                generation=1,
                target="images",
                embedding=query,
                count=100,
                filter=filter,
                width=256,
                words=words,
            )
        )

    assert len(found) == 3
    (request,) = rest.requests[before:]
    first, second = request.body["searches"]
    assert first["params"]["hnsw_ef"] == 256
    assert (first["using"], first["limit"], first["with_payload"]) == ("match", 100, ["item"])
    assert second["prefetch"]["query"] == first["query"]["nearest"]
    for name in ("using", "filter", "params", "limit"):
        assert second["prefetch"][name] == first[name]
    assert (second["using"], second["limit"], second["with_payload"]) == ("tokens", 100, False)
    assert request.query == {}


def test_replicas_agree_on_what_is_written_and_read(rest: RestServer) -> None:
    codec = codec_of("4bit")
    with client(rest, replicas=3) as engine:
        engine.create_collection(1, "images", schema_of(codec))
        engine.upsert(1, "images", [entry(1, codec)])
        engine.delete(1, "images", ["somebody"])
        engine.fetch(1, "images", ["somebody"])
        engine.search(
            EngineQuery(
                generation=1,
                target="images",
                embedding=unit(np.random.default_rng(0), EMBEDDING_DIM),
                count=3,
            )
        )
    with client(rest, consistency="all") as engine:
        engine.fetch(1, "images", ["somebody"])

    put = rest.named("PUT", "images/points")[0].query
    assert (put["wait"], put["ordering"]) == ("true", "medium")
    assert rest.named("POST", "points/delete")[0].query["ordering"] == "medium"
    reads = rest.named("POST", "images/points") + rest.named("POST", "query/batch")
    assert [each.query["consistency"] for each in reads] == ["quorum", "all", "quorum"]


def test_a_change_that_is_not_completed_is_not_acknowledged(rest: RestServer) -> None:
    codec = codec_of("4bit")
    with client(rest) as engine:
        engine.create_collection(1, "images", schema_of(codec))
        rest.change_status = "acknowledged"
        with pytest.raises(EngineUnavailableError, match="a change is acknowledged, not completed"):
            engine.upsert(1, "images", [entry(1, codec)])


def test_many_items_go_in_messages_that_a_server_takes(
    rest: RestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_bytes = 100_000
    monkeypatch.setattr(client_store, "_MESSAGE_BYTES", limit_bytes)
    codec = codec_of("float16")
    tokens = codec.pack(unit(np.random.default_rng(0), 250, TOKEN_DIM))
    entries = [entry(number, codec)._replace(tokens=tokens) for number in range(8)]
    with client(rest) as engine:
        engine.create_collection(1, "images", schema_of(codec))
        engine.upsert(1, "images", entries)
        assert engine.count(1, "images") == 8

    sent = rest.named("PUT", "images/points")
    assert len(sent) > 1
    # Not more than the limit, and not many that are far below.
    assert all(limit_bytes / 2 < each.size_bytes < limit_bytes for each in sent[:-1])
    assert [point["payload"]["id"] for each in sent for point in each.body["points"]] == [
        each.item.id for each in entries
    ]


def test_numbers_get_an_index_before_they_come(rest: RestServer) -> None:
    codec = codec_of("float16")
    with client(rest) as engine:
        engine.create_collection(1, "images", schema_of(codec))
        engine.count(1, "images")
        engine.upsert(1, "images", [])
        before = len(rest.requests)
        engine.upsert(1, "images", [entry(1, codec, {"year": 2000, "city": "Pisa"})])
        engine.upsert(1, "images", [entry(2, codec, {"year": 2001})])

    new = rest.requests[before:]
    assert [request.path.rsplit("/", 1)[1] for request in new] == ["index", "points", "points"]
    path = new[0].body["field_name"]
    assert new[0].body["field_schema"] == "float"
    first, field, last = path.split(".")
    assert new[1].body["points"][0]["payload"][first][field][last] == [2000.0]


def test_a_side_is_open_once_it_is_indexed(
    rest: RestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_store, "_LOOK_AGAIN_S", 0.001)
    codec = codec_of("float16")
    with client(rest) as engine:
        engine.create_collection(1, "images", schema_of(codec))
        rest.states += ["green", "yellow", "grey"]
        engine.open_collection(1, "images")

        (changed,) = rest.named("PATCH", "test_000001_images")
        assert changed.body == {"optimizers_config": {"indexing_threshold": 10_000}}
        assert len(rest.named("GET", "test_000001_images")) == 3 + 3
        rest.states += ["red"]
        with pytest.raises(EngineError, match="a broken disk"):
            engine.open_collection(1, "images")


def test_a_collection_whose_making_was_not_answered_is_no_error(rest: RestServer) -> None:
    codec = codec_of("float16")
    with client(rest, retries=1) as engine:
        engine.write_record(1, {})
        making = [Fault(None)]
        original = rest.answer

        def answer(request: Any) -> object:
            result = original(request)
            if request.method == "PUT" and request.path.endswith("_images") and making:
                rest.faults.append(making.pop())
            return result

        rest.answer = answer
        engine.create_collection(1, "images", schema_of(codec))
        engine.upsert(1, "images", [entry(1, codec)])
        assert engine.count(1, "images") == 1
