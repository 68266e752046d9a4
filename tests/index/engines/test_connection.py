"""Connections without a server: retries, errors, consistency of reads, and trust in addresses."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import grpc
import pymilvus
import pytest

from aladin_index.engines import connection as milvus_connection
from aladin_index.engines.connection import Connection, Consistency
from aladin_index.engines.milvus import EngineOptions
from aladin_index.format.layout import EngineLocation
from aladin_index.open import connect
from aladin_network.errors import ConfigError, EngineError, EngineUnavailableError

Milvus = pymilvus.MilvusException


class Refused(grpc.RpcError):
    """What gRPC raises where a call has no answer."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.DEADLINE_EXCEEDED

    def details(self) -> str:
        return "too late"


@pytest.fixture(autouse=True)
def clients(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What clients were made with; connecting takes no server."""
    made: list[dict[str, Any]] = []

    class Client:
        def __init__(self, **options: Any) -> None:
            made.append(options)

        def close(self) -> None:
            made.append({"closed": True})

    monkeypatch.setattr(pymilvus, "MilvusClient", Client)
    monkeypatch.setattr(milvus_connection, "_FIRST_WAIT_S", 0.001)
    return made


def connection(timeout_s: float = 5.0, retries: int = 3) -> Connection:
    return Connection("http://127.0.0.1:1", "root:secret", timeout_s, retries)


def failing(errors: list[Exception]) -> Callable[[Any], str]:
    """Return a call that fails with each of some errors, and then answers."""

    def ask(_: Any) -> str:
        if errors:
            raise errors.pop(0)
        return "answer"

    return ask


def test_the_first_call_connects_and_later_ones_do_not(clients: list[dict[str, Any]]) -> None:
    asked = connection()
    assert clients == []
    assert [asked.call(failing([])) for _ in range(3)] == ["answer"] * 3
    (options,) = clients
    assert (options["uri"], options["token"]) == ("http://127.0.0.1:1", "root:secret")
    assert options["timeout"] == 2.5
    # gRPC takes the limit of a channel from up to 2 s before the call.
    assert '"timeout": "4.500s"' in options["grpc_options"]["grpc.service_config"]
    asked.close()
    asked.close()
    assert clients[1:] == [{"closed": True}]


@pytest.mark.parametrize(
    "error",
    [
        Refused(),
        Milvus(grpc.StatusCode.UNAVAILABLE, "nobody there"),
        Milvus(grpc.StatusCode.UNIMPLEMENTED, "unknown service a.B"),
        Milvus(101, "collection not loaded"),
        Milvus(503, "channel not available"),
        Milvus(8, "rate limit"),
    ],
    ids=str,
)
def test_transient_errors_are_retried(error: Exception) -> None:
    assert connection().call(failing([error] * 3)) == "answer"
    with pytest.raises(EngineUnavailableError):
        connection(retries=2).call(failing([error] * 3))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Milvus(100, "collection not found"), EngineError),
        (Milvus(1100, "invalid parameter"), EngineError),
        (Milvus(grpc.StatusCode.UNAUTHENTICATED, "who is it"), EngineError),
        (Milvus(grpc.StatusCode.UNIMPLEMENTED, "unknown method C for service a.B"), EngineError),
        (pymilvus.exceptions.ParamError(1100, "not a limit"), EngineError),
        (EngineError("milvus", "not whole"), EngineError),  # of ours
        (ZeroDivisionError(), ZeroDivisionError),
    ],
    ids=repr,
)
def test_refused_calls_are_not_retried(error: Exception, kind: type[Exception]) -> None:
    errors = [error] * 2
    with pytest.raises(kind, match=getattr(error, "message", None)) as raised:
        connection().call(failing(errors))
    assert not isinstance(raised.value, EngineUnavailableError)
    assert len(errors) == 1


def test_errors_have_the_message_of_the_server_without_details_of_grpc() -> None:
    inactive = Milvus(2, "<_InactiveRpcError of RPC that terminated with:\n\tstatus = ...\n>")
    inactive.__cause__ = Refused()
    for error, said in (
        (Milvus(901, "[search] Retry run out of 0 retry times, message=node offline"), "node off"),
        (Refused(), "DEADLINE_EXCEEDED: too late$"),
        (inactive, "DEADLINE_EXCEEDED: too late$"),
    ):
        with pytest.raises(EngineUnavailableError, match=f"^milvus: {said}"):
            connection(retries=0).call(failing([error]))


def test_no_try_begins_in_the_second_half_of_the_time() -> None:
    started_s = time.monotonic()
    with pytest.raises(EngineUnavailableError):
        connection(timeout_s=1.0, retries=1000).call(failing([Refused()] * 1000))
    assert time.monotonic() - started_s < 1.0


def test_waiting_ends_when_done_or_at_the_time_limit() -> None:
    asked = connection()
    answers = [False, False, True]
    asked.wait_until(lambda _: answers.pop(0), "loading", 5)
    assert answers == []
    with pytest.raises(EngineUnavailableError, match=r"loading x took more than 0\.1 s"):
        asked.wait_until(lambda _: False, "loading x", 0.1)


def test_without_pymilvus_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(ConfigError, match=r"pip install 'aladin-search\[milvus\]'"):
        connection()


def test_reads_wait_for_the_writes_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    url, now_s = "http://test-consistency:1", 1000.0
    monkeypatch.setattr(milvus_connection.time, "monotonic", lambda: now_s)
    writer, reader = Consistency(url, None), Consistency(url, "session")
    bounded = {"consistency_level": "Bounded"}
    assert reader.of_read("a") == bounded
    writer.note_write("a", 70)
    writer.note_write("a", 60)  # of another thread, which was overtaken
    waits = {"consistency_level": "Customized", "guarantee_timestamp": 70}
    assert reader.of_read("a") == waits
    assert reader.of_read("b") == Consistency("http://other:1", None).of_read("a") == bounded
    for level in ("strong", "bounded", "eventually"):
        assert Consistency(url, level).of_read("a") == {"consistency_level": level.capitalize()}
    now_s += 9.9
    assert reader.of_read("a") == waits
    now_s += 0.2
    assert reader.of_read("a") == bounded


LOCATION = EngineLocation(url="https://elsewhere.example:1", name="photos")


def test_a_token_goes_to_no_address_that_only_the_index_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigError, match="ALADIN_ENGINE_URL=https://elsewhere") as caught:
        connect(LOCATION, EngineOptions(token="hush"))
    assert "hush" not in str(caught.value)
    asked: list[str] = []
    monkeypatch.setattr("aladin_index.open.EngineClient", lambda at, _: asked.append(at.url))
    connect(LOCATION, EngineOptions(url=LOCATION.url, token="hush"))
    connect(LOCATION)
    # The address of this machine goes before that of the folder.
    connect(LOCATION, EngineOptions(url="http://127.0.0.1:1"))
    assert asked == [LOCATION.url, LOCATION.url, "http://127.0.0.1:1"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"index": "annoy"}, "index: expected one of flat, hnsw"),
        ({"consistency": "soon"}, "consistency: expected one of session, strong"),
        ({"search_params": {"breadth": 3}}, "search_params of hnsw: expected only ef, got breadth"),
        ({"search_params": {"ef": 0}}, "ef: expected a number of at least 1, got 0"),
        ({"search_params": {"ef": 1.5}}, r"ef: expected a number of at least 1, got 1\.5"),
        ({"search_params": {"ef": "wide"}}, "ef: expected a number of at least 1, got 'wide'"),
        ({"url": "redis://here"}, "url: expected http://host:port"),
        ({"url": "file:///folder"}, "url: expected http://host:port"),
    ],
    ids=str,
)
def test_impossible_locations_are_refused(options: dict[str, Any], message: str) -> None:
    of_location = {name: value for name, value in options.items() if name != "url"}
    with pytest.raises(ConfigError, match=message):
        connect(replace(LOCATION, **of_location), EngineOptions(url=options.get("url")))
