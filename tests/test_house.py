"""The limits that keep the tree readable; ``python -m benchmarks.house --list`` names offenders."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from benchmarks.house import COUNTED_REQUESTS, ROOT, CountedRequest, Rule, static_rules
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
def requests(exported_checkpoint: Path, tiny_checkpoint: Path) -> dict[bool, RequestCalls]:
    """Our functions that requests run through, by whether graphs compute the network.

    They are recorded in processes of their own: caches that other tests have filled change the way.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("ALADIN_RUNTIME")
        models = {True: exported_checkpoint, False: tiny_checkpoint}
        return {
            by_graphs: in_fresh_process(
                partial(record_requests, by_graphs=by_graphs, model=model), ROOT
            )
            for by_graphs, model in models.items()
        }


@pytest.mark.parametrize("by_graphs", [True, False])
@pytest.mark.parametrize("request_", COUNTED_REQUESTS, ids=lambda each: each.field)
def test_a_request_runs_through_few_functions(
    requests: dict[bool, RequestCalls], request_: CountedRequest, by_graphs: bool
) -> None:
    calls: list[Call] = getattr(requests[by_graphs], request_.field)
    files = {call.file for call in calls}
    budget = request_.by_graphs if by_graphs else request_.by_torch
    assert 0 < len(calls) <= budget.functions, calls
    assert 0 < len(files) <= budget.files, calls


def test_calls_of_worker_threads_are_counted(requests: dict[bool, RequestCalls]) -> None:
    called = {call.name.split(".")[-1] for call in requests[True].query}
    assert {"encode_texts", "search_all"} <= called
