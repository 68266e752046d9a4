"""A Ray that runs its workers in this process, one task at a time, and loses them when it is told.

Only what the pool uses of Ray is there, with Ray's own errors and meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ray import exceptions

# What happens to a task in place of its work, by the worker's number, the method and its argument.
Fate = Callable[[int, str, Any], Exception | None]


_DONE = -1  # the reference of what was run at once


class FakeActor:
    """A worker and its methods."""

    def __init__(self, ray: FakeRay, number: int, worker: Any) -> None:
        self._ray = ray
        self.number = number
        self.worker = worker

    def __getattr__(self, method: str) -> FakeMethod:
        return FakeMethod(self._ray, self, method)


class FakeMethod:
    """One method of a worker: to be called `remote`."""

    def __init__(self, ray: FakeRay, actor: FakeActor, name: str) -> None:
        self._ray, self._actor, self._name = ray, actor, name

    def remote(self, *arguments: Any) -> int:
        self._ray.tasks.append((self._actor, self._name, arguments))
        return len(self._ray.tasks) - 1


class FakeFunction:
    """A function that is run on a node: only noted here."""

    def __init__(self, ray: FakeRay, name: str, node: str = "") -> None:
        self._ray, self._name, self._node = ray, name, node

    def options(self, *, num_cpus: int, scheduling_strategy: Any) -> FakeFunction:
        assert num_cpus == 0
        assert not scheduling_strategy.soft
        return FakeFunction(self._ray, self._name, scheduling_strategy.node_id)

    def remote(self, argument: Any) -> int:
        self._ray.on_nodes.append((self._node, self._name, argument))
        return _DONE


class FakeRay:
    """The cluster. `fate` decides of each task; what it did is noted."""

    exceptions = exceptions

    def __init__(self) -> None:
        self.node_cpus = [1, 1]
        self.fate: Fate = lambda *_: None
        self.tasks: list[tuple[FakeActor, str, tuple[Any, ...]]] = []
        self.actors: list[FakeActor] = []
        self.killed: list[int] = []
        self.encoded_by: list[int] = []
        self.asked: dict[str, Any] = {}
        self.on_nodes: list[tuple[str, str, Any]] = []
        self._kind: Any = None
        self._turn = 0

    def nodes(self) -> list[dict[str, Any]]:
        alive = [
            {"Alive": True, "NodeID": f"{number:056x}", "Resources": {"CPU": float(cpus)}}
            for number, cpus in enumerate(self.node_cpus)
        ]
        return [*alive, {"Alive": False, "NodeID": "dead", "Resources": {"CPU": 99.0}}]

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": float(sum(self.node_cpus))}

    def put(self, value: Any) -> Any:
        return value

    def kill(self, actor: FakeActor) -> None:
        self.killed.append(actor.number)

    def wait(
        self, tasks: list[int], *, num_returns: int, timeout: float
    ) -> tuple[list[int], list[int]]:
        """Return one task that can run: a worker's, of those that have a node, in turn."""
        if set(tasks) <= {_DONE}:
            return tasks, []
        assert (num_returns, timeout) == (1, 0.0)
        alive = [actor.number for actor in self.actors if actor.number not in self.killed]
        placed = alive[: sum(self.node_cpus)]
        able = [task for task in tasks if self.tasks[task][0].number in placed]
        if not able:
            return [], tasks
        self._turn += 1
        chosen = able[self._turn % len(able)]
        return [chosen], [task for task in tasks if task != chosen]

    def get(self, task: int) -> Any:
        """Run a task, or fail as it is to."""
        actor, method, arguments = self.tasks[task]
        error = self.fate(actor.number, method, arguments[0] if arguments else None)
        if error is not None:
            raise error
        if method == "encode":
            self.encoded_by.append(actor.number)
        try:
            return getattr(actor.worker, method)(*arguments)
        except Exception as cause:
            raise task_error(cause) from cause

    def remote(self, kind: Any) -> Any:
        """Return what makes workers, or what runs a function on a node."""
        if not isinstance(kind, type):
            return FakeFunction(self, kind.__name__)
        self._kind = kind
        return self

    def options(self, **asked: Any) -> Any:
        self.asked = asked
        ray = self

        class Maker:
            def remote(self, recipe: Any) -> FakeActor:
                ray.actors.append(FakeActor(ray, len(ray.actors), ray._kind(recipe)))
                return ray.actors[-1]

        return Maker()


def task_error(cause: Exception) -> exceptions.RayTaskError:
    """Return Ray's error for a task that has raised `cause`."""
    trace = f"Traceback (most recent call last):\n  ...\n{type(cause).__name__}: {cause}"
    return exceptions.RayTaskError("encode", trace, cause, proctitle="fake", pid=1, ip="10.0.0.1")


@pytest.fixture
def fake_ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    """A cluster of two nodes of one core; looked at again at once."""
    monkeypatch.setattr("aladin_index.cluster.pool._LOOK_S", 0.0)
    return FakeRay()


@pytest.fixture
def make_task_error() -> Callable[[Exception], Exception]:
    return task_error
