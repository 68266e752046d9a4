from dataclasses import replace

import pytest

from aladin_index.measure.curve_points import search_times
from aladin_index.measure.evaluate import EvaluationQueries
from aladin_index.search.options import SearchOptions
from aladin_index.search.query import Term
from aladin_index.search.results import SearchAnswer, TookMs
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.graphs.threads import compute_threads, set_compute_threads
from aladin_network.types import NullProgress, Target


def test_each_question_is_asked_with_all_numbers_before_the_next(
    tied: TwoStageSearcher, monkeypatch: pytest.MonkeyPatch, tied_queries: EvaluationQueries
) -> None:
    asked: list[tuple[int, int, int]] = []
    search = TwoStageSearcher.search
    questions = tied_queries.texts[:3]

    def recorded(
        self: TwoStageSearcher, query: Term, target: Target, options: SearchOptions
    ) -> SearchAnswer:
        number = options.candidates or 0
        asked.append((number, options.k, compute_threads()))
        result = search(self, query, target, options)
        # The question's number and that of the candidates are in the time.
        row = (len(asked) - 1) // 2
        took_ms = {"retrieve": 10.0 * row, "rerank": float(asked[-1][0]), "total": 1000.0}
        return replace(result, took_ms=TookMs(decode=500.0, encode=500.0, **took_ms))

    monkeypatch.setattr(TwoStageSearcher, "search", recorded)
    threads = compute_threads()
    set_compute_threads(2)
    try:
        times = search_times(tied, questions, "text", "images", [1, 15], NullProgress())
        assert compute_threads() == 2
    finally:
        set_compute_threads(threads)
    few, many = (1, 1, 1), (15, 10, 1)
    assert [sorted(asked[start : start + 2]) for start in (0, 2, 4)] == [[few, many]] * 3
    assert [each.median_ms for each in times] == pytest.approx([11.0, 25.0])
    assert [each.p95_ms for each in times] == pytest.approx([20.0, 34.0])
