"""Random searches of random indexes, alone and in batches, against a slow reference."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aladin_index.items.filters import parse_filter
from aladin_index.search.collection import ExhaustiveQuery, FirstStageQuery, SecondStageQuery
from aladin_index.search.file_collection import FileCollection
from aladin_index.search.options import AskedSearch, SearchOptions
from aladin_index.search.query import Query
from aladin_index.search.results import SearchAnswer
from aladin_network.errors import InputError
from aladin_network.scoring.fusion import DirectionFusion
from aladin_network.types import Target
from tests.index.search.conftest import Known
from tests.index.search.reference import Expected
from tests.index.searching import assert_typed

# Of every option the default, and values that lead another way through the stages.
VALUES: dict[str, list[Any]] = {
    "k": [10, 1, 40],
    "offset": [0, 0, 7, 33, 200],
    "candidates": [None, 20, 5, 15, 300, "exhaustive"],
    "rerank": [True, True, False],
    "fusion": [None, None, 0.0, 0.3, 1.0],
    "filter": [{}, {}, {"n": {"lt": 40}}, {"n": {"gte": 5}}, {"n": -1}, {"nope": 1}],
    "timeout_ms": [None, None, 60_000.0],
    "min_probability": [None, None, None, 0.3, 1.0],
    "lexical": [None, None, None, 0.5, 1.0],
    "sort": [None, None, "-n", "n", "nope", "place"],
}
TEXTS = ["a photo in zánzibar", "Lhasa", "Quito or Pisa", "p7 zanzibar", "nothing at all"]
PLAIN = ["t1", "t2", "t7", "t9", "p1", "p4", "p8"]


def drawn(known: Known, chance: random.Random) -> AskedSearch[Query]:
    """Draw a text, a photo, or some terms, and the options."""
    ask = known.searcher.stored_query
    query: Query = (ask(chance.choice(PLAIN))._replace(text=chance.choice(TEXTS)),)
    if chance.random() < 0.4:
        names = chance.sample(PLAIN, chance.randrange(1, 5))
        roles = ["all", *(chance.choice(["all", "not", "like"]) for _ in names)]
        query = tuple(
            ask(name)._replace(
                role=role, weight=1.0 if role == "like" else chance.choice([1.0, 2.5])
            )  # type: ignore[arg-type]
            for name, role in zip(names, roles, strict=False)
        )
    elif chance.random() < 0.3:
        query = (query[0]._replace(own_id=None),)
    options = {name: chance.choice(values) for name, values in VALUES.items()}
    target: Target = "images" if chance.random() < 0.7 else "texts"
    return AskedSearch(query, target, SearchOptions(**options))


def is_refused(asked: AskedSearch[Query]) -> bool:
    """Whether a search wants a probability or words where there are none."""
    joined, crosses = asked.query[0].role is not None, [t.modality for t in asked.query]
    same = (asked.target == "images") == ("image" in crosses) and len({*crosses}) == 1
    wants = asked.options.min_probability is not None
    within = any((asked.target == "images") == (each == "image") for each in crosses)
    return bool(wants and (joined or same or within)) or bool(asked.options.lexical and joined)


def close(value: float | None) -> Any:
    return None if value is None else pytest.approx(value, abs=2e-3)


def assert_as_expected(answer: SearchAnswer, expected: Expected, options: SearchOptions) -> None:
    for name in ("candidates", "reranked", "fusion", "no_match", "unreliable_because"):
        assert getattr(answer, name) == getattr(expected, name), name
    assert answer.degraded == []
    assert answer.unknown_fields == expected.unknown_fields
    assert (answer.terms and [(of.role, of.weight, of.id) for of in answer.terms]) == expected.terms
    assert [hit.id for hit in answer.hits] == [hit.id for hit in expected.hits]
    # Bounds leave most of all items out: ranks by alignment are then those of the others.
    is_ranked = options.candidates != "exhaustive" or answer.fusion in (None, 1) or options.lexical
    for hit, each in zip(answer.hits, expected.hits, strict=True):
        align, stages = hit.stages.align, hit.stages
        assert (hit.rank, stages.match.rank) == (each.rank, each.match_rank)
        assert hit.score == close(each.score)
        assert stages.match.score == close(each.match)
        assert (align and align.score) == close(each.align)
        if is_ranked:
            assert (align and align.rank) == each.align_rank
        assert hit.per_word == close(each.per_word)
        assert hit.probability == close(each.probability)
        words, terms = stages.lexical, hit.terms
        assert (words and [(of.field, of.words) for of in words]) == each.words
        found = terms and [(of.score, of.match, of.align) for of in terms]
        assert found == (each.terms and [tuple(map(close, term)) for term in each.terms])


@pytest.mark.parametrize("seed", range(4))
def test_random_searches_are_answered_as_by_the_reference(known: Known, seed: int) -> None:
    """Those of a batch, and the first of each batch by itself."""
    chance = random.Random(seed)
    for size in (1, 2, 40):
        batch = [drawn(known, chance) for _ in range(size)]
        answers = known.searcher.search_all(batch)
        for asked, answer in zip(batch, answers, strict=True):
            if is_refused(asked):
                assert isinstance(answer, InputError), asked
                continue
            expected = known.reference.answer(asked.query, asked.target, asked.options)
            for each in (answer, *known.searcher.search_all([asked])):
                assert isinstance(each, SearchAnswer), each
                assert_typed(each)
                assert_as_expected(each, expected, asked.options)


def test_all_items_are_those_that_the_processor_finds_but_for_those_left_out(known: Known) -> None:
    """A GPU returns fewer of them; their number and the ranks by cosine are the same."""
    index, filters = known.searcher.index, (None, parse_filter({"n": {"lt": 45}}))
    own = index.collection("images").items.by_ids(["p2", "p5", "p50"])
    rows = [item.row for item in own if item is not None]
    term = known.searcher.stored_query("t1")
    stage = SecondStageQuery(term.encoding.item_tokens(0), "text")
    first = FirstStageQuery(term.encoding.embedding[0], 5, 5, stage)
    asked = ExhaustiveQuery(first, DirectionFusion(weight=0.5), 0.5, rows)
    for filter in filters:
        collection = index.collection("images", filter)
        assert isinstance(collection, FileCollection)
        plain = replace(collection, base=replace(collection.base, scan=None))
        [found], [expected] = collection.everything([asked]), plain.everything([asked])
        assert found.candidates == expected.candidates == len(expected.rows)
        places = np.searchsorted(expected.rows, found.rows)
        np.testing.assert_array_equal(expected.rows[places], found.rows)
        np.testing.assert_allclose(found.match, expected.match[places], atol=1e-6)
        if found.nearer is not None:
            counts = [(expected.match > match).sum() for match in expected.match[places]]
            np.testing.assert_array_equal(found.nearer(np.arange(len(found.rows))), counts)


def test_a_gpu_takes_all_items_of_a_plain_query_however_many(
    known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aladin_index.search.plan.MAX_ITEMS", 10)
    options, term = SearchOptions(candidates="exhaustive"), known.searcher.stored_query("t1")
    several = (term._replace(role="all"), term._replace(role="all"))
    for query in ((term,), several):
        [answer] = known.searcher.search_all([AskedSearch(query, "images", options)])
        collection = known.searcher.index.collection("images")
        if collection.scans_all and len(query) == 1:
            assert isinstance(answer, SearchAnswer) and answer.candidates == collection.count
        else:
            assert isinstance(answer, InputError) and "at most 10 items" in str(answer)
