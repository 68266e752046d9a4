"""Answers that leave out what was asked for: no time, no tokens, no training."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aladin_index.search.deadline import OutOfTimeError, RerankDeadline, TimesBySize
from aladin_index.search.file_collection import FileCollection
from aladin_index.search.options import SearchOptions
from aladin_index.search.results import SearchAnswer
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.errors import EngineUnavailableError
from tests.index.searching import run_search

TEXT = "the yellow star is left of a white triangle"


def ask(searcher: TwoStageSearcher, target: Any = "images", **options: Any) -> SearchAnswer:
    query = searcher.stored_query("text 4").encoding
    return run_search(searcher, query, "text", target, k=4, text=TEXT, **options)


def order(answer: SearchAnswer) -> list[tuple[str, int, float]]:
    return [(hit.id, hit.rank, hit.score) for hit in answer.hits]


@pytest.mark.parametrize(
    "options", [{}, {"offset": 5}, {"candidates": "exhaustive", "fusion": 1.0, "offset": 3}]
)
def test_after_the_deadline_the_first_stage_decides(
    searcher: TwoStageSearcher, options: dict[str, Any]
) -> None:
    plain = ask(searcher, **{"candidates": 3} | options, rerank=False)
    late = ask(
        searcher, explain=True, deadline_s=time.monotonic() - 1, **{"candidates": 3} | options
    )
    assert (late.reranked, late.fusion, late.degraded) == (False, None, ["rerank_timeout"])
    assert order(late) == order(plain)
    for hit in late.hits:  # the second stage did not run at all
        assert (hit.stages.align, hit.per_word, hit.evidence) == (None, None, None)


def test_without_tokens_at_hand_all_items_are_ordered_by_the_first_stage(
    searcher: TwoStageSearcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = ask(searcher, rerank=False)

    def fail(*_: object) -> None:
        raise EngineUnavailableError("tokens", "not there")

    monkeypatch.setattr(FileCollection, "align", fail)
    lost = ask(searcher, candidates="exhaustive", fusion=1)
    assert (lost.reranked, lost.degraded) == (False, ["rerank_unavailable"])
    assert order(lost) == order(plain)


def test_several_terms_without_time_are_ordered_by_their_cosines(
    searcher: TwoStageSearcher,
) -> None:
    terms = tuple(searcher.stored_query(f"text {n}")._replace(role="all") for n in (1, 2))
    found = searcher.search(terms, "images", SearchOptions(k=5, timeout_ms=1e-6))
    assert (found.degraded, found.reranked, len(found.hits)) == (["rerank_timeout"], False, 5)
    assert all(term.align is None for hit in found.hits for term in hit.terms or ())


def test_a_deadline_changes_nothing_with_time_enough_or_without_a_second_stage(
    searcher: TwoStageSearcher,
) -> None:
    timed = ask(searcher, deadline_s=time.monotonic() + 60)
    assert (timed.hits, timed.reranked, timed.degraded) == (ask(searcher).hits, True, [])
    for options in ({"rerank": False}, {"target": "texts"}):
        assert ask(searcher, deadline_s=time.monotonic() - 1, **options).degraded == []


class Clock:
    """Stands for `time.monotonic`; every scored row takes a millisecond."""

    def __init__(self) -> None:
        self.now_s = 50.0
        self.scored = 0

    def __call__(self) -> float:
        return self.now_s

    def align(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        self.now_s += 0.001 * len(rows)
        self.scored += len(rows)
        return (2 * rows).astype(np.float32)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("aladin_index.search.deadline.time.monotonic", clock)
    return clock


def test_a_guarded_scorer_scores_all_rows_or_stops_between_parts(clock: Clock) -> None:
    guard, align, rows = RerankDeadline().guard, clock.align, np.arange(5000)[::-1]
    assert guard(align, "text_to_image", 10, None) is align
    score = guard(align, "text_to_image", len(rows), clock.now_s + 60)
    np.testing.assert_array_equal(score(rows), 2.0 * rows)
    assert clock.scored == 5000
    score = guard(align, "text_to_image", len(rows), clock.now_s + 1.5)
    with pytest.raises(OutOfTimeError):
        score(rows)
    assert clock.scored == 5000 + 2048  # after 1.024 s there was time yet, after 2.048 s none


@pytest.mark.parametrize(
    ("direction", "candidates", "seconds", "is_tried"),
    [
        ("text_to_image", 100, 0.101, True),
        ("text_to_image", 100, 0.099, False),
        ("text_to_image", 50, 0.051, True),
        ("text_to_image", 1000, 0.999, False),
        ("image_to_text", 1000, 0.001, True),  # of which nothing is known
        ("image_to_text", 1, -0.001, False),  # which is over
    ],
)
def test_what_is_known_of_the_direction_decides_beforehand(
    clock: Clock, direction: Any, candidates: int, seconds: float, is_tried: bool
) -> None:
    deadline = RerankDeadline()
    deadline.observe("text_to_image", 100, 0.100)
    try:
        deadline.guard(clock.align, direction, candidates, clock.now_s + seconds)
    except OutOfTimeError:
        assert not is_tried
    else:
        assert is_tried


def test_what_was_slow_long_ago_is_tried_again_by_one_query_at_a_time(clock: Clock) -> None:
    deadline = RerankDeadline()
    rows = np.arange(100, dtype=np.int64)  # in truth 0.1 s
    deadline.observe("text_to_image", len(rows), 20.0)
    tries = 0
    for _ in range(1000):
        clock.now_s += 0.5
        try:
            score = deadline.guard(clock.align, "text_to_image", len(rows), clock.now_s + 0.3)
        except OutOfTimeError:
            continue
        tries += 1
        score(rows)
        deadline.observe("text_to_image", len(rows), 0.1)
    # From 20 s to below 0.3 s by a fifth each, 21 of them 10 s apart; from then on all of them.
    assert tries == pytest.approx(21 + 1000 - 21 * 20, abs=30)


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        ([], {3: 0.0}),
        # In between half way; 16 as two of 8, 1 as half of 2.
        ([(8, 4.0), (2, 2.0)], {2: 2.0, 8: 4.0, 5: 3.0, 16: 8.0, 1: 1.0, 0: 0.0}),
        # Something else kept the machine busy: a unit costs no more than at a smaller size.
        ([(1, 1.0), (8, 100.0)], {8: 8.0, 2: 2.0}),
        # A fifth of the way to a single measurement, all of it to many.
        ([(1, 1.0)] * 10 + [(1, 11.0)], {1: 3.0}),
        ([(1, 1.0)] * 10 + [(1, 11.0)] * 40, {1: 11.0}),
        ([(8, 4.0)] + [(1, 1.0)] * 1000, {8: 4.0}),
    ],
)
def test_work_is_expected_to_take_what_was_measured(
    observed: list[tuple[int, float]], expected: dict[int, float]
) -> None:
    times = TimesBySize()
    for size, seconds in observed:
        times.observe(size, seconds)
    assert {size: times.expect(size) for size in expected} == pytest.approx(expected, rel=0.01)


def test_threads_may_measure_at_the_same_time() -> None:
    times = TimesBySize()

    def measure(_: int) -> None:
        for number in range(2000):
            size = 1 + number % 50
            times.observe(size, float(size))
            assert times.expect(size) == pytest.approx(size)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(measure, range(4)))
    assert [times.expect(size) for size in range(1, 51)] == pytest.approx(list(range(1, 51)))
