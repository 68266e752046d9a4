"""When an engine is asked, and when everybody is refused at once."""

from __future__ import annotations

import pytest

from aladin_index.engines.guard import Circuit
from aladin_network.errors import EngineError, EngineUnavailableError

GONE = EngineUnavailableError("milvus", "no answer in 10 s")


def test_one_failure_is_chance_two_in_a_row_are_not() -> None:
    circuit = Circuit()
    circuit.failed(GONE)
    circuit.check()
    circuit.failed(GONE)
    assert circuit.is_open
    with pytest.raises(EngineUnavailableError, match="milvus: no answer in 10 s"):
        circuit.check()


def test_an_answer_in_between_starts_the_count_anew() -> None:
    circuit = Circuit()
    for _ in range(5):
        circuit.failed(GONE)
        circuit.answered()
    assert not circuit.is_open


def test_after_an_answer_two_failures_in_a_row_are_two_again() -> None:
    circuit = Circuit()
    circuit.failed(GONE)
    circuit.answered()
    circuit.failed(GONE)
    assert not circuit.is_open
    circuit.failed(GONE)
    assert circuit.is_open


def test_nothing_is_logged_where_a_closed_circuit_is_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    circuit = Circuit()
    circuit.failed(GONE)
    circuit.close()
    assert caplog.records == []
    circuit.broken(GONE)
    circuit.close()
    assert len(caplog.records) == 2


def test_only_who_looks_closes_it() -> None:
    circuit = Circuit()
    circuit.broken(GONE)
    circuit.answered()  # of a call that was under way
    assert circuit.is_open
    circuit.close()
    circuit.check()
    circuit.failed(GONE)
    circuit.check()  # the count has begun anew, too


def test_each_refusal_is_an_error_of_its_own() -> None:
    circuit = Circuit()
    assert circuit.refusal() is None
    circuit.broken(EngineError("milvus", "wrong token"))
    first, second = circuit.refusal(), circuit.refusal()
    assert first is not second
    assert str(first) == str(second) == "milvus: wrong token"


def test_it_is_told_once_that_the_engine_is_away_and_once_that_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    circuit = Circuit()
    for _ in range(4):
        circuit.failed(GONE)
    for _ in range(2):
        circuit.close()
    away, back = (record.getMessage() for record in caplog.records)
    assert "no answer in 10 s" in away
    assert "again" in back
