"""Probabilities of hits: the numbers, and what they do not depend on."""

from __future__ import annotations

import dataclasses
import itertools
import math
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aladin_index.format.disk import only_builder
from aladin_index.generations.published import publish_entries
from aladin_index.generations.reader import open_index
from aladin_index.search.candidates import find_candidates
from aladin_index.search.collection import FirstStageQuery
from aladin_index.search.options import AskedSearch, SearchOptions
from aladin_index.search.query import Term
from aladin_index.search.results import SearchAnswer
from aladin_index.search.score import score_all
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.calibration.calibration import Calibration
from aladin_network.calibration.judging import LogisticModel
from aladin_network.errors import InputError
from aladin_network.scoring.encoding import Encoding
from tests.index.searching import assert_typed, run_search

Search = Callable[..., SearchAnswer]

# Fewer than the photos, so that some hits are beyond.
POOL = 20


@pytest.fixture(scope="module")
def calibrated(
    published: Path,
    tmp_path_factory: pytest.TempPathFactory,
    make_calibration: Callable[..., Calibration],
) -> Iterator[TwoStageSearcher]:
    """Searches an index of 23 photos and 16 texts with made-up probabilities and a small pool."""
    root = tmp_path_factory.mktemp("calibrated") / "index"
    shutil.copytree(published, root)
    with only_builder(root), open_index(root) as index:
        calibration = make_calibration(index.manifest.model.id)
        publish_entries(root, index.manifest, {}, "calibrate", calibration)
    with open_index(root) as index, pytest.MonkeyPatch.context() as patch:
        patch.setattr("aladin_index.search.plan.POOL", POOL)
        yield TwoStageSearcher(index)


@pytest.fixture(scope="module")
def text(calibrated: TwoStageSearcher) -> Encoding:
    """A text of nine words, as a query."""
    return calibrated.stored_query("text 0").encoding


@pytest.fixture(scope="module")
def ask(calibrated: TwoStageSearcher, text: Encoding) -> Search:
    """Searches the photos for the text: ``ask(k=5, min_probability=0.5)``."""

    def search(k: int = 23, **options: Any) -> SearchAnswer:
        return run_search(calibrated, text, "text", "images", k=k, **options)

    return search


def logistic(log_odds: float) -> float:
    return 1 / (1 + math.exp(-log_odds))


def by_hand(result: SearchAnswer, words: dict[str, int], less: float = 0.0) -> dict[str, float]:
    """Work the made-up probabilities out, from an answer with all that was searched."""
    hits = {hit.id: hit for hit in result.hits}
    pool = sorted(hits, key=lambda name: -hits[name].stages.match.score)[:POOL]

    def align(name: str) -> float:
        stage = hits[name].stages.align
        assert stage is not None
        return stage.score

    best, second, *_ = sorted(pool, key=align, reverse=True)
    return {
        name: logistic(
            3 * hits[name].stages.match.score
            + align(name) / 4
            + (align(name) - align(second if name == best else best)) / 2
            - 0.5 * math.log(words[name])
            + less
        )
        for name in hits
    }


def test_a_text_judges_photos_by_both_stages_scores(ask: Search, text: Encoding) -> None:
    result = ask()
    words = int(text.mask.sum())
    expected = by_hand(result, {hit.id: words for hit in result.hits})
    assert len(result.hits) == 23 > POOL
    assert len({round(hit.probability or 0, 6) for hit in result.hits}) == 23
    for hit in result.hits:
        assert hit.probability == pytest.approx(expected[hit.id], abs=1e-6)
    assert result.no_match is False


def test_a_photo_judges_texts_each_by_its_own_number_of_words(
    calibrated: TwoStageSearcher,
) -> None:
    query, _ = calibrated.stored_query("photo 3")[:2]
    result = run_search(calibrated, query, "image", "texts", k=16)
    lengths = {
        hit.id: round(hit.stages.align.score / hit.per_word)  # type: ignore[union-attr, operator]
        for hit in result.hits
    }
    assert len(set(lengths.values())) > 5
    expected = by_hand(result, lengths, less=-1.0)
    for hit in result.hits:
        assert hit.probability == pytest.approx(expected[hit.id], abs=1e-6)


@pytest.mark.parametrize("candidates", [5, POOL, 21, 23, 500])
def test_a_pair_has_one_probability(ask: Search, candidates: int) -> None:
    whole = ask()
    expected = {hit.id: hit.probability for hit in whole.hits}
    for (k, offset), fusion in itertools.product(
        [(1, 0), (4, 0), (4, 4), (3, 19), (10, 15), (23, 0), (5, 23)], [None, 0.0, 0.5, 1.0]
    ):
        result = ask(k=k, offset=offset, fusion=fusion, candidates=candidates)
        assert len(result.hits) == max(min(k, 23 - offset), 0)
        assert result.no_match == whole.no_match
        for hit in result.hits:
            assert hit.probability == pytest.approx(expected[hit.id], abs=1e-6)


@pytest.mark.parametrize("options", [{}, {"rerank": False}, {"min_probability": 0.5}])
def test_judged_answers_have_values_of_the_types_of_their_fields(
    ask: Search, options: dict[str, Any]
) -> None:
    answer = ask(k=9, **options)
    assert answer.probabilities_reliable is not None
    assert_typed(answer)


@pytest.mark.parametrize("options", [{}, {"fusion": 0.5, "offset": 7}])
def test_probabilities_change_nothing_else(
    searcher: TwoStageSearcher, ask: Search, text: Encoding, options: dict[str, Any]
) -> None:
    plain = run_search(searcher, text, "text", "images", k=9, candidates=8, **options)
    judged = ask(k=9, candidates=8, **options)

    assert [dataclasses.replace(hit, probability=None) for hit in judged.hits] == plain.hits
    assert (plain.no_match, plain.probabilities_reliable) == (None, None)
    assert all(hit.probability is None for hit in plain.hits)
    assert all(hit.probability is not None for hit in judged.hits)


def test_the_pool_is_of_what_passes_the_filter(ask: Search, text: Encoding) -> None:
    result = ask(filter={"number": {"lt": 6}})
    assert len(result.hits) == 6
    words = int(text.mask.sum())
    expected = by_hand(result, {hit.id: words for hit in result.hits})
    for hit in result.hits:
        assert hit.probability == pytest.approx(expected[hit.id], abs=1e-6)
    nothing = ask(filter={"number": 99})
    assert (nothing.hits, nothing.no_match, nothing.unreliable_because) == ([], None, None)


def test_hits_that_are_not_likely_enough_are_left_out_and_the_rest_keep_their_ranks(
    ask: Search,
) -> None:
    whole = ask().hits
    least = float(np.median([hit.probability for hit in whole]))  # type: ignore[list-item]
    likely = [hit for hit in whole if hit.probability >= least]  # type: ignore[operator]
    assert 0 < len(likely) < len(whole)
    assert ask(min_probability=least).hits == likely
    pages = [ask(min_probability=least, k=6, offset=offset) for offset in (0, 6, 12, 18)]
    assert [hit.id for page in pages for hit in page.hits] == [hit.id for hit in likely]
    assert [hit.rank for page in pages for hit in page.hits] == [hit.rank for hit in likely]
    assert ask(min_probability=0.0).hits == whole


def test_no_match_where_nothing_is_likely(ask: Search) -> None:
    none = ask(min_probability=1.0)
    assert (none.hits, none.no_match) == ([], True)
    # A later page knows nothing of the hits of the first one.
    later = ask(min_probability=1.0, offset=5)
    assert (later.hits, later.no_match) == ([], False)


@pytest.fixture
def search_with(published: Path, tmp_path: Path, text: Encoding) -> Callable[..., SearchAnswer]:
    """Searches the photos for the text, by a calibration: ``search_with(calibration, k=5)``."""
    root = Path(shutil.copytree(published, tmp_path / "index"))

    def search(calibration: Calibration, **options: Any) -> SearchAnswer:
        with only_builder(root), open_index(root) as index:
            publish_entries(root, index.manifest, {}, "calibrate", calibration)
        with open_index(root) as index:
            return run_search(TwoStageSearcher(index), text, "text", "images", **options)

    return search


def test_a_calibration_of_other_photos_says_nothing(
    search_with: Search, make_calibration: Callable[..., Calibration]
) -> None:
    others = dataclasses.replace(make_calibration("any"), other_photos=True)
    found = search_with(others, k=5)
    assert (found.probabilities_reliable, found.unreliable_because) == (False, "other_photos")
    assert found.no_match is None
    assert [hit.probability for hit in found.hits] == [None] * 5
    # A least probability leaves nothing out where there are none.
    likely = search_with(others, k=5, min_probability=1.0)
    assert (len(likely.hits), likely.degraded) == (5, ["min_probability"])


def test_no_match_below_the_threshold(
    search_with: Search, make_calibration: Callable[..., Calibration]
) -> None:
    made = make_calibration("any")
    for no_match_below, no_match in ((-20.0, False), (20.0, True)):
        direction = dataclasses.replace(made.text_to_image, no_match_below=no_match_below)
        result = search_with(dataclasses.replace(made, text_to_image=direction), k=1)
        assert (result.no_match, len(result.hits)) == (no_match, 1)


def test_without_the_second_stage_a_calibration_of_both_says_nothing(
    calibrated: TwoStageSearcher, text: Encoding
) -> None:
    past = time.monotonic() - 1
    result = run_search(calibrated, text, "text", "images", k=5, deadline_s=past)
    assert (result.reranked, result.degraded) == (False, ["rerank_timeout"])
    assert (result.no_match, result.unreliable_because) == (None, "no_alignment")
    assert [hit.probability for hit in result.hits] == [None] * 5
    nothing = {"number": 99}
    result = run_search(calibrated, text, "text", "images", k=5, filter=nothing, deadline_s=past)
    assert (result.hits, result.unreliable_because) == ([], None)


def test_a_calibration_of_the_first_stage_judges_without_the_second(
    search_with: Search, make_calibration: Callable[..., Calibration]
) -> None:
    made = make_calibration("any")
    hit = LogisticModel(intercept=0.0, weights=[3.0, *[0.0] * 7])
    direction = dataclasses.replace(made.text_to_image, aligned=False, hit=hit)
    calibration = dataclasses.replace(made, text_to_image=direction)
    for rerank in (True, False):
        result = search_with(calibration, k=5, rerank=rerank)
        for each in result.hits:
            expected = logistic(3 * each.stages.match.score)
            assert each.probability == pytest.approx(expected, abs=1e-6)


def test_items_of_one_modality_have_no_probability(
    calibrated: TwoStageSearcher, text: Encoding
) -> None:
    result = run_search(calibrated, text, "text", "texts", k=3)
    assert [hit.probability for hit in result.hits] == [None] * 3
    assert (result.no_match, result.probabilities_reliable) == (None, None)
    with pytest.raises(InputError, match="only images for a text and texts for an image"):
        run_search(calibrated, text, "text", "texts", k=3, min_probability=0.5)


def test_the_least_probability_takes_a_calibration_and_lies_between_0_and_1(
    searcher: TwoStageSearcher, ask: Search, text: Encoding
) -> None:
    with pytest.raises(InputError, match="the index is not calibrated"):
        run_search(searcher, text, "text", "images", k=3, min_probability=0.5)
    for value in (-0.1, 1.1):
        with pytest.raises(InputError, match="min_probability: expected 0 to 1"):
            ask(min_probability=value)


@pytest.mark.parametrize("candidates", [1, POOL - 1, POOL, 23])
@pytest.mark.parametrize("offset", [0, 7])
def test_hits_are_judged_against_the_same_pool_whatever_the_candidates_and_the_page(
    calibrated: TwoStageSearcher, text: Encoding, candidates: int, offset: int
) -> None:
    collection = calibrated.index.collection("images")
    best = collection.order(FirstStageQuery(text.embedding[0], 23, 23)).rows[:POOL]
    options = SearchOptions(candidates=candidates, offset=offset, k=3)
    plan = calibrated.plan(AskedSearch(Term(text, "text"), "images", options), 0.0)
    found = find_candidates([plan])
    [scored] = score_all([plan], found, calibrated.clock)
    assert found[0].pool.rows.tolist() == best.tolist()
    assert scored.pool_align is not None
    align = collection.align(text.item_tokens(0), "text", best)
    assert scored.pool_align.tolist() == align.tolist()
