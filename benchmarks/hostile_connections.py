"""Attempts to take all of a service's connections, with requests that never come whole."""

from __future__ import annotations

import http.client
import socket
import sys
import time
from contextlib import ExitStack

from benchmarks.hostile_answers import PATIENCE_S, Answers

_HELD = 520  # more than a service has by default
_HALF_HEAD = b"GET /v1/index HTTP/1.1\r\nHost: 127.0.0.1\r\n"
_HALF_BODY = (
    b"POST /v1/search/images HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    b'Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"text": "a d'
)
# Linux alone lets a program of this machine have any address of 127.0.0.0/8.
_CLIENTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3") if sys.platform == "linux" else ("127.0.0.1",)
_PROBES, _PROBE_EVERY_S = 20, 0.1


def send_held_connections(host: str, port: int, answers: Answers, *, held: int = _HELD) -> int:
    """Hold connections with half a head, then with half a body, and ask for /healthz meanwhile.

    The connections come from one address, then from three, as many from each of them.

    Args:
        host: Address of the service, on this machine.
        port: Port of the service.
        answers: Counts the answers to /healthz. Anything but 200 is a fault.
        held: Connections that are open at the same time.

    Returns:
        The number of connections that were held.
    """
    sent = 0
    for part in (_HALF_HEAD, _HALF_BODY):
        for clients in (_CLIENTS[:1], _CLIENTS):
            with ExitStack() as stack:
                for number in range(held):
                    source = (clients[number % len(clients)], 0)
                    connection = stack.enter_context(
                        socket.create_connection((host, port), PATIENCE_S, source)
                    )
                    connection.sendall(part)
                    sent += 1
                for _ in range(_PROBES):
                    asked = f"/healthz beside {held} connections with {part[:4]!r}..."
                    _probe(host, port, asked, answers)
                    time.sleep(_PROBE_EVERY_S)
    return sent


def _probe(host: str, port: int, asked: str, answers: Answers) -> None:
    connection = http.client.HTTPConnection(host, port, timeout=PATIENCE_S)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        answers.answered("probes", answer.status, asked, answer.read())
    except TimeoutError:
        answers.fault("hang", asked, f"nothing in {PATIENCE_S:g} s")
    except (http.client.HTTPException, OSError) as error:
        answers.fault("server_error", asked, repr(error))
    finally:
        connection.close()
