from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ObjectLostError

from aladin_index.cluster.pool import ATTEMPTS, WorkerPool, WorkerSettings
from aladin_index.cluster.worker import WorkerFacts
from aladin_network.errors import CheckpointError, ClusterError

SHARDS = {Path(f"shard-{number}"): range(10 * number, 10 * number + 10) for number in range(6)}


class Worker:
    """Returns what it was given."""

    def __init__(self, recipe: str) -> None:
        self.recipe = recipe

    def start(self) -> WorkerFacts:
        return WorkerFacts(host="node", versions={})

    def encode(self, order: list[int]) -> tuple[str, int]:
        return self.recipe, sum(order)


MakePool = Callable[..., WorkerPool]


@pytest.fixture
def make_pool(fake_ray: Any, monkeypatch: pytest.MonkeyPatch) -> MakePool:
    monkeypatch.setattr("aladin_index.cluster.pool.ShardWorker", Worker)

    def make(check: Callable[[WorkerFacts], None] = lambda _: None, **settings: Any) -> WorkerPool:
        settings = {"start_timeout_s": 5.0} | settings
        return WorkerPool(fake_ray, "recipe", "the-build", WorkerSettings(**settings), check)

    return make


def run(pool: WorkerPool) -> dict[Path, Any]:
    found: dict[Path, Any] = {}
    for folder, result in pool.encode(SHARDS, list):
        assert folder not in found
        found[folder] = result
    return found


TIDIED_UP = [(f"{number:056x}", "remove_left_behind", "the-build") for number in (0, 1)]
EXPECTED = {folder: ("recipe", sum(rows)) for folder, rows in SHARDS.items()}


def test_each_shard_is_encoded_once_and_all_workers_take_part(
    fake_ray: Any, make_pool: MakePool
) -> None:
    pool = make_pool()
    assert run(pool) == EXPECTED
    assert len(fake_ray.encoded_by) == len(SHARDS)
    assert set(fake_ray.encoded_by) == {0, 1}
    assert fake_ray.asked["num_cpus"] == 1
    assert fake_ray.asked["num_gpus"] == 0
    assert pool.notes() == {"workers": 2.0}
    assert pool.take_start_s() > 0
    assert pool.take_start_s() == 0
    # The same workers take what comes next.
    assert run(pool) == EXPECTED
    assert len(fake_ray.actors) == 2
    pool.close()
    assert sorted(fake_ray.killed) == [0, 1]
    assert fake_ray.on_nodes == []  # all were at rest, and left nothing


@pytest.mark.parametrize("error", [ActorDiedError(), ObjectLostError("f" * 40, None, "")])
@pytest.mark.parametrize(("left", "by"), [([1, 1], {0, 2}), ([1], {0})])
def test_the_shards_of_a_lost_worker_go_to_others(
    fake_ray: Any, make_pool: MakePool, error: Exception, left: list[int], by: set[int]
) -> None:
    def fate(worker: int, method: str, _: Any) -> Exception | None:
        if worker != 1 or method != "encode":
            return None
        fake_ray.node_cpus = left
        return error

    fake_ray.fate = fate
    pool = make_pool()
    assert run(pool) == EXPECTED
    assert set(fake_ray.encoded_by) == by  # another one took the place of the lost, if it has room
    if left == [1, 1]:
        assert fake_ray.killed == [1]  # should it live, it has to give its cores back
        assert pool.notes() == {"workers": 2.0, "lost": 1.0}
        pool.close()
        assert fake_ray.on_nodes == TIDIED_UP


def test_a_build_that_is_cut_short_leaves_nothing_on_the_nodes(
    fake_ray: Any, make_pool: MakePool
) -> None:
    pool = make_pool()
    next(pool.encode(SHARDS, list))
    pool.close()
    assert sorted(fake_ray.killed) == [0, 1]
    assert fake_ray.on_nodes == TIDIED_UP


def test_a_task_that_fails_is_tried_again(
    fake_ray: Any, make_pool: MakePool, make_task_error: Callable[[Exception], Exception]
) -> None:
    tried: Counter[int] = Counter()

    def fate(_: int, method: str, order: Any) -> Exception | None:
        if method == "encode" and order[0] == 20:
            tried[20] += 1
            if tried[20] < ATTEMPTS:
                return make_task_error(OSError("No space left on device"))
        return None

    fake_ray.fate = fate
    pool = make_pool()
    assert run(pool) == EXPECTED
    assert pool.notes() == {"workers": 2.0}  # nobody was lost
    fake_ray.fate = lambda _, method, order: (
        make_task_error(OSError("No space left on device"))
        if method == "encode" and order[0] == 20
        else None
    )
    message = r"shard-2 failed 4 times, the last time at node: OSError: No space left on device"
    with pytest.raises(ClusterError, match=message):
        run(pool)


def test_a_shard_that_kills_every_worker_ends_the_build(fake_ray: Any, make_pool: MakePool) -> None:
    fake_ray.fate = lambda _, method, order: (
        ActorDiedError() if method == "encode" and order[0] == 20 else None
    )
    with pytest.raises(ClusterError, match=r"shard-2 failed 4 times, .*node was lost"):
        run(make_pool())
    assert len(fake_ray.killed) == ATTEMPTS


def test_our_own_errors_are_not_tried_again(
    fake_ray: Any, make_pool: MakePool, make_task_error: Callable[[Exception], Exception]
) -> None:
    for broken in ("start", "encode"):
        fake_ray.fate = lambda _, method, __, broken=broken: (
            make_task_error(CheckpointError("no weights")) if method == broken else None
        )
        with pytest.raises(CheckpointError, match=r"^no weights$"):
            run(make_pool())


def test_workers_that_do_not_start_end_the_build(
    fake_ray: Any, make_pool: MakePool, make_task_error: Callable[[Exception], Exception]
) -> None:
    missing = make_task_error(ModuleNotFoundError("No module named 'index'"))
    for error in (missing, ActorDiedError(missing)):
        fake_ray.fate = lambda *_, error=error: error
        with (
            closing(make_pool()) as pool,
            pytest.raises(ClusterError, match=r"starts on the nodes: .*No module named 'index'"),
        ):
            run(pool)
    # Some that do not are no harm, and neither is any number of nodes that are lost meanwhile.
    for error, failing in ((missing, ATTEMPTS - 1), (ActorDiedError(), 3 * ATTEMPTS)):
        errors = iter([error] * failing)
        fake_ray.fate = lambda _, method, __, errors=errors: (
            next(errors, None) if method == "start" else None
        )
        with closing(make_pool()) as pool:
            assert run(pool) == EXPECTED


def test_without_a_node_the_wait_ends(fake_ray: Any, make_pool: MakePool) -> None:
    fake_ray.node_cpus = []
    with pytest.raises(
        ClusterError, match=r"within 0.02 s: each needs CPU: 2 on one node; .* CPU: 0"
    ):
        run(make_pool(cpus=2, start_timeout_s=0.02))
    assert fake_ray.actors == []
    # One that was asked for by number may be waited for, as nodes of a cloud come when needed.
    with pytest.raises(ClusterError, match=r"no worker within 0.02 s"):
        run(make_pool(workers=1, start_timeout_s=0.02))
    assert len(fake_ray.actors) == 1


def test_nodes_that_join_get_workers(fake_ray: Any, make_pool: MakePool) -> None:
    fake_ray.node_cpus = [1]
    encoded = make_pool().encode(SHARDS, list)
    found = dict([next(encoded)])
    fake_ray.node_cpus = [1, 3]
    found |= encoded
    assert found == EXPECTED
    assert len(fake_ray.actors) == 4


@pytest.mark.parametrize(
    ("node_cpus", "settings", "expected"),
    [
        ([1, 3], {"cpus": 2}, 1),  # what is left on two nodes makes no worker
        ([4, 5], {"cpus": 2}, 4),
        ([64], {}, len(SHARDS)),  # there is no work for more
        ([64], {"workers": 3}, 3),
    ],
)
def test_there_are_as_many_workers_as_fit(
    fake_ray: Any,
    make_pool: MakePool,
    node_cpus: list[int],
    settings: dict[str, int],
    expected: int,
) -> None:
    fake_ray.node_cpus = node_cpus
    assert run(make_pool(**settings)) == EXPECTED
    assert len(fake_ray.actors) == expected
