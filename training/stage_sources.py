"""What a stage takes from the stages before it: networks, and negatives that one of them mined."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import torch

from aladin.checkpoint import Checkpoint, load_checkpoint, read_model_id
from aladin.progress import Progress
from training.dataset import PairDataset
from training.mining.file import load_negatives, save_negatives
from training.mining.miner import mine_negatives
from training.mining.negatives import MinedFrom, OfflineNegatives
from training.stage import OfflineNegativesConfig
from training.streaming.photo_stream import PhotoStream


class StageSources(Protocol):
    """What a stage takes from earlier ones."""

    def checkpoint(self, stage: str) -> Checkpoint:
        """Return the network that a stage left."""
        ...

    def negatives(self, config: OfflineNegativesConfig) -> OfflineNegatives:
        """Return the mined negatives of a stage."""
        ...


class RunSources:
    """The earlier stages of a run, in its folder."""

    def __init__(
        self,
        stages: Path,
        folder: Path,
        train_set: PairDataset | PhotoStream,
        device: torch.device,
        progress: Progress,
    ) -> None:
        """Point at a run.

        Args:
            stages: folder of all stages.
            folder: of the stage that asks; lists that are mined for it are kept there.
            train_set: what is mined.
            device: where the networks go.
            progress: told of photos and captions.
        """
        self._stages = stages
        self._folder = folder
        self._train_set = train_set
        self._device = device
        self._progress = progress

    def checkpoint(self, stage: str) -> Checkpoint:
        """Load the network that a stage left.

        Raises:
            CheckpointError: it cannot be read.
        """
        return load_checkpoint(self._stages / stage / "checkpoint", self._device)

    def negatives(self, config: OfflineNegativesConfig) -> OfflineNegatives:
        """Load the mined negatives, mining them first where an earlier stage's network should.

        Raises:
            StaleNegativesError: the file belongs to other data, settings or another network.
            DataError: the file is damaged.
        """
        assert isinstance(self._train_set, PairDataset)  # recipes mine in no stream
        miner = self.checkpoint(config.stage) if config.stage is not None else None
        model_id = miner.model_id if miner is not None else None
        if config.miner is not None:
            model_id = read_model_id(Path(config.miner).expanduser())
        expected = MinedFrom(
            data=self._train_set.digest,
            model_id=model_id,
            score=config.score,
            num_texts=config.num_texts,
            num_images=config.num_images,
        )
        if miner is None:
            return load_negatives(Path(config.file or "").expanduser(), expected)
        path = self._folder / "negatives.safetensors"
        if not path.exists():
            mined = mine_negatives(
                miner.model,
                miner.model_id,
                self._train_set,
                config.score,
                config.num_texts,
                config.num_images,
                progress=self._progress,
            )
            save_negatives(path, mined)
        return load_negatives(path, expected)
