"""A guarded client asks what it is asked, counts it, and asks nothing while the engine is away."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from aladin_index.engines.guard import Circuit, EngineCall, guarded
from aladin_index.engines.milvus import EngineClient
from aladin_network.errors import EngineError, EngineUnavailableError, InputError

GONE = EngineUnavailableError("milvus", "no answer in 10 s")


class Recorder:
    """A client that answers each call with what it was asked, or fails."""

    max_results = 77

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.asked: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        def ask(*args: Any, **more: Any) -> Any:
            self.asked.append((name, args, more))
            if self.error is not None:
                raise self.error
            return f"the answer of {name}"

        return ask


@pytest.fixture
def recorder() -> Recorder:
    """Answers."""
    return Recorder()


@pytest.fixture
def calls() -> list[EngineCall]:
    """What was counted."""
    return []


@pytest.fixture
def client(recorder: Recorder, calls: list[EngineCall]) -> Any:
    """Guards the recorder; untyped, because its answers are not those of a client."""
    return guarded(recorder, Circuit(), calls.append)  # pyright: ignore[reportArgumentType]


def test_every_call_is_passed_on_as_it_is_and_counted_with_its_seconds(
    client: Any, recorder: Recorder, calls: list[EngineCall], monkeypatch: pytest.MonkeyPatch
) -> None:
    methods = {
        name: inspect.signature(value).parameters.values()
        for name, value in vars(EngineClient).items()
        if inspect.isfunction(value) and not name.startswith("_") and name != "close"
    }
    readings = iter(np.arange(0, 5 * len(methods), 2.5).tolist())
    clock = SimpleNamespace(perf_counter=lambda: next(readings))
    monkeypatch.setattr("aladin_index.engines.guard.time", clock)
    for name, parameters in methods.items():
        given = [object() for each in parameters if each.default is each.empty][1:]
        more = {"with_embeddings": True, "with_tokens": False} if name == "fetch" else {}
        assert getattr(client, name)(*given, **more) == f"the answer of {name}"
        asked_name, args, options = recorder.asked[-1]
        assert (asked_name, list(args), options) == (name, given, more)
        assert calls[-1] == EngineCall(name, 2.5, None)
    assert len(recorder.asked) == len(calls) == len(methods) > 10
    assert client.max_results == 77
    client.close()
    assert len(recorder.asked) == len(methods)  # the connection stays


@pytest.mark.parametrize(
    ("error", "counted", "asked"),
    [
        (GONE, "unavailable", 2),  # after two failures in a row it is left alone
        (EngineError("recorder", "no such collection"), "refused", 10),
        (InputError("filter: not this one"), None, 10),
    ],
    ids=["away", "refuses", "input"],
)
def test_failures_are_counted_and_an_engine_that_is_away_is_left_alone(
    client: EngineClient,
    recorder: Recorder,
    calls: list[EngineCall],
    error: Exception,
    counted: str | None,
    asked: int,
) -> None:
    recorder.error = error
    for _ in range(10):
        with pytest.raises(type(error), match=str(error)):
            client.count(1, "images")
    assert len(recorder.asked) == asked
    assert [call.error for call in calls] == [counted] * asked


def test_two_failures_in_a_row_open_the_circuit_and_only_who_looks_closes_it() -> None:
    circuit = Circuit()
    for _ in range(5):  # an answer in between starts the count anew
        circuit.failed(GONE)
        circuit.answered()
    circuit.failed(GONE)
    circuit.check()
    circuit.failed(GONE)
    circuit.answered()  # of a call that was under way
    assert circuit.is_open
    with pytest.raises(EngineUnavailableError, match="milvus: no answer in 10 s"):
        circuit.check()
    circuit.close()
    circuit.failed(GONE)
    circuit.check()  # the count has begun anew, too


def test_a_circuit_that_is_broken_says_why_with_an_error_of_its_own_for_each() -> None:
    circuit = Circuit()
    assert circuit.refusal() is None
    circuit.broken(EngineError("milvus", "wrong token"))
    first, second = circuit.refusal(), circuit.refusal()
    assert first is not second
    assert str(first) == str(second) == "milvus: wrong token"


def test_an_outage_is_logged_once_at_each_end(caplog: pytest.LogCaptureFixture) -> None:
    circuit = Circuit()
    circuit.failed(GONE)
    circuit.close()  # which was closed
    assert caplog.records == []
    for _ in range(4):
        circuit.failed(GONE)
    for _ in range(2):
        circuit.close()
    away, back = (record.getMessage() for record in caplog.records)
    assert "no answer in 10 s" in away and "again" in back
