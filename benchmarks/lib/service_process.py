"""``aladin serve`` in a process of its own, and requests to it."""

from __future__ import annotations

import http.client
import json
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.lib.processes import ChildProcess, Memory

_READY_S, _STOP_S, _ASK_S = 120.0, 30.0, 60.0
_LOOK_S = 0.02
_ADDRESS = re.compile(r"http://(127\.0\.0\.1):(\d+)")


class ServiceProcess:
    """A service on a free port of 127.0.0.1, running while the context is active.

        with ServiceProcess(index, ["--workers", "2"], {"ALADIN_MAX_BATCH": "8"}) as service:
            service.url, service.pids(), service.memory()

    The thread that enters it must live as long as the service: on Linux the kernel ends the service
    with that thread, so that it does not outlive its caller.

    Attributes:
        url: Base URL such as http://127.0.0.1:40123, once entered.
        log: File with the log of the service.
    """

    def __init__(
        self,
        index: Path,
        arguments: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> None:
        """Prepare a service without starting it.

        Args:
            index: Index folder.
            arguments: Further arguments of ``aladin serve``.
            settings: Environment variables on top of this process's own.
            log: File for the log of the service, or None for a temporary file.
        """
        self._command = [
            sys.executable,
            "-m",
            "aladin_service",
            "serve",
            str(index),
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            *arguments,
        ]
        self._settings = settings
        self._temporary = tempfile.TemporaryDirectory()
        self.log = log or Path(self._temporary.name) / "log"
        self.url = ""
        self._process: ChildProcess | None = None

    def __enter__(self) -> ServiceProcess:
        """Start the service; return when /readyz responds with 200.

        Raises:
            SystemExit: If the service ends, or is not ready in time; with its output.
        """
        self.log.unlink(missing_ok=True)
        self._process = ChildProcess(self._command, self.log, settings=self._settings)
        try:
            self._process.wait_until(self._has_address_and_is_ready, _READY_S, _LOOK_S)
        except RuntimeError as error:
            self._process.kill()
            self._process.wait()
            raise SystemExit(f"the service did not start: {error}") from None
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the service."""
        self.stop()
        self._temporary.cleanup()

    @property
    def process(self) -> ChildProcess:
        """The service's main process; its workers are children of it."""
        assert self._process is not None  # entered
        return self._process

    @property
    def port(self) -> int:
        """The port that the service listens on."""
        return int(self.url.rpartition(":")[2])

    def stop(self) -> int:
        """End the service with SIGTERM, as an operator would; kill it if that takes too long.

        Returns:
            Its exit status; a negative one is the signal that ended it.
        """
        return self.process.stop(_STOP_S)

    def is_ready(self) -> bool:
        """Return whether /readyz responds with 200."""
        try:
            return self.ask("GET", "/readyz")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def ask(
        self, method: str, path: str, fields: Any = None, *, timeout_s: float = _ASK_S
    ) -> tuple[int, bytes]:
        """Send one request over a connection of its own.

        Args:
            method: HTTP method.
            path: Path of the request.
            fields: JSON value of its body, or None for a request without a body.
            timeout_s: Seconds to wait for the service at most.

        Returns:
            Status and body of the response.

        Raises:
            OSError: If there is no response.
            http.client.HTTPException: If the response is incomplete.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            body = None if fields is None else json.dumps(fields)
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def num_answered(self, route: str = "/") -> int:
        """Return the number of responses by all routes that begin with `route`, from /metrics."""
        lines = self.ask("GET", "/metrics")[1].decode().splitlines()
        counters = [line for line in lines if line.startswith("aladin_http_requests_total{")]
        return sum(int(float(line.split()[-1])) for line in counters if f'route="{route}' in line)

    def pids(self) -> list[int]:
        """Return the service's process and all its descendants, parents first."""
        return self.process.pids()

    def memory(self) -> Memory:
        """Return the memory of all its processes now (Linux only)."""
        return self.process.memory()

    def _has_address_and_is_ready(self) -> bool:
        address = _ADDRESS.search(self.process.output())
        if address is None:
            return False
        self.url = address[0]
        return self.is_ready()
