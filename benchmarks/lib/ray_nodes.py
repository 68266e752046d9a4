"""Ray nodes on this machine, each of them processes that die together, as with their machine.

with RayNodes(cpus=[1, 1]) as nodes:
    nodes.address
    nodes.kill(1)
    nodes.add(cpus=1)
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from types import TracebackType

_READY_S, _LOOK_S = 60.0, 0.2
_OBJECT_STORE_BYTES = 150 * 2**20


class RayNodes:
    """A cluster of nodes on this machine from when it is entered until it is left.

    Attributes:
        address: of the head, for ``--ray``.
        client_address: the same for those who are no node.
        pids: of each node's first process, the head's first.
        temporary: folder of temporary files on all nodes.
    """

    def __init__(self, cpus: Sequence[int], *, pinned: bool = False) -> None:
        """Start nothing yet.

        Args:
            cpus: cores that each node says it has, the head first.
            pinned: give each node cores of its own, from the first one on, and no others; this
                machine has to have them.
        """
        self._cpus = cpus
        self._pinned = pinned
        self._cores = iter(sorted(os.sched_getaffinity(0)))
        self._folder = self.temporary = Path()
        self._processes: list[subprocess.Popen[bytes]] = []
        self.address = self.client_address = ""

    @property
    def pids(self) -> list[int]:
        """Of each node, see above."""
        return [process.pid for process in self._processes]

    def __enter__(self) -> RayNodes:
        """Start the nodes; return when all have joined.

        Raises:
            RuntimeError: a node did not come up.
        """
        # Ray's sockets lie in this folder, and the path of a socket may not be long.
        self._folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
        self.temporary = self._folder / "temporary"
        self.temporary.mkdir()
        try:
            for cpus in self._cpus:
                self.add(cpus)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End all nodes, and remove what they wrote."""
        self._stop()

    def add(self, cpus: int) -> int:
        """Start a node; return its number when it has joined.

        Raises:
            RuntimeError: it did not come up.
        """
        place = ["--address", self.address]
        if not self._processes:
            port, clients = _free_ports(2)
            self.address = f"127.0.0.1:{port}"
            self.client_address = f"ray://127.0.0.1:{clients}"
            place = ["--head", "--port", str(port), "--ray-client-server-port", str(clients)]
            place += ["--include-dashboard", "false", "--temp-dir", str(self._folder)]
        number = len(self._processes)
        cores = list(islice(self._cores, cpus)) if self._pinned else []
        log = self._folder / f"node-{number}.log"
        with log.open("wb") as said:
            # All processes of a node are of one session, though workers get groups of their own.
            process = subprocess.Popen(
                [
                    *[str(Path(sys.executable).with_name("ray")), "start", "--block"],
                    *["--num-cpus", str(cpus), "--disable-usage-stats"],
                    *["--object-store-memory", str(_OBJECT_STORE_BYTES)],
                    *["--dashboard-agent-listen-port", "0"],
                    *place,
                ],
                # A token of this user's other clusters would lock out who brings none.
                env=os.environ | {"RAY_AUTH_MODE": "disabled", "TMPDIR": str(self.temporary)},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
                preexec_fn=partial(os.sched_setaffinity, 0, cores) if cores else None,
            )
        self._processes.append(process)
        deadline_s = time.monotonic() + _READY_S
        while b"Ray runtime started." not in log.read_bytes():
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"a Ray node did not start: {log.read_text()[-2000:]}")
            time.sleep(_LOOK_S)
        return number

    def kill(self, number: int) -> None:
        """End all processes of a node at once, as when its machine loses power."""
        process = self._processes[number]
        while doomed := _of_session(process.pid):
            for pid in doomed:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_LOOK_S)  # until the last are gone, also those that were just started
        process.wait()

    def _stop(self) -> None:
        for number in range(len(self._processes)):
            self.kill(number)
        shutil.rmtree(self._folder, ignore_errors=True)


def _of_session(session: int) -> list[int]:
    """Return the processes of a session that run."""
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                # After the name, which may hold anything: state, parent, group, session.
                state, _, _, of = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(of) == session and state != "Z":
                    found.append(int(folder.name))
    return found


def _free_ports(count: int) -> list[int]:
    """Return ports on which nobody listens.

    They are below those that the system hands out: Ray's many processes ask it for theirs while a
    head starts, and two of them may come to share a port.
    """
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            found.append(port)
    return found
