"""What a stage takes from finished stages.

`RunSources` gives the networks of a run's earlier stages, and the negatives that they mine.
`StageStore` holds finished stages that several runs share, so that a common start is trained once.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, cast

import torch

from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import Checkpoint, read_model_id
from aladin_network.config import dump_config
from aladin_network.files import atomic_folder, lock_to_write
from aladin_network.model import AladinModel
from aladin_network.types import Progress
from aladin_training.batches.dataset import PairDataset, TrainingSet
from aladin_training.batches.offline_negatives import (
    MinedFrom,
    OfflineNegatives,
    load_negatives,
    save_negatives,
)
from aladin_training.config.recipe import Recipe
from aladin_training.config.stage import OfflineNegativesConfig
from aladin_training.mining.miner import mine_negatives


class StageSources(Protocol):
    """Results of earlier stages."""

    def checkpoint(self, stage: str) -> Checkpoint[AladinModel]:
        """Return the checkpoint of a stage."""
        ...

    def negatives(self, config: OfflineNegativesConfig) -> OfflineNegatives:
        """Return the mined negatives that a stage asks for."""
        ...


class RunSources:
    """Results of the earlier stages of a run, read from its folder."""

    def __init__(
        self,
        stages: Path,
        folder: Path,
        train_set: TrainingSet,
        device: torch.device,
        progress: Progress,
    ) -> None:
        """Refer to a run."""
        self._stages = stages
        self._folder = folder
        self._train_set = train_set
        self._device = device
        self._progress = progress

    def checkpoint(self, stage: str) -> Checkpoint[AladinModel]:
        """Load the checkpoint of a stage."""
        return load_checkpoint(self._stages / stage / "checkpoint", self._device)

    def negatives(self, config: OfflineNegativesConfig) -> OfflineNegatives:
        """Load mined negatives; if an earlier stage's network mines them, do that first."""
        pairs = cast(PairDataset, self._train_set)  # recipes refuse to mine a stream
        miner = self.checkpoint(config.stage) if config.stage is not None else None
        model_id = miner.model_id if miner is not None else None
        if config.miner is not None:
            model_id = read_model_id(Path(config.miner).expanduser())
        expected = MinedFrom.of(pairs.digest, model_id, config.lists)
        if miner is None:
            return load_negatives(Path(config.file or "").expanduser(), expected)
        path = self._folder / "negatives.safetensors"
        if not path.exists():
            save_negatives(
                path, mine_negatives(miner.model, pairs, expected, progress=self._progress)
            )
        return load_negatives(path, expected)


class StageStore:
    """Folders of finished stages by all that determines their weights; processes may share one."""

    def __init__(self, root: Path, recipe: Recipe, data_digest: str) -> None:
        """Open the store for one run."""
        self._root = root
        self._recipe = recipe
        self._data_digest = data_digest

    def identity(self, number: int) -> str:
        """Identify a stage by all that its weights depend on; later stages make no difference."""
        text = stage_history(self._recipe, number) + self._data_digest
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @contextmanager
    def lock(self, number: int) -> Generator[None]:
        """Hold the lock of a stage, so that two processes never train the same one."""
        self._root.mkdir(parents=True, exist_ok=True)
        # The operating system releases the lock when the process ends, however it ends.
        with (self._root / f"{self.identity(number)}.lock").open("w") as file:
            lock_to_write(file.fileno(), self._root)
            yield

    def fetch(self, number: int, folder: Path) -> bool:
        """Copy a finished stage into a run; return whether the store has it."""
        stored = self._root / self.identity(number)
        if not stored.exists():
            return False
        with atomic_folder(folder) as partial:
            link_tree(stored, partial)
        return True

    def add(self, number: int, folder: Path) -> None:
        """Copy a stage of a run that has just finished into the store."""
        with atomic_folder(self._root / self.identity(number)) as partial:
            link_tree(folder, partial)


def stage_history(recipe: Recipe, number: int) -> str:
    """Serialise the part of a recipe that a stage's weights depend on."""
    content = dump_config(recipe)
    for key in ("name", "final"):
        del content[key]
    content["stage"] = content["stage"][: number + 1]
    return json.dumps(content, sort_keys=True)


def link_tree(source: Path, target: Path) -> None:
    """Copy a folder of files that no longer change, by hard links where possible."""
    shutil.copytree(source, target, dirs_exist_ok=True, copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without hard links
        shutil.copy2(source, target)
