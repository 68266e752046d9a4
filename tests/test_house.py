"""The limits that keep the tree readable; ``python -m benchmarks.house --list`` names offenders."""

from __future__ import annotations

import pytest

from benchmarks.house import PHOTO_BUDGET, QUERY_BUDGET, ROOT, Budget, Rule, static_rules
from benchmarks.lib.processes import in_fresh_process
from benchmarks.lib.recorded_calls import Call, RequestCalls, record_requests
from benchmarks.lib.source_tree import SourceTree

RULES = (
    "folder cycles",
    "packages with more than 8 loose modules",
    "functions of a complexity above 8",
    "signatures of more than 8 parameters",
    "isinstance of a Protocol's implementation",
    "data classes that mirror another",
    "files over 500 lines",
    "modules under 80 lines with one importer",
    "dangling docstring entries",
)


@pytest.fixture(scope="module")
def rules() -> dict[str, Rule]:
    """All rules by name; not checked at import, which every worker of the test run repeats."""
    return {rule.name: rule for rule in static_rules(SourceTree(ROOT))}


@pytest.mark.parametrize("name", RULES)
def test_no_more_places_break_a_rule_than_may(rules: dict[str, Rule], name: str) -> None:
    assert len(rules[name].places) <= rules[name].limit, "\n".join(rules[name].places)


def test_every_rule_is_tested(rules: dict[str, Rule]) -> None:
    assert set(rules) == set(RULES)


@pytest.fixture(scope="module")
def requests() -> RequestCalls:
    """Our functions that a text query and a new photo run through.

    They are recorded in a process of its own: caches that other tests have filled change the way.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("ALADIN_RUNTIME")
        return in_fresh_process(record_requests, ROOT)


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
    assert {"encode_texts", "search_all"} <= called
