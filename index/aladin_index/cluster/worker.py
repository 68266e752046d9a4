"""Worker on a node: holds the network and encodes one shard after the other.

It does what a build on one machine does, with the same code, into a folder of its own; what
travels is what to encode, and the files of the finished shard.
"""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

import numpy as np
from numpy.typing import NDArray

from aladin_index.building.shards import (
    LocalEncoding,
    ShardFormat,
    ShardWork,
    read_shard,
    shard_files,
)
from aladin_index.encode.read_ahead import StageSeconds
from aladin_index.encode.region_sources import RegionSource
from aladin_index.encode.source_items import ImageItem, SourceItem
from aladin_index.settings import BuildSettings
from aladin_network.checkpoint_files import CHECKPOINT_FILES, has_graphs_alone
from aladin_network.errors import ConfigError
from aladin_network.graphs.threads import set_compute_threads
from aladin_network.types import NullProgress, Target

_REMOVALS, _REMOVAL_PAUSE_S = 10, 0.2
# Encodings may differ in their last bits between versions of these packages.
_DECISIVE = ("aladin-search", "torch", "transformers", "tokenizers", "pillow", "pi-heif", "numpy")
# These may be missing, and then some photos cannot be read.
_OPTIONAL = ("rawpy",)


@dataclass(frozen=True, kw_only=True)
class WorkerRecipe:
    """Everything that a node needs to encode as the build machine would.

    Attributes:
        build: Unique name of the build; temporary folders on a node contain it in their names.
        checkpoint: Bytes of the checkpoint's files by name.
        settings: Settings of the build, adapted to the node: its device and its readers.
        threads: Number of compute threads.
        open_regions: Function that opens the regions of photos on the node, by the same paths as
            here, for a network that reads regions; it is a function of a module, which can be sent.
    """

    build: str
    checkpoint: Mapping[str, NDArray[np.uint8]]
    settings: BuildSettings
    threads: int
    open_regions: Callable[[], RegionSource] | None = None


@dataclass(frozen=True, kw_only=True)
class WorkerFacts:
    """What a worker reports once it can encode: its machine, and versions that affect encodings."""

    host: str
    versions: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class ShardOrder:
    """A shard to encode: its items, and their rows in the build's input."""

    target: Target
    rows: range
    items: Sequence[SourceItem]


@dataclass(frozen=True, kw_only=True)
class EncodedShard:
    """A shard that was encoded on a node: bytes of its files by name, and seconds by stage.

    `unreadable` are the files of skipped photos that the node cannot read.
    """

    host: str
    files: dict[str, NDArray[np.uint8]]
    unreadable: list[str]
    seconds: dict[str, float]


class ShardWorker:
    """Encodes shards, one at a time."""

    def __init__(self, recipe: WorkerRecipe) -> None:
        """Store the recipe; `start` loads the network, so that its errors return unchanged."""
        self._recipe = recipe
        self._started: tuple[LocalEncoding, ShardFormat] | None = None

    def start(self) -> WorkerFacts:
        """Load the network."""
        recipe = self._recipe
        set_compute_threads(recipe.threads)
        with TemporaryDirectory(prefix=_folder_prefix(recipe.build)) as folder:
            for name, content in recipe.checkpoint.items():
                (Path(folder) / name).write_bytes(content.data)
            # Graphs are not sent to workers. Imported now: a build on one machine needs no torch.
            from aladin_network.checkpoint import load_checkpoint

            model = load_checkpoint(Path(folder), recipe.settings.device).model
        regions = None if recipe.open_regions is None else recipe.open_regions()
        encoding = LocalEncoding(model, recipe.settings, regions)
        self._started = encoding, ShardFormat.of(model)
        return WorkerFacts(host=socket.gethostname(), versions=decisive_versions())

    def encode(self, order: ShardOrder) -> EncodedShard:
        """Encode a shard, and return its files."""
        assert self._started is not None  # whoever made this worker waits for `start`
        encoding, form = self._started
        seconds = StageSeconds()
        with TemporaryDirectory(prefix=_folder_prefix(self._recipe.build)) as folder:
            shard = Path(folder) / "shard"
            work = ShardWork(
                target=order.target,
                form=form,
                shards={shard: order.rows},
                items=lambda rows: [order.items[row - order.rows.start] for row in rows],
            )
            encoding.encode(work, NullProgress(), seconds)
            return EncodedShard(
                host=socket.gethostname(),
                files=shard_files(shard),
                unreadable=_unreadable(shard, form, order.items),
                seconds=seconds.seconds,
            )


def remove_left_behind(build: str) -> None:
    """Remove the temporary folders of a build's stopped workers on this node.

    A killed worker leaves its folder and may still be writing to it briefly.
    """
    pattern = f"{_folder_prefix(build)}*"
    for _ in range(_REMOVALS):
        for folder in Path(gettempdir()).glob(pattern):
            shutil.rmtree(folder, ignore_errors=True)
        time.sleep(_REMOVAL_PAUSE_S)
        if next(Path(gettempdir()).glob(pattern), None) is None:
            return


def _folder_prefix(build: str) -> str:
    return f"aladin-{build}-"


def read_recipe_checkpoint(folder: Path) -> dict[str, NDArray[np.uint8]]:
    """Read the files of a checkpoint as a `Recipe` holds them."""
    if has_graphs_alone(folder):
        raise ConfigError(
            f"{folder}: this model has graphs alone; the nodes of a cluster encode by torch, which"
            " needs weights"
        )
    return {name: np.fromfile(folder / name, dtype=np.uint8) for name in CHECKPOINT_FILES}


def decisive_versions() -> dict[str, str]:
    """Return this machine's versions of the packages that affect encodings."""
    versions = {name: version(name) for name in _DECISIVE}
    for name in _OPTIONAL:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "none"
    return versions


def _unreadable(folder: Path, form: ShardFormat, items: Sequence[SourceItem]) -> list[str]:
    """Return the files of skipped photos that cannot be read on this machine at all."""
    shard = read_shard(folder, form)
    assert shard is not None
    skipped = {entry.id for entry in shard.skipped}
    files = {str(item.path) for item in items if isinstance(item, ImageItem) and item.id in skipped}
    return sorted(file for file in files if not os.access(file, os.R_OK))
