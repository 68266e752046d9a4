"""A guarded client asks what it is asked, counts it, and asks nothing while the engine is away."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from aladin_index.engines.guard import Circuit, EngineCall, guarded
from aladin_index.engines.milvus import EngineClient, EngineQuery
from aladin_index.engines.rows import CollectionSchema
from aladin_network.errors import EngineError, EngineUnavailableError, InputError

QUERY = np.ones(2, dtype=np.float32)
SCHEMA = CollectionSchema(
    count=4, embedding_dim=2, token_dim=2, token_dtype="float16", max_tokens=3
)
SEARCH = EngineQuery(
    generation=3,
    target="images",
    embedding=QUERY,
    count=5,
    width=64,
    with_tokens=True,
)
# Of each method, how it is called.
CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "generations": ((), {}),
    "live_generation": ((), {}),
    "make_live": ((3,), {}),
    "drop_generation": ((3,), {}),
    "write_record": ((3, {"a": b"b"}), {}),
    "read_record": ((3,), {}),
    "create_collection": ((3, "images", SCHEMA), {}),
    "open_collection": ((3, "texts"), {}),
    "upsert": ((3, "images", []), {}),
    "delete": ((3, "images", ["a"]), {}),
    "count": ((3, "texts"), {}),
    "first_stage": ((3, "texts"), {}),
    "search": ((SEARCH,), {}),
    "fetch": ((3, "images", ["a"]), {"with_embeddings": True, "with_tokens": False}),
    "check_health": ((), {}),
}


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
def guarded_recorder(recorder: Recorder, calls: list[EngineCall]) -> Any:
    """Guards the recorder; untyped, because its answers are not those of a client."""
    return guarded(recorder, Circuit(), calls.append)  # pyright: ignore[reportArgumentType]


def test_every_method_of_a_client_is_tried_here() -> None:
    members = vars(EngineClient).items()
    methods = {
        name for name, value in members if inspect.isfunction(value) and not name.startswith("_")
    }
    assert methods == {*CALLS, "close"}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_passed_on_as_it_is_and_counted(
    guarded_recorder: Any, recorder: Recorder, calls: list[EngineCall], name: str
) -> None:
    args, more = CALLS[name]
    answer = getattr(guarded_recorder, name)(*args, **more)
    (asked,) = recorder.asked
    assert asked[0] == name
    assert asked[1] == args
    assert asked[2] == more
    assert answer == f"the answer of {name}"
    (call,) = calls
    assert (call.operation, call.error) == (name, None)
    assert call.seconds >= 0


def test_the_seconds_of_a_call_are_those_that_it_took(
    guarded_recorder: EngineClient, calls: list[EngineCall], monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = iter([100.0, 102.5])
    clock = SimpleNamespace(perf_counter=lambda: next(readings))
    monkeypatch.setattr("aladin_index.engines.guard.time", clock)
    guarded_recorder.count(1, "images")
    assert [call.seconds for call in calls] == [2.5]


def test_a_guard_passes_attributes_and_does_not_close_its_client(
    guarded_recorder: EngineClient, recorder: Recorder
) -> None:
    assert guarded_recorder.max_results == 77
    guarded_recorder.close()
    assert recorder.asked == []  # the connection stays


def test_calls_are_counted_as_unavailable_or_refused(
    guarded_recorder: EngineClient, recorder: Recorder, calls: list[EngineCall]
) -> None:
    for error in (
        EngineUnavailableError("recorder", "no answer"),
        EngineError("recorder", "no such collection"),
        InputError("filter: not this one"),
    ):
        recorder.error = error
        with pytest.raises(type(error), match=str(error)):
            guarded_recorder.count(1, "images")
    assert [call.error for call in calls] == ["unavailable", "refused", None]


def test_after_failures_in_a_row_the_engine_is_left_alone(
    guarded_recorder: EngineClient, recorder: Recorder, calls: list[EngineCall]
) -> None:
    recorder.error = EngineUnavailableError("recorder", "no answer")
    for _ in range(10):
        with pytest.raises(EngineUnavailableError, match="no answer"):
            guarded_recorder.count(1, "images")
    assert len(recorder.asked) == len(calls) == 2


def test_an_engine_that_refuses_is_there(
    guarded_recorder: EngineClient, recorder: Recorder
) -> None:
    recorder.error = EngineError("recorder", "no such collection")
    for _ in range(10):
        with pytest.raises(EngineError):
            guarded_recorder.count(1, "images")
    assert len(recorder.asked) == 10


GONE = EngineUnavailableError("milvus", "no answer in 10 s")


def test_two_failures_in_a_row_open_the_circuit() -> None:
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


def test_an_outage_is_logged_once_at_each_end(
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
