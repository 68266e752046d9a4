"""Processes that the benchmarks start: commands, functions in a fork, and their memory."""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

T = TypeVar("T")

_GC_THRESHOLD = 10_000

# Runs in the new process (Linux) and becomes the command: asks the kernel for a signal when the
# thread that started the process ends (PR_SET_PDEATHSIG = 1), and restricts it to some cores. It is
# not a `preexec_fn`, which would run Python in a fork of a process that may have other threads.
_PRELUDE = (
    "import ctypes, os, sys; number, cores, *command = sys.argv[1:]; "
    "ctypes.CDLL(None).prctl(1, int(number)); "
    "cores and os.sched_setaffinity(0, map(int, cores.split(','))); "
    "os.execvp(command[0], command)"
)

# CPUCLOCK_SCHED of the kernel: the clock of a process that counts nanoseconds.
_SCHEDULED = 2


class ChildProcess(subprocess.Popen[bytes]):
    """A command in a process of its own, whose output goes to a file.

    Attributes:
        log: File with the output of the process.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        log: Path,
        *,
        folder: Path | None = None,
        settings: Mapping[str, str] | None = None,
        orphan_signal: signal.Signals | None = signal.SIGTERM,
        own_session: bool = False,
        cores: Sequence[int] = (),
    ) -> None:
        """Start the process.

        Args:
            command: Program and its arguments.
            log: File that the output is appended to.
            folder: Working directory, or None for that of this process.
            settings: Environment variables on top of this process's own.
            orphan_signal: Signal that the kernel sends to the process when the thread that started
                it ends (Linux only), so that it does not outlive its caller; None for no signal.
            own_session: Whether the process leads a session of its own, see `kill_session`.
            cores: Processor cores to run on (Linux only); empty for all of them.
        """
        words = [str(word) for word in command]
        if sys.platform == "linux" and (orphan_signal or cores):
            number = int(orphan_signal or 0)
            prelude = ["-ISc", _PRELUDE, str(number), ",".join(map(str, cores))]
            words = [sys.executable, *prelude, *words]
        self.log = log
        with log.open("ab") as output:
            super().__init__(
                words,
                cwd=folder,
                env=os.environ | dict(settings or {}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=own_session,
            )

    def output(self) -> str:
        """Return the output so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait_until(self, ready: Callable[[], bool], timeout_s: float, look_s: float) -> None:
        """Wait until a condition holds.

        Args:
            ready: The condition.
            timeout_s: Seconds to wait at most.
            look_s: Seconds between two checks.

        Raises:
            RuntimeError: If the process ends first, or the time runs out; with its last output.
        """
        if not wait_until(lambda: self.poll() is not None or ready(), timeout_s, look_s):
            raise RuntimeError(f"not ready after {timeout_s:g} s:\n{self.output()[-5000:]}")
        if self.poll() is not None:
            raise RuntimeError(f"ended with {self.returncode}:\n{self.output()[-5000:]}")

    def stop(self, grace_s: float) -> int:
        """End the process with SIGTERM, and kill it with its children if that takes too long.

        Args:
            grace_s: Seconds until it is killed.

        Returns:
            Its exit status; a negative one is the signal that ended it.
        """
        if self.poll() is None:
            self.send_signal(signal.SIGTERM)
            try:
                self.wait(grace_s)
            except subprocess.TimeoutExpired:
                for pid in reversed(self.pids()):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                self.wait()
        return self.returncode

    def kill_session(self, look_s: float = 0.2) -> None:
        """Kill every process of its session, including those that are started meanwhile."""
        while doomed := _of_session(self.pid):
            for pid in doomed:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(look_s)
        self.wait()

    def pids(self) -> list[int]:
        """Return the process and all its descendants, parents first."""
        return family(self.pid)

    def memory(self) -> Memory:
        """Return the memory of the process and its descendants now (Linux only)."""
        each = [memory for pid in self.pids() if (memory := _memory_of(pid)) is not None]
        return Memory(*(sum(values) for values in zip(*each, strict=True)))


def family(pid: int) -> list[int]:
    """Return a process and all its descendants, parents first."""
    children, found = _children(), [pid]
    for each in found:  # grows while it is walked
        found += children.get(each, [])
    return found


class Memory(NamedTuple):
    """Memory of some processes, in bytes.

    Attributes:
        pss: Resident, a page that several of them map counted once. Pages of the mapped index count
            from when they are first read.
        rss: Resident, such a page counted for each process.
        anonymous: Resident and not of a file: what the processes allocated themselves.
    """

    pss: int
    rss: int
    anonymous: int


def wait_until(ready: Callable[[], bool], timeout_s: float, look_s: float) -> bool:
    """Wait until a condition holds; return whether it did in time.

    Args:
        ready: The condition.
        timeout_s: Seconds to wait at most.
        look_s: Seconds between two checks.
    """
    deadline_s = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(look_s)
    return True


def status_bytes(pid: int | Literal["self"], name: str) -> int | None:
    """Return a size from a process's status (Linux only).

    Args:
        pid: ID of the process, or "self" for this one.
        name: Name in /proc/PID/status, for example "VmHWM", the largest resident memory so far.

    Returns:
        Bytes, or None if the process has ended or the system reports no such size.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    sizes = [line.split()[1] for line in lines if line.startswith(f"{name}:")]
    return 1024 * int(sizes[0]) if sizes else None


def forget_pages(folder: Path) -> None:
    """Ask the system to drop the files of a folder from its memory.

    Pages that were not written to the disk yet, or that a process maps, stay; so does everything
    where the system does not offer it.

    Args:
        folder: Folder of the files, at any depth.
    """
    for path in folder.rglob("*"):
        if path.is_file() and hasattr(os, "posix_fadvise"):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def processor_time_s(pids: Iterable[int]) -> float:
    """Return the processor time of processes, of all their threads, in seconds (Linux).

    Raises:
        OSError: If a process has ended.
    """
    # The id of a process's clock, as clock_getcpuclockid(3) makes it.
    return sum(time.clock_gettime((~pid << 3) | _SCHEDULED) for pid in pids)


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 that nothing listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def peak_rss_bytes() -> int:
    """Return the largest resident memory that this process has had, mapped files included."""
    # getrusage would include the parent's memory at the moment of the fork.
    if (largest := status_bytes("self", "VmHWM")) is not None:
        return largest
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def in_fresh_process(task: Callable[..., T], *arguments: object) -> T:
    """Call a function of a module in a new process, which shares no memory with this one."""
    spawn = multiprocessing.get_context("spawn")
    # As in the `aladin` command: importing the task's modules takes a fifth less.
    with ProcessPoolExecutor(
        1, mp_context=spawn, initializer=gc.set_threshold, initargs=(_GC_THRESHOLD,)
    ) as pool:
        return pool.submit(task, *arguments).result()


def forked(work: Callable[[Callable[[str], None]], None]) -> tuple[int, Iterator[str]]:
    """Call a function in a forked process, which need not import anything again.

    Args:
        work: Function whose argument sends a line to this process.

    Returns:
        The process id, and an iterator over its lines as they arrive.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            work(lambda line: _send(writing, line))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(writing)
    return child, _lines_of(reading)


def _send(descriptor: int, line: str) -> None:
    os.write(descriptor, f"{line}\n".encode())  # one write: a kill cannot cut the line


def _lines_of(descriptor: int) -> Iterator[str]:
    with os.fdopen(descriptor, encoding="utf-8") as lines:
        for line in lines:
            yield line.rstrip("\n")


def _statistics() -> Iterator[tuple[int, list[str]]]:
    """Yield every process of the machine with its state, parent, group and session."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # The name in brackets may contain anything, brackets included.
            fields = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:  # ended meanwhile
            continue
        yield int(folder.name), fields[:4]


def _children() -> dict[int, list[int]]:
    """Return the children of each process of the machine."""
    children: dict[int, list[int]] = {}
    for pid, (_, parent, *_) in _statistics():
        children.setdefault(int(parent), []).append(pid)
    return children


def _of_session(session: int) -> list[int]:
    """Return the running processes of a session."""
    return [
        pid for pid, (state, _, _, own) in _statistics() if int(own) == session and state != "Z"
    ]


def _memory_of(pid: int) -> Memory | None:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
    except OSError:  # ended meanwhile
        return None
    sizes = {line.split(":")[0]: 1024 * int(line.split()[1]) for line in lines}
    return Memory(sizes["Pss"], sizes["Rss"], sizes["Anonymous"]) if sizes else None
