"""Workers on the nodes of a Ray cluster, and the assignment of shards to them.

Nodes may be lost or join at any time: shards are assigned to idle workers, the shards of a lost
worker are reassigned, and as many workers are requested as the nodes currently hold.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aladin_index.cluster.worker import (
    EncodedShard,
    ShardOrder,
    ShardWorker,
    WorkerFacts,
    remove_left_behind,
)
from aladin_network.errors import AladinError, ClusterError, ConfigError

_LOG = logging.getLogger(__name__)
# Maximum number of consecutive failures of a shard, or of starting workers: a shard that exhausts
# the memory of its node would do so on every node. Spark allows a task as many attempts
# (spark.task.maxFailures).
ATTEMPTS = 4
# How often to check whether nodes have joined while nothing else happens.
_LOOK_S = 2.0
_TIDY_UP_S = 15.0


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """Resources that each worker takes from its node, and the number of workers.

    Attributes:
        cpus: Number of cores of a worker, which computes in as many threads.
        gpus: Number of graphics cards of a worker: 1 if the network runs on one, else 0.
        workers: Number of workers to request, or None for as many as the nodes hold, including
            nodes that join later.
        start_timeout_s: How long to wait while there is no worker at all, at the start or after
            every node was lost; a busy cluster may delay workers.
    """

    cpus: int = 1
    gpus: int = 0
    workers: int | None = None
    start_timeout_s: float = 300.0

    def __post_init__(self) -> None:
        """Check the values."""
        for name, value, least in (
            ("cpus", self.cpus, 1),
            ("gpus", self.gpus, 0),
            ("workers", self.workers, 1),
        ):
            if value is not None and value < least:
                raise ConfigError(f"{name}: expected at least {least}, got {value}")
        if self.start_timeout_s <= 0:
            raise ConfigError(
                f"start_timeout_s: expected more than 0, got {self.start_timeout_s:g}"
            )


@dataclass
class _Worker:
    """A worker that was requested; its host is empty until it has started."""

    actor: Any
    asked_s: float
    host: str = ""


class WorkerPool:
    """Encodes shards with the workers of a cluster; for use by one thread."""

    def __init__(
        self,
        ray: Any,
        recipe: Any,
        build: str,
        settings: WorkerSettings,
        check: Callable[[WorkerFacts], None],
    ) -> None:
        """Store the arguments; no worker is requested yet."""
        self._ray = ray
        self._recipe = recipe
        self._build = build
        self._settings = settings
        self._check = check
        self._actors = ray.remote(ShardWorker).options(
            num_cpus=settings.cpus, num_gpus=settings.gpus, scheduling_strategy="SPREAD"
        )
        self._starting: dict[Any, _Worker] = {}
        self._busy: dict[Any, tuple[_Worker, Path]] = {}
        self._idle: list[_Worker] = []
        self._failed_starts = 0
        self._lost = 0
        self._start_s = self._nobody_since_s = 0.0
        self._capacity, self._looked_s = 0, -_LOOK_S

    def encode(
        self, shards: Mapping[Path, range], order_of: Callable[[range], ShardOrder]
    ) -> Generator[tuple[Path, EncodedShard]]:
        """Encode some shards on the workers.

        They come as they get ready, in any order. `order_of` reads what a worker needs, when one is
        free for the shard.
        """
        waiting, failures = deque(shards), Counter[Path]()
        self._nobody_since_s = time.monotonic()
        while waiting or self._busy:
            self._grow(len(waiting) + len(self._busy))
            self._hand_out(waiting, shards, order_of)
            self._check_patience()
            finished: list[tuple[Path, EncodedShard]] = []
            for task in self._ended():
                if task in self._starting:
                    self._take_up(task)
                    continue
                worker, folder = self._busy.pop(task)
                encoded = self._result(task, worker, folder, failures)
                if encoded is None:
                    waiting.appendleft(folder)
                else:
                    finished.append((folder, encoded))
            self._hand_out(waiting, shards, order_of)  # while finished shards are written
            yield from finished

    def _hand_out(
        self,
        waiting: deque[Path],
        shards: Mapping[Path, range],
        order_of: Callable[[range], ShardOrder],
    ) -> None:
        """Give shards to idle workers."""
        while waiting and self._idle:
            worker, folder = self._idle.pop(), waiting.popleft()
            task = worker.actor.encode.remote(order_of(shards[folder]))
            self._busy[task] = worker, folder

    def _check_patience(self) -> None:
        """Give up if there has been no worker for too long, by a `ClusterError`."""
        now_s = time.monotonic()
        if self._busy:
            self._nobody_since_s = now_s
        elif now_s - self._nobody_since_s > self._settings.start_timeout_s:
            raise ClusterError(self._nobody_came())

    def notes(self) -> dict[str, float]:
        """Return the figures for `Progress.note`."""
        workers = float(len(self._busy) + len(self._idle))
        return {"workers": workers} | ({"lost": float(self._lost)} if self._lost else {})

    def take_start_s(self) -> float:
        """Return the seconds that workers took to start since the last call."""
        start_s, self._start_s = self._start_s, 0.0
        return start_s

    def close(self) -> None:
        """Stop all workers, including busy ones, and remove their temporary files."""
        cut_short = bool(self._starting or self._busy or self._lost)
        every = [
            *self._starting.values(),
            *self._idle,
            *(worker for worker, _ in self._busy.values()),
        ]
        for worker in every:
            self._ray.kill(worker.actor)
        self._starting.clear()
        self._idle.clear()
        self._busy.clear()
        if cut_short:
            self._tidy_up()

    def _tidy_up(self) -> None:
        """Remove the temporary files of stopped workers on each node."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        remove = self._ray.remote(remove_left_behind)
        try:
            tasks = [
                remove.options(
                    num_cpus=0,
                    scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
                ).remote(self._build)
                for node in self._ray.nodes()
                if node["Alive"]
            ]
            if tasks:
                self._ray.wait(tasks, num_returns=len(tasks), timeout=_TIDY_UP_S)
        except self._ray.exceptions.RayError as error:
            _LOG.warning("temporary folders may be left on the nodes: %s", _last_line(error))

    def _grow(self, open_shards: int) -> None:
        """Request as many workers as there are open shards, at most as many as the nodes hold."""
        settings = self._settings
        if time.monotonic() - self._looked_s >= _LOOK_S:
            self._capacity, self._looked_s = self._count_capacity(), time.monotonic()
        most = settings.workers or self._capacity
        there = len(self._starting) + len(self._idle) + len(self._busy)
        for _ in range(min(most, open_shards) - there):
            worker = _Worker(self._actors.remote(self._recipe), time.monotonic())
            self._starting[worker.actor.start.remote()] = worker

    def _count_capacity(self) -> int:
        """Return how many workers the nodes hold if nothing else runs on them."""
        settings = self._settings
        workers = 0
        for node in self._ray.nodes():
            if node["Alive"]:
                has = node["Resources"]
                fit = has.get("CPU", 0) // settings.cpus
                if settings.gpus:
                    fit = min(fit, has.get("GPU", 0) // settings.gpus)
                workers += int(fit)
        return workers

    def _ended(self) -> list[Any]:
        """Wait for a while; return the tasks that have ended, successfully or not."""
        tasks = [*self._starting, *self._busy]
        if not tasks:
            time.sleep(_LOOK_S)
            return []
        ended, _ = self._ray.wait(tasks, num_returns=1, timeout=_LOOK_S)
        return ended

    def _take_up(self, task: Any) -> None:
        """Add a worker that has started to the free ones."""
        worker = self._starting.pop(task)
        try:
            facts: WorkerFacts = self._ray.get(task)
        except self._ray.exceptions.RayError as error:
            self._ray.kill(worker.actor)
            own = _own_error(error)
            if own is not None:
                raise own from error
            reason = _last_line(error)
            # Otherwise its node was lost, which does not predict the outcome on the next one.
            if isinstance(error, self._ray.exceptions.RayTaskError) or _failed_to_import(error):
                self._failed_starts += 1
            if self._failed_starts >= ATTEMPTS:
                raise ClusterError(f"no worker starts on the nodes: {reason}") from error
            _LOG.warning("a worker did not start; requesting another one: %s", reason)
            return
        worker.host = facts.host
        self._idle.append(worker)
        self._check(facts)
        self._failed_starts = 0
        self._start_s += time.monotonic() - worker.asked_s

    def _result(
        self, task: Any, worker: _Worker, folder: Path, failures: Counter[Path]
    ) -> EncodedShard | None:
        """Return the result of a worker, or None if the shard has to be tried again."""
        try:
            encoded: EncodedShard = self._ray.get(task)
        except self._ray.exceptions.RayTaskError as error:
            # The shard failed, not the worker.
            self._idle.insert(0, worker)
            own = _own_error(error)
            if own is not None:
                raise own from error
            reason = f"{worker.host}: {_last_line(error)}"
        except self._ray.exceptions.RayError as error:
            # The worker may only be unreachable: it would occupy its cores without being of use.
            self._ray.kill(worker.actor)
            self._lost += 1
            reason = f"{worker.host} was lost ({_last_line(error)})"
        else:
            self._idle.append(worker)
            return encoded
        failures[folder] += 1
        if failures[folder] >= ATTEMPTS:
            raise ClusterError(f"{folder.name} failed {ATTEMPTS} times, the last time at {reason}")
        _LOG.warning("%s: passed to another worker: %s", folder.name, reason)
        return None

    def _nobody_came(self) -> str:
        settings = self._settings
        needs = f"CPU: {settings.cpus}" + (f", GPU: {settings.gpus}" if settings.gpus else "")
        have = ", ".join(
            f"{name}: {amount:g}"
            for name, amount in sorted(self._ray.cluster_resources().items())
            if name in ("CPU", "GPU")
        )
        return (
            f"no worker within {settings.start_timeout_s:g} s: each needs {needs} on one node; "
            f"the cluster has {have or 'nothing'}"
        )


def _own_error(error: Any) -> AladinError | None:
    """Return the `AladinError` that a task has raised, or None if it raised another error."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, AladinError) else None


def _failed_to_import(error: Any) -> bool:
    """Whether a worker died while starting, for example on a node without a required package."""
    return bool(getattr(error, "actor_init_failed", False))


def _last_line(error: Exception) -> str:
    """Return the last line of an error of Ray; what precedes it is a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
