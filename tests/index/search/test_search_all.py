"""Searches of a batch are answered as each by itself, whatever their options."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from aladin_index.ann import first_stage
from aladin_index.changes.encoded import ItemBatch
from aladin_index.changes.writer import ChangesWriter
from aladin_index.format.disk import only_builder
from aladin_index.generations.published import publish_entries
from aladin_index.generations.reader import open_index
from aladin_index.search.file_collection import FileCollection
from aladin_index.search.options import AskedSearch, SearchOptions
from aladin_index.search.results import SearchAnswer
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.settings import BuildSettings
from aladin_network.calibration.calibration import Calibration
from aladin_network.errors import IndexCorruptError, InputError

PHOTOS, TEXTS = 400, 150
# Of every option the default, and values that lead another way through the stages.
VALUES: dict[str, list[Any]] = {
    "k": [10, 1, 40],
    "offset": [0, 0, 7, 90],
    "candidates": [None, 20, 5, "exhaustive"],
    "rerank": [True, True, False],
    "fusion": [None, 0.0, 0.3, 1.0],
    "explain": [False, False, True],
    "filter": [{}, {}, {"n": {"lt": 60}}, {"n": {"gte": 100}}, {"n": -1}],
    "timeout_ms": [None, None, 60_000.0],
    "min_probability": [None, None, 0.2],
    "lexical": [None, None, 0.5],
    "sort": [None, None, "-n"],
}


@pytest.fixture(scope="module", params=[False, True], ids=["built", "changed"])
def searcher(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    write_made_up: Callable[..., int],
    made_up: Callable[..., ItemBatch],
    make_calibration: Callable[..., Calibration],
) -> Iterator[TwoStageSearcher]:
    """A calibrated index with a graph for its photos; with live changes, or without any."""
    root = tmp_path_factory.mktemp("batches") / "index"
    photos = [f"p{place}" for place in range(PHOTOS)]
    texts = [f"t{place}" for place in range(TEXTS)]
    write_made_up(
        root,
        dtype="int8",
        settings=BuildSettings(ann="HNSW16,Flat"),
        images=made_up(photos, n=list(range(PHOTOS))),
        texts=made_up(texts, n=list(range(TEXTS))),
    )
    with only_builder(root), open_index(root) as index:
        calibration = make_calibration(index.manifest.model.id)
        publish_entries(root, index.manifest, {}, "calibrate", calibration)
    with open_index(root) as index, pytest.MonkeyPatch.context() as patch:
        patch.setattr("aladin_index.search.plan.POOL", 12)  # fewer than the candidates
        if request.param:
            with closing(ChangesWriter(root, index.checkpoint.model_id)) as writer:
                new = made_up([f"new {place}" for place in range(30)], n=list(range(30)))
                writer.add("images", new, "error")
                writer.delete("images", [f"p{place}" for place in range(0, 200, 3)])
        yield TwoStageSearcher(index)


def draw(searcher: TwoStageSearcher, chance: random.Random) -> AskedSearch:
    """Draw a search: an item of the index, which is not among its own hits, and its options."""
    item = f"t{chance.randrange(TEXTS)}" if chance.random() < 0.7 else f"p{chance.randrange(1, 9)}"
    query = searcher.stored_query("p100" if item in ("p3", "p6") else item)
    options = {name: chance.choice(values) for name, values in VALUES.items()}
    target = "images" if chance.random() < 0.8 else "texts"
    return AskedSearch(query, target, SearchOptions(**options))


def without_times(answer: SearchAnswer | Exception) -> Any:
    """Return what has to be the same of an answer, or the type and the message of an error."""
    if isinstance(answer, Exception):
        return type(answer), str(answer)
    return dataclasses.replace(answer, took_ms=None)  # type: ignore[arg-type]


def alone(searcher: TwoStageSearcher, asked: AskedSearch) -> SearchAnswer | Exception:
    try:
        return searcher.search(*asked)
    except InputError as error:
        return error


@pytest.mark.parametrize("seed", range(4))
def test_the_answers_are_those_of_each_search_alone(
    searcher: TwoStageSearcher, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_stage, "EXACT_UP_TO", 99)  # more go through the graph
    chance = random.Random(seed)
    for size in (1, 2, 16, 40):
        batch = [draw(searcher, chance) for _ in range(size)]
        answers = searcher.search_all(batch)
        assert len(answers) == size
        for asked, answer in zip(batch, answers, strict=True):
            expected = without_times(alone(searcher, asked))
            assert without_times(answer) == expected, asked.options


def test_searches_of_a_collection_share_a_call_of_each_stage(
    searcher: TwoStageSearcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, int]] = []
    for name in ("order_all", "align_all"):
        real = getattr(FileCollection, name)

        def note(
            self: FileCollection, first: Any, *rest: Any, name: str = name, real: Any = real
        ) -> Any:
            calls.append((name, len(first)))
            return real(self, first, *rest)

        monkeypatch.setattr(FileCollection, name, note)
    query = searcher.stored_query("t1")
    plain = AskedSearch(query, "images", SearchOptions(candidates=30))
    filtered = AskedSearch(query, "images", SearchOptions(candidates=30, filter={"n": {"lt": 9}}))
    searcher.search_all([plain, filtered, plain, plain, filtered])
    assert calls == [("order_all", 3), ("order_all", 2), ("align_all", 3), ("align_all", 2)]


def test_an_error_concerns_its_own_search_alone(
    searcher: TwoStageSearcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = FileCollection.align_all

    def fail(self: FileCollection, queries: Any, modality: Any, rows: Any) -> Any:
        if any(len(query) == len(broken.query.encoding.item_tokens(0)) for query in queries):
            raise IndexCorruptError("tokens.npy", "cut short")
        return real(self, queries, modality, rows)

    lengths = {
        item: len(searcher.stored_query(item).encoding.item_tokens(0))
        for item in (f"t{place}" for place in range(TEXTS))
    }
    longest = max(lengths, key=lengths.__getitem__)
    good = [item for item, length in lengths.items() if length < lengths[longest]][:3]
    broken = AskedSearch(searcher.stored_query(longest), "images", SearchOptions())
    batch = [AskedSearch(searcher.stored_query(item), "images", SearchOptions()) for item in good]
    expected = [without_times(searcher.search(*asked)) for asked in batch]
    monkeypatch.setattr(FileCollection, "align_all", fail)
    first, *others, wrong = searcher.search_all(
        [broken, *batch, AskedSearch(broken.query, "images", SearchOptions(k=0))]
    )
    assert isinstance(first, IndexCorruptError)
    assert isinstance(wrong, InputError)
    assert [without_times(answer) for answer in others] == expected
