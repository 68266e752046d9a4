"""What comes of a server that fails, is slow, or is away."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager

import pytest

from aladin_index.engines.client import EngineOptions
from aladin_index.format.layout import EngineLocation
from aladin_index.open import connect
from aladin_network.errors import EngineError, EngineUnavailableError
from tests.index.engines.qdrant.rest_server import Fault, RestServer


@contextmanager
def client(url: str, timeout_s: float = 5, retries: int = 2) -> Generator[Callable[[], object]]:
    location = EngineLocation(engine="qdrant", url=url, name="test")
    options = EngineOptions(timeout_s=timeout_s, retries=retries)
    with closing(connect(location, options)) as engine:
        yield engine.live_generation


@pytest.mark.parametrize(
    "fault", [Fault(503), Fault(500), Fault(429), Fault(None)], ids=lambda fault: str(fault.status)
)
def test_a_passing_fault_is_tried_again(rest: RestServer, fault: Fault) -> None:
    rest.faults += [fault, fault]
    with client(rest.url) as ask:
        assert ask() is None
    assert len(rest.requests) == 3


def test_a_server_that_fails_for_long_is_unavailable(rest: RestServer) -> None:
    rest.faults += [Fault(503)] * 3
    with client(rest.url) as ask:
        with pytest.raises(EngineUnavailableError) as caught:
            ask()
        assert str(caught.value) == (
            "qdrant: no answer after 3 of 3 tries in at most 5 s (503 told to fail)"
        )
        assert ask() is None


@pytest.mark.parametrize("status", [400, 401, 404])
def test_what_is_refused_is_not_tried_again(rest: RestServer, status: int) -> None:
    rest.faults += [Fault(status)]
    with (
        client(rest.url) as ask,
        pytest.raises(EngineError, match=f"^qdrant: {status} told to fail$") as caught,
    ):
        ask()
    assert not isinstance(caught.value, EngineUnavailableError)
    assert len(rest.requests) == 1


def test_tries_end_with_the_time(rest: RestServer) -> None:
    rest.faults += [Fault(200, wait_s=1)] * 3
    with client(rest.url, timeout_s=0.2, retries=9) as ask:
        started = time.monotonic()
        with pytest.raises(EngineUnavailableError, match=r"1 of 10 tries in at most 0\.2 s"):
            ask()
        assert time.monotonic() - started < 0.9  # not the whole second that Qdrant's client takes


def test_a_server_that_wants_to_rest_is_given_its_time(rest: RestServer) -> None:
    rest.faults += [Fault(429, headers={"Retry-After": "1"})]
    with client(rest.url) as ask:
        started = time.monotonic()
        assert ask() is None
        assert time.monotonic() - started >= 1
    rest.faults += [Fault(429, headers={"Retry-After": "60"})]
    with client(rest.url) as ask, pytest.raises(EngineUnavailableError, match="1 of 3 tries"):
        ask()


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with (
        client(f"http://127.0.0.1:{port}", retries=1) as ask,
        pytest.raises(EngineUnavailableError, match=r"2 of 2 tries .*ConnectError"),
    ):
        ask()


def test_threads_have_their_own_time(rest: RestServer) -> None:
    """A call that begins later is not cut short by one that is at its end."""
    rest.faults += [Fault(503, wait_s=0.6), Fault(503, wait_s=0.6)]
    with client(rest.url, timeout_s=0.9, retries=1) as ask:
        answers: list[object] = []

        def late() -> None:
            time.sleep(0.3)
            answers.append(ask())

        thread = threading.Thread(target=late)
        thread.start()
        answers.append(ask())
        thread.join()
    assert answers == [None, None]
