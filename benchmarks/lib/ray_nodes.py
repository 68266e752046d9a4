"""Ray nodes on this machine, each a group of processes that can be killed together.

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
import socket
import sys
import tempfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType

from benchmarks.lib.processes import ChildProcess

_READY_S, _LOOK_S = 60.0, 0.2
_OBJECT_STORE_BYTES = 150 * 2**20


class RayNodes:
    """A cluster of nodes on this machine, running while the context is active.

    Attributes:
        address: Address of the head node, for ``--ray``.
        client_address: Address of the head node for clients on no node.
        pids: Process ids of each node's first process, the head's first.
        temporary: Folder of temporary files on all nodes.
    """

    def __init__(self, cpus: Sequence[int], *, pinned: bool = False) -> None:
        """Prepare the nodes; nothing is started yet.

        Args:
            cpus: Number of cores that each node announces, the head first.
            pinned: Whether each node runs on cores of its own, which this machine must have.
        """
        self._cpus = cpus
        self._pinned = pinned
        self._cores = iter(sorted(os.sched_getaffinity(0)))
        self._folder = self.temporary = Path()
        self._processes: list[ChildProcess] = []
        self.address = self.client_address = ""

    @property
    def pids(self) -> list[int]:
        """Process ids of each node's first process, the head's first."""
        return [process.pid for process in self._processes]

    def __enter__(self) -> RayNodes:
        """Start the nodes; return when all have joined.

        Raises:
            RuntimeError: If a node does not start.
        """
        # Ray keeps sockets in this folder, whose paths must be short.
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
            RuntimeError: If it does not start.
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
        process = ChildProcess(
            [
                *[Path(sys.executable).with_name("ray"), "start", "--block"],
                *["--num-cpus", str(cpus), "--disable-usage-stats"],
                *["--object-store-memory", str(_OBJECT_STORE_BYTES)],
                *["--dashboard-agent-listen-port", "0"],
                *place,
            ],
            self._folder / f"node-{number}.log",
            # An authentication token of this user's other clusters would be required here, too.
            settings={"RAY_AUTH_MODE": "disabled", "TMPDIR": str(self.temporary)},
            orphan_signal=None,
            # All processes of a node share a session; workers get process groups of their own.
            own_session=True,
            cores=cores,
        )
        self._processes.append(process)
        process.wait_until(lambda: "Ray runtime started." in process.output(), _READY_S, _LOOK_S)
        return number

    def kill(self, number: int) -> None:
        """End all processes of a node at once, as when its machine loses power."""
        self._processes[number].kill_session(_LOOK_S)

    def _stop(self) -> None:
        for number in range(len(self._processes)):
            self.kill(number)
        shutil.rmtree(self._folder, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    """Return ports that nothing listens on.

    They are below the range that the system assigns: Ray's processes request ports from it while a
    head starts, and could be given one of ours.
    """
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            found.append(port)
    return found
