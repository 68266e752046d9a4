"""Uvicorn, ended as a service ought to end: it finishes what it took, and that is no failure."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn


class GracefulServer(uvicorn.Server):
    """Says that it is going to end before it stops to listen.

    On SIGTERM or SIGINT no connection is taken any more and idle ones are closed; requests that
    were taken have the configuration's ``timeout_graceful_shutdown`` to be answered. Then the
    application is shut down. A second SIGINT cuts it short.
    """

    def __init__(self, config: uvicorn.Config, on_stop: Callable[[], None]) -> None:
        """Serve nothing yet.

        Args:
            config: of the server.
            on_stop: called when the signal comes.
        """
        super().__init__(config)
        self._on_stop = on_stop

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end."""
        self._on_stop()
        super().handle_exit(sig, frame)

    def serve_until_stopped(self, listener: socket.socket) -> None:
        """Serve until a stop signal; return when all is finished.

        Args:
            listener: takes the connections.
        """
        # Uvicorn raises the signals again that it has acted upon: that one was asked to end is no
        # reason to be killed by it in the end.
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in before:
            signal.signal(number, _pass)
        try:
            self.run(sockets=[listener])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _pass(number: int, frame: FrameType | None) -> None:
    """Do nothing."""
