import pytest
import torch

from aladin.progress import NullProgress
from index.curve.search_times import search_times
from index.evaluation_queries import EvaluationQueries
from index.results import SearchResult, StageTimes
from index.searcher import TwoStageSearcher


def test_each_question_is_asked_with_all_numbers_before_the_next(
    tied: TwoStageSearcher, monkeypatch: pytest.MonkeyPatch, tied_queries: EvaluationQueries
) -> None:
    asked: list[tuple[int, int]] = []
    search = TwoStageSearcher.search
    questions = tied_queries.texts[:3]

    def recorded(self: TwoStageSearcher, *args: object, **options: object) -> SearchResult:
        asked.append((int(options["num_candidates"]), torch.get_num_threads()))  # type: ignore[call-overload]
        result = search(self, *args, **options)  # type: ignore[arg-type]
        # The question's number and that of the candidates are in the time.
        row = (len(asked) - 1) // 2
        took_ms = StageTimes(retrieve=10.0 * row, rerank=asked[-1][0], look_up=1000.0)
        return SearchResult(**(vars(result) | {"took_ms": took_ms}))

    monkeypatch.setattr(TwoStageSearcher, "search", recorded)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        times = search_times(tied, questions, "text", "images", [1, 5], NullProgress())
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert asked == [(1, 1), (5, 1), (5, 1), (1, 1), (1, 1), (5, 1)]
    assert [each.median_ms for each in times] == pytest.approx([11.0, 15.0])
    assert [each.p95_ms for each in times] == pytest.approx([20.0, 24.0])
