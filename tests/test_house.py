"""The limits that keep the tree readable; ``python -m benchmarks.house --list`` names offenders."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

from benchmarks.house import PHOTO_BUDGET, QUERY_BUDGET, ROOT, Budget, Rule, static_rules
from benchmarks.lib.recorded_calls import Call, RequestCalls, record_requests
from benchmarks.lib.source_tree import SourceTree

RULES = static_rules(SourceTree(ROOT))


@pytest.mark.parametrize("rule", RULES, ids=[rule.name for rule in RULES])
def test_no_more_places_break_a_rule_than_may(rule: Rule) -> None:
    assert len(rule.places) <= rule.limit, "\n".join(rule.places)


@pytest.fixture(scope="module")
def requests() -> RequestCalls:
    """Our functions that a text query and a new photo run through.

    They are recorded in a process of its own: caches that other tests have filled change the way.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(record_requests, ROOT).result()


def within(calls: list[Call], budget: Budget) -> bool:
    files = {call.file for call in calls}
    return 0 < len(calls) <= budget.functions and 0 < len(files) <= budget.files


def test_a_text_query_over_http_runs_through_few_functions(requests: RequestCalls) -> None:
    assert within(requests.query, QUERY_BUDGET), requests.query


def test_a_photo_that_is_added_over_http_runs_through_few_functions(
    requests: RequestCalls,
) -> None:
    assert within(requests.photo, PHOTO_BUDGET), requests.photo


def test_calls_of_worker_threads_are_counted(requests: RequestCalls) -> None:
    called = {call.name.split(".")[-1] for call in requests.query}
    assert {"encode_texts", "search"} <= called
