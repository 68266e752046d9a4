"""Searches by two models against a slow reference: each item by its own model, on one scale."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aladin_index.changes.writer import ChangesWriter
from aladin_index.format.upgrade_methods import RestMethod
from aladin_index.format.upgrade_plan import read_sample
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.search.backend import EncodedQuery
from aladin_index.search.options import SearchOptions
from aladin_index.search.results import SearchAnswer
from aladin_index.search.searcher import AskedSearch, TwoStageSearcher
from aladin_index.upgrade.bridge import Bridge
from aladin_index.upgrade.methods import ChosenMethod, read_methods, write_methods
from aladin_index.upgrade.opening import find_upgrade, load_successor, open_upgrade
from aladin_index.upgrade.searcher import UpgradingSearcher
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.errors import InputError
from aladin_network.inference import encode_photos, encode_texts
from aladin_network.scoring.fusion import DirectionFusion
from aladin_network.types import Target
from tests.index.searching import assert_typed
from tests.index.upgrade.conftest import Begin

TEXTS = ("two dogs run", "a yellow star", "a man in the street")


@pytest.fixture
def index(index_copy: Path, begin: Begin) -> Iterator[SearchIndex]:
    """An index of 23 images, 15 of which are encoded by the new model, as is a sample of texts."""
    begin(index_copy, 5)
    with open_index(index_copy) as opened:
        yield opened


@pytest.fixture
def new(index: SearchIndex) -> Checkpoint:
    plan = find_upgrade(index)
    assert plan is not None
    return load_successor(index.path, plan)


def searcher_of(index: SearchIndex, new: Checkpoint) -> UpgradingSearcher:
    plan = find_upgrade(index)
    assert plan is not None
    searcher = open_upgrade(TwoStageSearcher(index), plan, new)
    assert searcher is not None
    return searcher


@pytest.fixture
def searcher(index: SearchIndex, new: Checkpoint) -> UpgradingSearcher:
    return searcher_of(index, new)


@pytest.fixture
def over_bridge(index: SearchIndex, new: Checkpoint) -> UpgradingSearcher:
    """Asks the images that are not encoded over a made-up bridge."""
    random = np.random.default_rng(0)
    bridge = Bridge(
        random.standard_normal((24, 16)).astype(np.float32),
        random.standard_normal((12, 8)).astype(np.float32),
    )
    methods = read_methods(index.path)
    assert methods is not None
    fusion = DirectionFusion(weight=0.5, align_mean=1.0, align_std=0.3, match_std=0.1)
    rest = RestMethod(method="bridge", fusion=fusion)
    write_methods(index.path, {**methods, "images": ChosenMethod(rest, bridge)})
    return searcher_of(index, new)


def query_of(searcher: UpgradingSearcher, text: str, target: Target = "images") -> EncodedQuery:
    """Encode a text for both models."""
    by_new = EncodedQuery(
        encode_texts(searcher.successor.index.checkpoint.model, [text]), "text", text
    )
    asked = searcher.over_bridge(target, by_new)
    if asked is None:
        asked = EncodedQuery(encode_texts(searcher.index.checkpoint.model, [text]), "text", text)
    return asked._replace(by_new=by_new)


def scores_of(
    searcher: TwoStageSearcher, query: EncodedQuery, target: Target, count: int
) -> dict[str, float]:
    """Return the score of every item by one model."""
    answer = searcher.search(query._replace(by_new=None), target, SearchOptions(k=count))
    return {hit.id: hit.score for hit in answer.hits}


def expected_order(
    searcher: UpgradingSearcher, query: EncodedQuery, old: TwoStageSearcher
) -> list[tuple[str, float, str]]:
    """Score every image by the model that has to, and order them: id, score, new or rest."""
    assert query.by_new is not None
    index = searcher.index
    assert isinstance(index, SearchIndex)
    rest = scores_of(old, query, "images", 23)
    new = scores_of(searcher.successor, query.by_new, "images", 23)
    sample = read_sample(index.path, "images")
    assert sample is not None
    names = {row: item_id for item_id, row in index.side("images").items.ids()}
    on_scale: list[tuple[str, float, str]] = []
    for scores, model in ((rest, "rest"), (new, "new")):
        of_sample = np.array([scores[names[row]] for row in sample.tolist()])
        mean, deviation = of_sample.mean(), of_sample.std()
        for item_id, score in scores.items():
            if (item_id in new) == (model == "new"):
                on_scale.append((item_id, (score - mean) / deviation, model))
    return sorted(on_scale, key=lambda each: -each[1])


def assert_order(answer: SearchAnswer, expected: list[tuple[str, float, str]], rest: str) -> None:
    found = [(hit.id, hit.model) for hit in answer.hits]
    assert found == [(each, rest if model == "rest" else "new") for each, _, model in expected]
    scores = [score for _, score, _ in expected]
    assert [hit.score for hit in answer.hits] == pytest.approx(scores, abs=1e-3)


@pytest.mark.parametrize("text", TEXTS)
def test_each_image_is_scored_by_its_model_on_one_scale(
    searcher: UpgradingSearcher, text: str
) -> None:
    query = query_of(searcher, text)
    expected = expected_order(searcher, query, TwoStageSearcher(searcher.index))
    assert {model for _, _, model in expected} == {"new", "rest"}
    answer = searcher.search(query, "images", SearchOptions(k=23))
    assert_order(answer, expected, "old")
    assert [hit.rank for hit in answer.hits] == list(range(1, 24))
    assert answer.upgrade is not None
    assert answer.upgrade.encoded == pytest.approx(15 / 23)
    assert answer.upgrade.rest == "old"
    assert answer.generation == 1
    assert_typed(answer)
    # A page is a part of it.
    page = searcher.search(query, "images", SearchOptions(k=4, offset=7))
    assert [hit.id for hit in page.hits] == [each for each, _, _ in expected[7:11]]
    assert [hit.rank for hit in page.hits] == [8, 9, 10, 11]


@pytest.mark.parametrize("text", TEXTS)
def test_images_are_asked_over_the_bridge(over_bridge: UpgradingSearcher, text: str) -> None:
    query = query_of(over_bridge, text)
    side = over_bridge.sides["images"]
    expected = expected_order(over_bridge, query, side.searcher)
    answer = over_bridge.search(query, "images", SearchOptions(k=23))
    assert_order(answer, expected, "bridge")
    assert answer.upgrade is not None
    assert answer.upgrade.rest == "bridge"
    # What the bridge compares is what it says: the query in the terms of the old embeddings.
    live = over_bridge.index.side("images")
    rows = dict(live.items.ids())  # type: ignore[attr-defined]
    for hit in answer.hits:
        if hit.model == "bridge":
            cosine = live.embedding(rows[hit.id]) @ query.encoding.embedding[0]
            assert hit.stages.match.score == pytest.approx(cosine, abs=1e-4)


def test_evidence_is_that_of_the_scoring_model(over_bridge: UpgradingSearcher) -> None:
    query = query_of(over_bridge, "two dogs run")
    answer = over_bridge.search(query, "images", SearchOptions(k=23, explain=True))
    assert answer.degraded == []
    for hit in answer.hits:
        assert hit.evidence is not None
        assert [each.token for each in hit.evidence] == ["two", "dogs", "run"]
        assert hit.stages.align is not None
        total = sum(each.score for each in hit.evidence)
        assert total == pytest.approx(hit.stages.align.score, abs=1e-4)
        assert all(each.box is not None for each in hit.evidence)


def test_filters_deletions_and_sorting_are_those_of_the_live_index(
    searcher: UpgradingSearcher, index: SearchIndex
) -> None:
    query = query_of(searcher, "a yellow star")
    even = SearchOptions(k=23, filter={"parity": "even"})
    found = [hit.id for hit in searcher.search(query, "images", even).hits]
    assert sorted(found) == sorted(f"photo {number}" for number in range(0, 23, 2))
    gone = found[0]
    with closing(ChangesWriter(index.path, index.checkpoint.model_id)) as writer:
        writer.delete("images", [gone])
    after = searcher.search(query, "images", even)
    assert gone not in [hit.id for hit in after.hits]
    assert len(after.hits) == 11
    ordered = searcher.search(query, "images", replace(even, sort="-number"))
    numbers = [hit.metadata["number"] for hit in ordered.hits]
    assert numbers == sorted(numbers, reverse=True)
    assert {hit.rank for hit in ordered.hits} == set(range(1, 12))
    nothing = searcher.search(query, "images", SearchOptions(filter={"nowhere": 1}))
    assert (nothing.hits, nothing.unknown_fields) == ([], ["nowhere"])
    unsorted = searcher.search(query, "images", SearchOptions(sort="nowhere"))
    assert unsorted.unknown_fields == ["nowhere"]


def test_photos_find_images_and_texts(searcher: UpgradingSearcher, images: list[Any]) -> None:
    from PIL import Image

    picture = Image.open(images[4].path).convert("RGB")
    models = searcher.index.checkpoint.model, searcher.successor.index.checkpoint.model
    old, new = (
        EncodedQuery(encode_photos(model, [picture]), "image", size_px=picture.size)
        for model in models
    )
    answer = searcher.search(old._replace(by_new=new), "images", SearchOptions(k=23))
    assert answer.hits[0].id == "photo 4"
    assert {hit.model for hit in answer.hits} == {"old", "new"}
    texts = searcher.search(old._replace(by_new=new), "texts", SearchOptions(k=16))
    assert len({hit.id for hit in texts.hits}) == 16
    assert {hit.model for hit in texts.hits} == {"old", "new"}


def test_other_queries_are_answered_by_the_old_model_alone(
    searcher: UpgradingSearcher, index: SearchIndex
) -> None:
    plain = TwoStageSearcher(index)
    by_item = searcher.search(searcher.stored_query("photo 3"), "images", SearchOptions(k=23))
    expected = plain.search(plain.stored_query("photo 3"), "images", SearchOptions(k=23))
    assert [hit.id for hit in by_item.hits] == [hit.id for hit in expected.hits]
    assert by_item.upgrade is None
    assert {hit.model for hit in by_item.hits} == {None}
    assert searcher.asks_both("images", SearchOptions())
    for options in ({"min_probability": 0.5}, {"lexical": 0.5}):
        assert not searcher.asks_both("images", SearchOptions(**options))  # type: ignore[arg-type]


def test_a_batch_is_answered_as_one_by_one(searcher: UpgradingSearcher) -> None:
    asked = [
        AskedSearch(query_of(searcher, TEXTS[0]), "images"),
        AskedSearch(searcher.stored_query("photo 3"), "images"),
        AskedSearch(query_of(searcher, TEXTS[1]), "images", SearchOptions(filter={"a": {"b": 1}})),
        AskedSearch(query_of(searcher, TEXTS[2]), "images", SearchOptions(k=3, candidates="all")),
        AskedSearch(query_of(searcher, TEXTS[1]), "texts"),
    ]
    answers = searcher.search_all(asked)
    assert isinstance(answers[2], InputError)
    for each, answer in zip(asked, answers, strict=True):
        if isinstance(answer, SearchAnswer):
            alone = searcher.search(each.query, each.target, each.options)
            assert [hit.id for hit in answer.hits] == [hit.id for hit in alone.hits]
            assert [hit.score for hit in answer.hits] == pytest.approx(
                [hit.score for hit in alone.hits], abs=1e-5
            )


def test_without_time_for_the_second_stage_the_first_one_orders(
    searcher: UpgradingSearcher,
) -> None:
    query = query_of(searcher, TEXTS[0])
    answer = searcher.search(query, "images", SearchOptions(k=23, timeout_ms=1e-6))
    assert answer.degraded == ["rerank_timeout"]
    assert not answer.reranked
    assert len(answer.hits) == 23
    assert {hit.model for hit in answer.hits} == {"old", "new"}
    scores = [hit.score for hit in answer.hits]
    assert scores == sorted(scores, reverse=True)


def test_an_item_that_is_encoded_meanwhile_changes_its_model(
    searcher: UpgradingSearcher, index: SearchIndex, begin: Begin
) -> None:
    from tests.index.upgrade.conftest import SETTINGS

    query = query_of(searcher, TEXTS[0])
    before = searcher.search(query, "images", SearchOptions(k=23))
    begin(index.path, 1, replace(SETTINGS, resume=True))
    after = searcher.search(query, "images", SearchOptions(k=23))
    assert sorted(hit.id for hit in after.hits) == sorted(hit.id for hit in before.hits)
    assert sum(hit.model == "new" for hit in after.hits) == 21
    assert sum(hit.model == "new" for hit in before.hits) == 15
