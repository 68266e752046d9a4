"""The limit of queries that may be in at a time."""

from __future__ import annotations

from aladin_service.work.query_queue import AdmissionLimit


def room(limit: AdmissionLimit) -> int:
    """Return how many it lets in."""
    return next(count for count in range(10_000) if not limit.admits(count))


def test_it_begins_with_the_most_and_stays_there_while_answers_are_in_time() -> None:
    limit = AdmissionLimit(least=4, most=100)
    for now in range(50):
        assert room(limit) == 100
        limit.observe(took_s=0.5, bound_s=1.0, now_s=float(now))
    assert room(limit) == 100


def test_a_late_answer_lowers_it_in_proportion_but_at_most_to_half() -> None:
    limit = AdmissionLimit(least=4, most=100)
    limit.observe(took_s=1.25, bound_s=1.0, now_s=10.0)
    assert room(limit) == 80
    limit.observe(took_s=100.0, bound_s=1.0, now_s=1000.0)
    assert room(limit) == 40


def test_those_that_came_before_it_was_lowered_do_not_lower_it_again() -> None:
    limit = AdmissionLimit(least=4, most=100)
    limit.observe(took_s=2.0, bound_s=1.0, now_s=10.0)
    limit.observe(took_s=2.5, bound_s=1.0, now_s=11.0)  # came at 8.5
    assert room(limit) == 50
    limit.observe(took_s=1.25, bound_s=1.0, now_s=11.5)  # came at 10.25
    assert room(limit) == 40


def test_it_never_falls_below_the_least() -> None:
    limit = AdmissionLimit(least=4, most=100)
    for turn in range(1, 20):
        limit.observe(took_s=9.0, bound_s=1.0, now_s=100.0 * turn)
    assert room(limit) == 4


def test_it_grows_by_one_only_where_it_turned_someone_away() -> None:
    limit = AdmissionLimit(least=4, most=100)
    for turn in range(1, 4):
        limit.observe(took_s=2.0, bound_s=1.0, now_s=10.0 * turn)
    assert room(limit) == 12  # which turned one away
    limit.observe(took_s=0.5, bound_s=1.0, now_s=40.0)
    limit.observe(took_s=0.5, bound_s=1.0, now_s=41.0)
    assert not limit.admits(13)
    assert limit.admits(12)
