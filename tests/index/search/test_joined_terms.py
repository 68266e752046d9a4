"""Queries of several terms, against sums of the terms' scores over all items."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aladin_index.changes.encoded import ItemBatch
from aladin_index.generations.published import publish_entries
from aladin_index.generations.reader import open_index
from aladin_index.search.options import AskedSearch, SearchOptions
from aladin_index.search.results import Role, SearchAnswer
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.search.terms import moved_words
from aladin_network.calibration.calibration import Calibration
from aladin_network.errors import InputError

PHOTOS = 40
ALL = SearchOptions(k=PHOTOS, candidates=PHOTOS)


@pytest.fixture(scope="module")
def searcher(
    tmp_path_factory: pytest.TempPathFactory,
    write_made_up: Callable[..., int],
    made_up: Callable[..., ItemBatch],
    make_calibration: Callable[..., Calibration],
) -> Iterator[TwoStageSearcher]:
    """A calibrated index of photos and texts with random encodings."""
    root = tmp_path_factory.mktemp("terms") / "index"
    photos, texts = [f"p{place}" for place in range(PHOTOS)], [f"t{place}" for place in range(9)]
    write_made_up(
        root,
        dtype="float16",
        images=made_up(photos, n=list(range(PHOTOS))),
        texts=made_up(texts, n=list(range(9))),
    )
    with open_index(root) as index:
        calibration = make_calibration(index.manifest.model.id)
        publish_entries(root, index.manifest, {}, "calibrate", calibration)
    with open_index(root) as index:
        yield TwoStageSearcher(index)


def ask(
    searcher: TwoStageSearcher, *terms: tuple[Role, str, float], options: SearchOptions = ALL
) -> SearchAnswer:
    """Search the photos by stored items as terms."""
    query = tuple(searcher.stored_query(n)._replace(role=role, weight=w) for role, n, w in terms)
    return searcher.search(query, "images", options)


def fused(searcher: TwoStageSearcher, text: str) -> dict[str, float]:
    """Score of every photo by one text alone."""
    query = searcher.stored_query(text)
    return {hit.id: hit.score for hit in searcher.search(query, "images", ALL).hits}


def standardised(searcher: TwoStageSearcher, photo: str, among: list[str]) -> dict[str, float]:
    """Cosine of some photos with another one, with mean 0 and deviation 1."""
    query = searcher.stored_query(photo)._replace(own_id=None)
    cosine = {h.id: h.stages.match.score for h in searcher.search(query, "images", ALL).hits}
    values = np.array([cosine[each] for each in among])
    return dict(zip(among, ((values - values.mean()) / values.std()).tolist(), strict=True))


def test_one_part_is_the_query_itself(searcher: TwoStageSearcher) -> None:
    plain = searcher.search(searcher.stored_query("t1"), "images", SearchOptions(k=7))
    found = ask(searcher, ("all", "t1", 1.0), options=SearchOptions(k=7))
    assert [hit.id for hit in found.hits] == [hit.id for hit in plain.hits]
    scores = [hit.score for hit in plain.hits]
    assert [hit.score for hit in found.hits] == pytest.approx(scores, abs=1e-5)
    assert plain.terms is None
    assert plain.hits[0].terms is None


def test_the_score_is_the_weighted_sum_of_the_terms(searcher: TwoStageSearcher) -> None:
    found = ask(searcher, ("all", "t1", 1.0), ("all", "t2", 2.5))
    one, other = fused(searcher, "t1"), fused(searcher, "t2")
    expected = {name: one[name] + 2.5 * other[name] for name in one}
    assert [hit.id for hit in found.hits] == sorted(expected, key=lambda n: -expected[n])
    for hit in found.hits:
        assert hit.score == pytest.approx(expected[hit.id], abs=1e-4)
        assert hit.terms is not None
        each = [term.score for term in hit.terms]
        assert each == pytest.approx([one[hit.id], 2.5 * other[hit.id]], abs=1e-4)
    assert found.terms is not None
    assert [(p.role, p.weight, p.id) for p in found.terms] == [("all", 1, "t1"), ("all", 2.5, "t2")]


def test_a_part_that_hits_lack_counts_above_its_usual_level_alone(
    searcher: TwoStageSearcher,
) -> None:
    found = ask(searcher, ("all", "t1", 1.0), ("not", "t2", 2.0))
    wanted, unwanted = fused(searcher, "t1"), fused(searcher, "t2")
    values = np.array(list(unwanted.values()))
    level = float(values.mean() - values.std())
    untouched = 0
    for hit in found.hits:
        expected = wanted[hit.id] - 2 * max(unwanted[hit.id] - level, 0)
        assert hit.score == pytest.approx(expected, abs=1e-4)
        untouched += unwanted[hit.id] <= level
        assert hit.score <= wanted[hit.id] + 1e-4
    assert 0 < untouched < PHOTOS
    scores = [hit.score for hit in found.hits]
    assert scores == sorted(scores, reverse=True)


def regions_of(searcher: TwoStageSearcher, photo: str) -> NDArray[np.float32]:
    """Stored tokens of a photo."""
    return searcher.stored_query(photo).encoding.tokens[0]


EXAMPLES: list[tuple[Role, str, float]] = [
    ("like", "p3", 1.0),
    ("like", "p4", 1.0),
]


def test_examples_move_the_words_of_a_text_and_are_no_hits(searcher: TwoStageSearcher) -> None:
    terms: list[tuple[Role, str, float]] = [("all", "t1", 2.0), ("not", "t2", 1.0), *EXAMPLES]
    found = ask(searcher, *terms, options=replace(ALL, explain=True))
    names = [hit.id for hit in found.hits]
    assert sorted(names) == sorted({f"p{n}" for n in range(PHOTOS)} - {"p3", "p4"})
    assert [term.weight for term in found.terms or ()] == [2.0, -1.0, 0.375, 0.375]
    text = searcher.stored_query("t1").encoding.tokens[0]
    likes = [regions_of(searcher, name) for name in ("p3", "p4")]
    words = moved_words(text, likes)
    asked = AskedSearch(searcher.stored_query("t1"), "images", ALL)
    fusion = searcher.plan(asked, 0.0).terms[0].fusion
    unwanted = ask(searcher, ("all", "t2", 1.0), ("not", "t2", 1.0))
    penalties = {hit.id: (hit.terms or ())[1].score for hit in unwanted.hits}
    for hit in found.hits:
        align = float((regions_of(searcher, hit.id) @ words.T).max(axis=0).sum())
        assert hit.terms is not None
        assert hit.terms[0].align == pytest.approx(align, abs=1e-3)
        # The evidence is that of the moved words.
        assert hit.terms[0].evidence is not None
        assert sum(word.score for word in hit.terms[0].evidence) == pytest.approx(align, abs=1e-3)
        expected = 2 * (align - fusion.align_mean) / fusion.align_std
        assert hit.terms[0].score == pytest.approx(expected, abs=1e-2)
        assert [term.score for term in hit.terms[2:]] == [0, 0]
        # What hits do not have is not moved.
        penalty = penalties[hit.id]
        assert hit.terms[1].score == pytest.approx(penalty, abs=0.2)
        assert hit.score == pytest.approx(sum(term.score for term in hit.terms), abs=1e-4)


def test_with_a_weight_of_the_fusion_both_stages_order_the_moved_words(
    searcher: TwoStageSearcher,
) -> None:
    options = replace(ALL, fusion=0.25)
    found = ask(searcher, ("all", "t1", 1.0), *EXAMPLES, options=options)
    asked = AskedSearch(searcher.stored_query("t1"), "images", ALL)
    fusion = searcher.plan(asked, 0.0).terms[0].fusion
    for hit in found.hits:
        assert hit.terms is not None
        assert hit.terms[0].align is not None
        expected = fusion.combine(hit.terms[0].align, hit.terms[0].match, 0.25)
        assert hit.score == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("options", [replace(ALL, rerank=False), replace(ALL, timeout_ms=1e-6)])
def test_without_the_second_stage_examples_have_the_weights_of_rocchio(
    searcher: TwoStageSearcher, options: SearchOptions
) -> None:
    found = ask(searcher, ("all", "t1", 1.0), *EXAMPLES, options=options)
    names = [hit.id for hit in found.hits]
    text = standardised(searcher, "t1", names)
    like, other = (standardised(searcher, name, names) for name in ("p3", "p4"))
    for hit in found.hits:
        sums = 0.375 * (like[hit.id] + other[hit.id])
        assert hit.score == pytest.approx(text[hit.id] + sums, abs=1e-4)


def test_examples_of_a_photo_are_compared_by_their_embeddings(searcher: TwoStageSearcher) -> None:
    found = ask(searcher, ("all", "p1", 1.0), *EXAMPLES)
    names = [hit.id for hit in found.hits]
    each = [standardised(searcher, name, names) for name in ("p1", "p3", "p4")]
    for hit in found.hits:
        one, like, other = (scores[hit.id] for scores in each)
        expected = one + 0.375 * (like + other)
        assert hit.score == pytest.approx(expected, abs=1e-4)


def test_the_first_stage_searches_the_weighted_sum_of_the_embeddings(
    searcher: TwoStageSearcher,
) -> None:
    found = ask(searcher, ("all", "t1", 2.0), ("like", "p3", 1.0), ("not", "t4", 1.0))
    embedding = {name: searcher.stored_query(name).encoding.embedding[0] for name in ("t1", "p3")}
    together = 2 * embedding["t1"] + 0.75 * embedding["p3"]
    together /= np.linalg.norm(together)
    for hit in found.hits:
        own = searcher.stored_query(hit.id).encoding.embedding[0]
        assert hit.stages.match.score == pytest.approx(float(own @ together), abs=1e-5)
        assert hit.stages.align is None


@pytest.mark.parametrize("role", ["all", "not"])
def test_pages_continue_each_other(searcher: TwoStageSearcher, role: Role) -> None:
    terms: list[tuple[Role, str, float]] = [("all", "t1", 1.0), (role, "t2", 1.0)]
    whole = ask(searcher, *terms, options=SearchOptions(k=30, candidates=8))
    pages = [
        ask(searcher, *terms, options=SearchOptions(k=6, offset=start, candidates=8))
        for start in range(0, 30, 6)
    ]
    assert [hit.id for page in pages for hit in page.hits] == [hit.id for hit in whole.hits]


def test_all_items_are_candidates_on_request(searcher: TwoStageSearcher) -> None:
    terms: list[tuple[Role, str, float]] = [("all", "t1", 1.0), ("not", "t2", 1.0)]
    every = ask(searcher, *terms, options=SearchOptions(k=5, candidates="exhaustive"))
    assert every.candidates == PHOTOS
    assert [h.id for h in every.hits] == [h.id for h in ask(searcher, *terms).hits[:5]]


def test_without_time_the_cosines_decide(searcher: TwoStageSearcher) -> None:
    options = SearchOptions(k=5, timeout_ms=1e-6)
    found = ask(searcher, ("all", "t1", 1.0), ("not", "t2", 1.0), options=options)
    assert (found.degraded, found.reranked, len(found.hits)) == (["rerank_timeout"], False, 5)
    assert all(term.align is None for hit in found.hits for term in hit.terms or ())


def test_a_filter_that_leaves_nothing(searcher: TwoStageSearcher) -> None:
    options = SearchOptions(filter={"n": -1})
    assert ask(searcher, ("all", "t1", 1.0), ("not", "t2", 1.0), options=options).hits == []


def test_there_is_no_probability_and_the_answer_says_so(searcher: TwoStageSearcher) -> None:
    found = ask(searcher, ("all", "t1", 1.0), ("not", "t2", 1.0))
    assert (found.probabilities_reliable, found.unreliable_because) == (False, "several_terms")
    assert found.no_match is None
    assert {hit.probability for hit in found.hits} == {None}


@pytest.mark.parametrize(
    ("terms", "options", "message"),
    [
        ([("not", "t1", 1.0)], {}, "expected a term in all or like"),
        ([("all", "p1", 1.0), ("all", "p1", -1.0)], {}, "cancel each other"),
        ([("all", "t1", 1.0)], {"min_probability": 0.5}, "have no probability"),
    ],
)
def test_terms_that_are_no_query(
    searcher: TwoStageSearcher,
    terms: list[tuple[Role, str, float]],
    options: dict[str, Any],
    message: str,
) -> None:
    with pytest.raises(InputError, match=message):
        ask(searcher, *terms, options=SearchOptions(**options))
