"""From a checkpoint and a data set to a file of mined negatives."""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from aladin.checkpoint import load_checkpoint
from aladin.progress import NullProgress, Progress
from aladin.scoring import ScoreName
from training.data import read_records
from training.data.regions import RegionStore
from training.dataset import PairDataset
from training.defaults import NUM_IMAGES, NUM_TEXTS
from training.mining.file import load_negatives, save_negatives
from training.mining.miner import MEMORY_BUDGET_BYTES, mine_negatives
from training.mining.negatives import MinedFrom
from training.views import PLAIN

logger = logging.getLogger(__name__)


def mine_file(
    checkpoint_folder: Path,
    data: Path,
    split: str | None,
    out: Path,
    *,
    cache: Path,
    score: ScoreName = "matching",
    num_texts: int = NUM_TEXTS,
    num_images: int = NUM_IMAGES,
    memory_budget_bytes: int = MEMORY_BUDGET_BYTES,
    progress: Progress | None = None,
    regions: RegionStore | None = None,
) -> None:
    """Mine a file, unless it is there already.

    Args:
        checkpoint_folder: of the teacher.
        data: photos with captions.
        split: of the data; None: all photos.
        out: the file; one of other data, another teacher or other settings is never replaced.
        cache: folder for the outputs of frozen encoders.
        score: see `mine_negatives`, as the rest.
        num_texts: captions to keep for each photo.
        num_images: photos to keep for each caption.
        memory_budget_bytes: upper bound of the block of scores held at any time.
        progress: told of photos and captions.
        regions: of the photos, for a network that reads these.

    Raises:
        AladinError: the checkpoint or the data cannot be used.
        StaleNegativesError: `out` holds other negatives.
    """
    progress = progress or NullProgress()
    checkpoint = load_checkpoint(checkpoint_folder)
    model = checkpoint.model
    records = read_records(data, split, require_photos=regions is None)
    dataset = PairDataset.prepare(records, model, cache, [PLAIN], "auto", progress, regions)
    if out.exists():
        expected = MinedFrom(
            data=dataset.digest,
            model_id=checkpoint.model_id,
            score=score,
            num_texts=num_texts,
            num_images=num_images,
        )
        load_negatives(out, expected)
        logger.info("%s holds these negatives already: nothing to do", out)
        return
    out.parent.mkdir(parents=True, exist_ok=True)  # a wrong path is told before the work
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    negatives = mine_negatives(
        model,
        checkpoint.model_id,
        dataset,
        score,
        num_texts,
        num_images,
        memory_budget_bytes,
        progress,
    )
    save_negatives(out, negatives)
