"""Batches of queries: the same answers as one by one, and nobody is harmed by a neighbour."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import aladin_index.encode.item_encoders as item_encoders
import aladin_service.search.encoder as query_encoder
from aladin_index.search.options import AskedSearch, SearchOptions
from aladin_network.errors import (
    ImageError,
    InputError,
    TextTooLongError,
    UnknownItemError,
)
from aladin_network.model import AladinModel
from aladin_network.scoring.encoding import Encoding
from aladin_network.types import Target
from aladin_service.search.job import (
    Answered,
    ItemQuery,
    PhotoQuery,
    Query,
    SearchJob,
    TextQuery,
)
from aladin_service.settings import ServiceSettings
from aladin_service.work.worker import Worker, WorkerPlan
from tests.service.searching import search_for, search_job

TEXTS = ["a red dog", "two men ride a motorcycle in the street", "a star", "the square is striped"]
Results = dict[int, Any]


def make_worker(index: Path, **settings: Any) -> Worker:
    # In float32 an encoding does not depend on what else is in the batch.
    chosen = ServiceSettings(query_precision="float32", **settings)
    return WorkerPlan(index=index, settings=chosen).make()


@pytest.fixture(scope="module")
def worker(index_folder: Path) -> Iterator[Worker]:
    with closing(make_worker(index_folder, query_cache_bytes=0)) as worker:
        yield worker


def job(query: Query | str, target: Target = "images", **options: Any) -> SearchJob:
    return search_job(query, target, **{"k": 5, **options})


def answer(
    worker: Worker, jobs: Sequence[SearchJob], is_wanted: Callable[[int], bool] = lambda _: True
) -> Results:
    """Return the answers and errors by place, without those that are not wanted."""
    results = worker.do([*jobs], is_wanted)
    assert len(results) == len(jobs)
    return {place: each for place, each in enumerate(results) if each is not None}


def hits(result: Answered | Exception) -> list[dict[str, Any]]:
    assert isinstance(result, Answered), result
    return json.loads(result.body)["hits"]


def assert_same(actual: Answered | Exception, expected: Answered | Exception) -> None:
    for ours, theirs in zip(hits(actual), hits(expected), strict=True):
        assert ours["id"] == theirs["id"]
        assert ours["score"] == pytest.approx(theirs["score"], abs=1e-4)
        assert ours["per_word"] == pytest.approx(theirs["per_word"], abs=1e-4)
        for stage, facts in theirs["stages"].items():
            score = None if facts is None else pytest.approx(facts["score"], abs=1e-4)
            assert (ours["stages"][stage] or {}).get("score") == score


@pytest.fixture(scope="module")
def queries(
    query_photo: Image.Image, encoded: Callable[..., bytes], image_ids: list[str]
) -> list[Query]:
    """Of every kind, texts of different lengths and photos of different sizes among them."""
    photos = [encoded(query_photo), encoded(query_photo.resize((200, 30)), "JPEG")]
    return [
        *map(TextQuery, TEXTS),
        *map(PhotoQuery, photos),
        ItemQuery(image_ids[0]),
    ]


@pytest.mark.parametrize("target", ["images", "texts"])
def test_a_batch_is_answered_in_one_search_as_its_queries_one_by_one(
    worker: Worker, queries: list[Query], target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    searcher, sizes = worker.searcher(), list[int]()
    real = searcher.search_all

    def note(asked: Sequence[AskedSearch]) -> Any:
        sizes.append(len(asked))
        return real(asked)

    monkeypatch.setattr(searcher, "search_all", note)
    uncalibrated = job(TEXTS[0], target, min_probability=0.5)
    together = answer(worker, [*(job(query, target) for query in queries), uncalibrated])
    assert sizes == [8]
    assert isinstance(together.pop(7), InputError)
    batches = [result.batch for result in together.values()]
    assert batches == [5, 5, 5, 5, 2, 2, 1]  # encoded together with it
    for place, query in enumerate(queries):
        assert_same(together[place], answer(worker, [job(query, target)])[0])
    alone = search_for(searcher, queries[0], target, SearchOptions(k=5))
    assert [hit["id"] for hit in hits(together[0])] == [hit.id for hit in alone.hits]


BAD: list[tuple[Query, type[Exception]]] = [
    (TextQuery(""), InputError),
    (TextQuery("dog " * 100), TextTooLongError),
    (TextQuery("x" * 2001), TextTooLongError),
    (PhotoQuery(b"broken"), ImageError),
    (PhotoQuery(b""), ImageError),
    (ItemQuery("nobody"), UnknownItemError),
]


def test_a_query_that_fails_leaves_the_answers_of_others_as_they_are(
    worker: Worker, queries: list[Query]
) -> None:
    alone = answer(worker, [job(query) for query in queries])
    mixed = [query for pair in zip(itertools.cycle(queries), dict(BAD)) for query in pair]
    results = answer(worker, [job(query) for query in mixed])
    assert sorted(results) == list(range(len(mixed)))
    for place, query in enumerate(mixed):
        if query in queries:
            assert_same(results[place], alone[queries.index(query)])
        else:
            assert type(results[place]) is dict(BAD)[query]


def test_a_batch_that_fails_is_encoded_query_by_query(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = query_encoder.encode_texts
    alone = answer(worker, [job(text) for text in TEXTS])

    def out_of_memory(model: AladinModel, texts: Sequence[str]) -> Encoding:
        if len(texts) > 1 or texts[0] == TEXTS[1]:
            raise RuntimeError("no memory left")
        return real(model, texts)

    monkeypatch.setattr(query_encoder, "encode_texts", out_of_memory)
    results = answer(worker, [job(text) for text in TEXTS])
    for place in (0, 2, 3):
        assert_same(results[place], alone[place])
    assert isinstance(results[1], RuntimeError)
    assert "queries as a batch failed; encoding them one by one" in caplog.text


def test_an_unforeseen_error_fails_its_query_alone(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    searcher = worker.searcher()
    real = searcher.plan

    def fail(search: AskedSearch, *rest: Any) -> Any:
        if search.options.k == 3:
            raise ZeroDivisionError
        return real(search, *rest)

    monkeypatch.setattr(searcher, "plan", fail)
    results = answer(worker, [job("a dog", k=k) for k in (2, 3, 4)])
    assert [len(hits(results[place])) for place in (0, 2)] == [2, 4]
    assert isinstance(results[1], ZeroDivisionError)


def test_withdrawn_queries_are_neither_encoded_nor_searched(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = query_encoder.encode_texts
    encoded: list[str] = []

    def note(model: AladinModel, texts: Sequence[str]) -> Encoding:
        encoded.extend(texts)
        return real(model, texts)

    monkeypatch.setattr(query_encoder, "encode_texts", note)
    jobs = [job(text) for text in TEXTS]
    results = answer(worker, jobs, is_wanted=lambda place: place != 2)
    assert sorted(results) == [0, 1, 3]
    assert encoded == [TEXTS[0], TEXTS[1], TEXTS[3]]
    # Whoever hangs up while the batch is encoded is not searched for.
    seen = set(range(4))

    def hang_up(model: AladinModel, texts: Sequence[str]) -> Encoding:
        seen.discard(1)
        return real(model, texts)

    monkeypatch.setattr(query_encoder, "encode_texts", hang_up)
    assert sorted(answer(worker, jobs, is_wanted=seen.__contains__)) == [0, 2, 3]


def test_no_more_photos_are_decoded_at_a_time_than_set(
    index_folder: Path,
    query_photo: Image.Image,
    encoded: Callable[..., bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, lock, both = item_encoders.decoded_image, threading.Lock(), threading.Barrier(2)
    running, most = 0, 0

    @contextmanager
    def watched(*args: Any) -> Generator[Image.Image]:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        both.wait(10)  # passes only where two decode at the same time
        with real(*args) as photo:
            yield photo
        with lock:
            running -= 1

    monkeypatch.setattr(item_encoders, "decoded_image", watched)
    photos = [encoded(query_photo.rotate(angle)) for angle in range(6)]
    with closing(make_worker(index_folder, decode_threads=2)) as worker:
        results = answer(worker, [job(PhotoQuery(photo)) for photo in photos])
    assert all(hits(result) for result in results.values())
    assert most == 2


def test_a_repeated_query_is_not_encoded_again_and_keeps_its_boxes(
    index_folder: Path, queries: list[Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [
        job(query, "texts", explain=True)
        for query in queries
        if isinstance(query, TextQuery | PhotoQuery)
    ]
    with closing(make_worker(index_folder)) as worker:
        first = answer(worker, jobs)

        def refuse(*_: object) -> Encoding:
            raise AssertionError("the network ran")

        monkeypatch.setattr(query_encoder, "encode_texts", refuse)
        monkeypatch.setattr(query_encoder, "encode_images", refuse)
        monkeypatch.setattr(item_encoders, "decoded_image", refuse)
        again = answer(worker, jobs)
    assert len(again) == len(jobs)
    for place, before in first.items():
        assert (before.cached, again[place].cached) == (False, True)
        assert hits(again[place]) == hits(before)
    assert hits(first[5])[0]["evidence"][0]["box"] is not None  # of a photo


def test_a_query_out_of_time_is_answered_in_match_order(worker: Worker) -> None:
    options = [{"timeout_ms": 0.001}, {"rerank": False}, {"timeout_ms": 60_000.0}]
    found = answer(worker, [job("a dog", **each) for each in options])
    results = [json.loads(each.body) for each in found.values()]
    assert [result["degraded"] for result in results] == [["rerank_timeout"], [], []]
    assert [result["reranked"] for result in results] == [False, False, True]
    assert [hit["id"] for hit in results[0]["hits"]] == [hit["id"] for hit in results[1]["hits"]]


def test_cached_encodings_do_not_keep_their_batch_in_memory(worker: Worker) -> None:
    searcher = worker.searcher()
    encoder = query_encoder.QueryEncoder(query_encoder.QueryLimits())
    with closing(encoder):
        results = encoder.encode(searcher, [TextQuery(text) for text in TEXTS])
    for result in results:
        assert isinstance(result, tuple)
        (term,) = result
        for part in term.encoding:
            assert (part if part.base is None else part.base).nbytes == part.nbytes
        assert bool(term.encoding.mask.all())
        assert np.isfinite(term.encoding.tokens).all()
