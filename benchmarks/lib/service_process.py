"""``aladin serve`` as a process of its own, with what it costs in memory."""

from __future__ import annotations

import ctypes
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

_READY_S, _STOP_S, _ASK_S = 120.0, 30.0, 60.0
_LOOK_S = 0.02
_ADDRESS = re.compile(r"http://(127\.0\.0\.1):(\d+)")
_PR_SET_PDEATHSIG = 1


class Memory(NamedTuple):
    """What some processes hold, in bytes.

    Attributes:
        pss: resident, a page that several of them map counted once; pages of the mapped index are
            among them from when they are first read.
        rss: resident, such a page counted by each.
        anonymous: resident and not of a file: what the processes allocated themselves.
    """

    pss: int
    rss: int
    anonymous: int


class ServiceProcess:
    """A service on a free port of 127.0.0.1 from when it is entered until it is left.

        with ServiceProcess(index, ["--workers", "2"], {"ALADIN_MAX_BATCH": "8"}) as service:
            service.url, service.pids(), service.memory()

    Enter it in a thread that lives as long: the kernel ends the service with that thread (on
    Linux), so that it outlives nobody, however the caller ends.

    Attributes:
        url: such as http://127.0.0.1:40123, once entered.
        log: file that has what the service said.
    """

    def __init__(
        self,
        index: Path,
        arguments: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> None:
        """Start nothing yet.

        Args:
            index: the index folder.
            arguments: further ones of ``aladin serve``.
            settings: environment variables on top of this process's own.
            log: where the service's log goes; None: a temporary file.
        """
        self._command = [
            str(Path(sys.executable).with_name("aladin")),
            "serve",
            str(index),
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            *arguments,
        ]
        self._environment = os.environ | dict(settings or {})
        self._temporary = tempfile.TemporaryDirectory()
        self.log = log or Path(self._temporary.name) / "log"
        self.url = ""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ServiceProcess:
        """Start the service; return when /readyz says that it answers.

        Raises:
            SystemExit: it ended, or was not ready in time; with what it said.
        """
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_end_with_the_caller if sys.platform == "linux" else None,
            )
        try:
            self._wait_until_ready()
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
    def process(self) -> subprocess.Popen[bytes]:
        """The service's own process; its workers are children of it."""
        assert self._process is not None  # entered
        return self._process

    @property
    def port(self) -> int:
        """That it listens on."""
        return int(self.url.rpartition(":")[2])

    def stop(self) -> int:
        """End the service as its user would, with SIGTERM; kill it if that takes too long.

        Returns:
            Its exit status; negative: the signal that ended it.
        """
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                for pid in reversed(self.pids()):
                    os.kill(pid, signal.SIGKILL)
                self.process.wait()
        return self.process.returncode

    def is_ready(self) -> bool:
        """Ask /readyz."""
        try:
            return self.ask("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def ask(self, method: str, path: str, fields: Any = None) -> tuple[int, bytes]:
        """Ask once, over a connection of its own.

        Args:
            method: of HTTP.
            path: of the request.
            fields: of its body, which is JSON; None: it has none.

        Returns:
            The answer's status and body.

        Raises:
            OSError: there is no answer.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_ASK_S)
        try:
            body = None if fields is None else json.dumps(fields)
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def num_answered(self, route: str = "/") -> int:
        """Return how many requests were answered of all routes that begin so, by /metrics."""
        lines = self.ask("GET", "/metrics")[1].decode().splitlines()
        counters = [line for line in lines if line.startswith("aladin_http_requests_total{")]
        return sum(int(float(line.split()[-1])) for line in counters if f'route="{route}' in line)

    def pids(self) -> list[int]:
        """Return the service's process and all below it, parents first."""
        children = _children()
        found = [self.process.pid]
        for pid in found:  # grows while it is walked
            found += children.get(pid, [])
        return found

    def memory(self) -> Memory:
        """Return what all its processes hold now; Linux only."""
        each = [memory for pid in self.pids() if (memory := _memory_of(pid)) is not None]
        return Memory(*(sum(values) for values in zip(*each, strict=True)))

    def _wait_until_ready(self) -> None:
        deadline_s, said = time.monotonic() + _READY_S, ""
        while time.monotonic() < deadline_s:
            said = self.log.read_text(encoding="utf-8", errors="replace")
            if self.process.poll() is not None:
                raise SystemExit(f"the service ended with {self.process.returncode}:\n{said}")
            address = _ADDRESS.search(said)
            if address:
                self.url = address[0]
                if self.is_ready():
                    return
            time.sleep(_LOOK_S)
        raise SystemExit(f"the service was not ready after {_READY_S:g} s:\n{said}")


def _end_with_the_caller() -> None:
    """Have the kernel stop this process when the thread that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _children() -> dict[int, list[int]]:
    """Return the children of each process of the machine."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # The name in brackets may hold anything, brackets too.
            fields = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        children.setdefault(int(fields[1]), []).append(int(folder.name))
    return children


def _memory_of(pid: int) -> Memory | None:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
    except OSError:  # it ended meanwhile
        return None
    sizes = {line.split(":")[0]: 1024 * int(line.split()[1]) for line in lines}
    return Memory(sizes["Pss"], sizes["Rss"], sizes["Anonymous"]) if sizes else None
