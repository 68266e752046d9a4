"""Shards that are encoded on the nodes of a Ray cluster and written here."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from aladin.errors import ClusterError
from aladin.progress import Progress
from index.building.item_encoders import RegionReader
from index.building.shard_encoding import SideWork
from index.building.shards import place_shard
from index.building.stage_seconds import StageSeconds
from index.cluster.pool import WorkerPool
from index.cluster.settings import WorkerSettings
from index.cluster.worker import (
    EncodedShard,
    Recipe,
    ShardOrder,
    WorkerFacts,
    decisive_versions,
    read_recipe_checkpoint,
)
from index.settings import BuildSettings


class RayEncoding:
    """Encodes on the nodes of a cluster; see `ray_encoding`, which makes it."""

    def __init__(self, pool_of: Callable[[], WorkerPool]) -> None:
        """Start no worker yet: there may be nothing left to encode.

        Args:
            pool_of: makes the pool; called once.
        """
        self._pool_of = pool_of
        self._pool: WorkerPool | None = None

    def encode(self, work: SideWork, progress: Progress, seconds: StageSeconds) -> None:
        """Have all shards of `work` encoded, and write each when it is there.

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
        """Give the workers back."""
        if self._pool is not None:
            self._pool.close()


@contextmanager
def ray_encoding(
    ray: Any,
    checkpoint_folder: Path,
    settings: BuildSettings,
    workers: WorkerSettings,
    open_regions: Callable[[], RegionReader] | None = None,
) -> Generator[RayEncoding]:
    """Return what encodes a build's shards on a cluster, for the time of the block.

    The network travels once, to Ray's object store, and from there to each node. Nodes read
    photos and regions themselves, by the same paths as this machine.

    Args:
        ray: of `index.cluster.connection.connected`.
        checkpoint_folder: of the network.
        settings: of the build; the device and the readers are those of each worker.
        workers: what workers take of their nodes.
        open_regions: opens the regions of photos on a node; a function that can be pickled.

    Yields:
        For the `encoding` of `index.building.builder.build_index`.
    """

    def pool() -> WorkerPool:
        build = uuid4().hex
        recipe = Recipe(
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
    """Refuse a node whose encodings may differ from those of this machine.

    Raises:
        ClusterError: it has another version of what decides an encoding.
    """
    here = decisive_versions()
    for name, there in facts.versions.items():
        if there != here[name]:
            raise ClusterError(
                f"node {facts.host}: expected {name} {here[name]} as on this machine, got {there}"
            )


def _check_readable(shard: EncodedShard) -> None:
    """Refuse a shard of a node that lacks files which this machine has.

    Raises:
        ClusterError: photos were left out that are there.
    """
    for file in shard.unreadable:
        if os.access(file, os.R_OK):
            raise ClusterError(
                f"node {shard.host} cannot read {file}, which this machine can: nodes need the "
                "photos at the same paths (what is encoded is kept for --resume)"
            )
