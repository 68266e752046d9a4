"""Encoding of shards on the nodes of a Ray cluster; the files are written on this machine.

All calls of Ray are made through the connection that this module returns.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from aladin_index.building.shards import ShardWork, place_shard
from aladin_index.cluster.pool import WorkerPool, WorkerSettings
from aladin_index.cluster.worker import (
    EncodedShard,
    ShardOrder,
    WorkerFacts,
    WorkerRecipe,
    decisive_versions,
    read_recipe_checkpoint,
)
from aladin_index.encode.read_ahead import StageSeconds
from aladin_index.encode.region_sources import RegionSource
from aladin_index.settings import BuildSettings
from aladin_network.errors import ClusterError, ConfigError, missing_package
from aladin_network.types import Progress

# Ray takes minutes to report that an address does not respond, and then ends the process.
_CONNECT_S = 5.0
_HOST_AND_PORT = re.compile(r"(?:ray://)?(?P<host>[^/:\s]+|\[[0-9a-fA-F:]+\]):(?P<port>\d+)/?")


@contextmanager
def connected(address: str) -> Generator[Any]:
    """Connect to a cluster during the block; one connection per process.

    Args:
        address: ``HOST:PORT`` of the head, where this machine is a node of the cluster, or "auto"
            for that cluster; ``ray://HOST:PORT`` of the head's client server from elsewhere;
            "local" starts a cluster of this machine alone, for the time of the block.

    Yields:
        The module `ray`.

    Raises:
        ConfigError: If Ray is not installed, or the address is not valid.
        ClusterError: If the address does not respond, or the cluster cannot be used from here.
    """
    ray = _ray()
    match = _HOST_AND_PORT.fullmatch(address)
    if match is not None:
        _check_listens(address, match["host"].strip("[]"), int(match["port"]))
    elif address not in ("auto", "local"):
        raise ConfigError(
            f"{address!r}: expected HOST:PORT, ray://HOST:PORT, auto or local as the address of "
            "the Ray cluster"
        )
    # The workers' output stays in their logs; Ray's own messages appear only in its errors.
    options: dict[str, Any] = {"logging_level": "error", "log_to_driver": False}
    if address == "local":
        options["include_dashboard"] = False
    try:
        ray.init(address=address, **options)
    except (ray.exceptions.RayError, OSError, RuntimeError, ValueError, ImportError) as error:
        reason = " ".join(str(error).split())
        if address == "auto" and isinstance(error, ConnectionError):
            reason = "this machine is no node of one; give HOST:PORT of its head, or local"
        elif isinstance(error, ConnectionError):
            reason += " (one that takes tokens needs RAY_AUTH_MODE=token here)"
        raise ClusterError(f"the Ray cluster at {address} cannot be used: {reason}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def has_gpus(ray: Any) -> bool:
    """Whether a node of the cluster has a GPU."""
    return ray.cluster_resources().get("GPU", 0) >= 1


def _ray() -> Any:
    # When a node is lost, Ray prints pages of its log to stdout, which is reserved for data. Ray
    # reads this variable once, on import.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
    try:
        import ray
    except ImportError as error:
        raise ConfigError(missing_package("encoding on a Ray cluster", "ray")) from error
    return ray


def _check_listens(address: str, host: str, port: int) -> None:
    try:
        socket.create_connection((host, port), timeout=_CONNECT_S).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise ClusterError(f"no answer from {address}: {reason}") from error


class RayEncoding:
    """Encodes on the nodes of a cluster; created by `ray_encoding`."""

    def __init__(self, pool_of: Callable[[], WorkerPool]) -> None:
        """Store the arguments; no worker is started, since there may be nothing to encode."""
        self._pool_of = pool_of
        self._pool: WorkerPool | None = None

    def encode(self, work: ShardWork, progress: Progress, seconds: StageSeconds) -> None:
        """Encode all shards of `work`, and write each as soon as it arrives.

        A shard's items are in memory here while it is handed out, and its arrays while it is
        written. The seconds are those that passed here, shared among the stages by what the
        workers spent on each; "start" is the time until they hold the network.
        """
        if self._pool is None:
            with seconds.measure("start"):
                self._pool = self._pool_of()
        pool, workers = self._pool, StageSeconds()

        def order(rows: range) -> ShardOrder:
            return ShardOrder(target=work.target, rows=rows, items=work.items(rows))

        results = pool.encode(work.shards, order)

        def wait() -> tuple[Path, EncodedShard] | None:
            with seconds.waiting_for(workers):
                result = next(results, None)
                workers.add("start", pool.take_start_s())
                for stage, spent_s in result[1].seconds.items() if result else ():
                    workers.add(stage, spent_s)
            return result

        while (result := wait()) is not None:
            folder, shard = result
            _check_readable(shard)
            with seconds.measure("write"):
                place_shard(folder, shard.files)
            progress.advance(len(work.shards[folder]))
            progress.note(**seconds.notes(), **pool.notes())

    def close(self) -> None:
        """Stop the workers."""
        if self._pool is not None:
            self._pool.close()


@contextmanager
def ray_encoding(
    ray: Any,
    checkpoint_folder: Path,
    settings: BuildSettings,
    workers: WorkerSettings,
    open_regions: Callable[[], RegionSource] | None = None,
) -> Generator[RayEncoding]:
    """Provide an encoder of a build's shards on a cluster during the block.

    The network travels once, to Ray's object store, and from there to each node. Nodes read
    photos and regions themselves, by the same paths as this machine.

    Args:
        ray: Ray, as returned by `aladin_index.cluster.ray_encoding.connected`.
        checkpoint_folder: Checkpoint folder of the network.
        settings: Settings of the build; device and readers apply to each worker.
        workers: Resources of the workers.
        open_regions: Function that opens the regions of photos on a node; it must be picklable.

    Yields:
        For the `encoding` of `aladin_index.building.builder.build_index`.

    Raises:
        ConfigError: If the settings ask for another precision than float32, which workers lack.
    """

    def pool() -> WorkerPool:
        build = uuid4().hex
        recipe = WorkerRecipe(
            build=build,
            checkpoint=read_recipe_checkpoint(checkpoint_folder),
            settings=settings,
            threads=workers.cpus,
            open_regions=open_regions,
        )
        return WorkerPool(ray, ray.put(recipe), build, workers, _check_versions)

    encoding = RayEncoding(pool)
    try:
        yield encoding
    finally:
        encoding.close()


def _check_versions(facts: WorkerFacts) -> None:
    """Reject a node whose encodings may differ from those of this machine."""
    here = decisive_versions()
    for name, there in facts.versions.items():
        if there != here[name]:
            raise ClusterError(
                f"node {facts.host}: expected {name} {here[name]} as on this machine, got {there}"
            )


def _check_readable(shard: EncodedShard) -> None:
    """Reject a shard of a node that cannot read files which this machine can."""
    for file in shard.unreadable:
        if os.access(file, os.R_OK):
            raise ClusterError(
                f"node {shard.host} cannot read {file}, which this machine can: nodes need the "
                "photos at the same paths (what is encoded is kept for --resume)"
            )
