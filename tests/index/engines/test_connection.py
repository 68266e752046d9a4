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


class Refused(grpc.RpcError):
    """What gRPC raises where a call has no answer."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.DEADLINE_EXCEEDED

    def details(self) -> str:
        return "too late"


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What clients were made with; connecting takes no server."""
    made: list[dict[str, Any]] = []

    class Client:
        def __init__(self, **options: Any) -> None:
            made.append(options)

        def close(self) -> None:
            made.append({"closed": True})

    monkeypatch.setattr(pymilvus, "MilvusClient", Client)
    return made


def connection(timeout_s: float = 5.0, retries: int = 3) -> Connection:
    return Connection("http://127.0.0.1:1", "root:secret", timeout_s, retries)


def failing(errors: list[Exception]) -> Callable[[Any], str]:
    """Return a call that fails with each of some errors, and then answers."""

    def ask(client: Any) -> str:
        del client
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
        pymilvus.MilvusException(grpc.StatusCode.UNAVAILABLE, "nobody there"),
        pymilvus.MilvusException(grpc.StatusCode.UNIMPLEMENTED, "unknown service a.B"),
        pymilvus.MilvusException(101, "collection not loaded"),
        pymilvus.MilvusException(503, "channel not available"),
        pymilvus.MilvusException(8, "rate limit"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("clients")
def test_transient_errors_are_retried(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(milvus_connection, "_FIRST_WAIT_S", 0.001)
    assert connection().call(failing([error] * 3)) == "answer"
    with pytest.raises(EngineUnavailableError):
        connection(retries=2).call(failing([error] * 3))


@pytest.mark.parametrize(
    "error",
    [
        pymilvus.MilvusException(100, "collection not found"),
        pymilvus.MilvusException(1100, "invalid parameter"),
        pymilvus.MilvusException(grpc.StatusCode.UNAUTHENTICATED, "who is it"),
        pymilvus.MilvusException(grpc.StatusCode.UNIMPLEMENTED, "unknown method C for service a.B"),
        pymilvus.exceptions.ParamError(1100, "not a limit"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("clients")
def test_refused_calls_are_not_retried(error: pymilvus.MilvusException) -> None:
    errors: list[Exception] = [error] * 2
    with pytest.raises(EngineError, match=str(error.message)) as raised:
        connection().call(failing(errors))
    assert not isinstance(raised.value, EngineUnavailableError)
    assert len(errors) == 1


@pytest.mark.usefixtures("clients")
def test_errors_have_the_message_of_the_server() -> None:
    said = "[search] Retry run out of 0 retry times, message=node offline"
    with pytest.raises(EngineUnavailableError, match=r"^milvus: node offline$"):
        connection(retries=0).call(failing([pymilvus.MilvusException(901, said)]))
    with pytest.raises(EngineUnavailableError, match=r"^milvus: DEADLINE_EXCEEDED: too late$"):
        connection(retries=0).call(failing([Refused()]))


@pytest.mark.usefixtures("clients")
def test_details_of_grpc_calls_are_left_out_of_messages() -> None:
    def ask(client: Any) -> None:
        del client
        shown = "<_InactiveRpcError of RPC that terminated with:\n\tstatus = ...\n>"
        raise pymilvus.MilvusException(2, shown) from Refused()

    with pytest.raises(EngineUnavailableError, match=r"^milvus: DEADLINE_EXCEEDED: too late$"):
        connection(retries=0).call(ask)


@pytest.mark.usefixtures("clients")
def test_no_try_begins_in_the_second_half_of_the_time() -> None:
    started_s = time.monotonic()
    with pytest.raises(EngineUnavailableError):
        connection(timeout_s=1.0, retries=1000).call(failing([Refused()] * 1000))
    assert time.monotonic() - started_s < 1.0


@pytest.mark.usefixtures("clients")
def test_an_error_of_ours_goes_through() -> None:
    for error in (EngineError("milvus", "not whole"), ZeroDivisionError()):
        with pytest.raises(type(error)):
            connection().call(failing([error]))


@pytest.mark.usefixtures("clients")
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


URL = "http://test-consistency:1"


def test_reads_wait_for_the_writes_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr(milvus_connection.time, "monotonic", lambda: now_s)
    writer, reader = Consistency(URL, None), Consistency(URL, "session")
    assert reader.of_read("a") == {"consistency_level": "Bounded"}
    writer.note_write("a", 70)
    writer.note_write("a", 60)  # of another thread, which was overtaken
    waits = {"consistency_level": "Customized", "guarantee_timestamp": 70}
    assert reader.of_read("a") == waits
    assert reader.of_read("b") == {"consistency_level": "Bounded"}
    assert Consistency("http://other:1", None).of_read("a") == {"consistency_level": "Bounded"}
    now_s += 9.9
    assert reader.of_read("a") == waits
    now_s += 0.2
    assert reader.of_read("a") == {"consistency_level": "Bounded"}


@pytest.mark.parametrize("level", ["strong", "bounded", "eventually"])
def test_other_consistency_levels_are_passed_to_the_server(level: str) -> None:
    chosen = Consistency(URL, level)
    chosen.note_write("a", 90)
    assert chosen.of_read("a") == {"consistency_level": level.capitalize()}


LOCATION = EngineLocation(url="https://elsewhere.example:1", name="photos")


def test_a_token_goes_to_no_address_that_only_the_index_names() -> None:
    with pytest.raises(ConfigError, match="ALADIN_ENGINE_URL=https://elsewhere") as caught:
        connect(LOCATION, EngineOptions(token="hush"))
    assert "hush" not in str(caught.value)
    connect(LOCATION, EngineOptions(url=LOCATION.url, token="hush")).close()


def test_the_address_of_this_machine_goes_before_that_of_the_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        "aladin_index.open.EngineClient",
        lambda location, _: asked.append(location.url),
    )
    connect(LOCATION)
    connect(LOCATION, EngineOptions(url="http://127.0.0.1:1"))
    assert asked == [LOCATION.url, "http://127.0.0.1:1"]


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
)
def test_impossible_locations_are_refused(options: dict[str, Any], message: str) -> None:
    of_location = {name: value for name, value in options.items() if name != "url"}
    with pytest.raises(ConfigError, match=message):
        connect(replace(LOCATION, **of_location), EngineOptions(url=options.get("url")))
