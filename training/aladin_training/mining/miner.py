"""The first round of AOQ: a trained network finds the hardest negatives of a whole split."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import torch

from aladin_network.checkpoint_files import Checkpoint
from aladin_network.errors import InputError
from aladin_network.model import AladinModel
from aladin_network.scoring.scores import EncodedBatch
from aladin_network.types import NullProgress, Progress, ScoreName
from aladin_training.batches.dataset import PairDataset
from aladin_training.batches.inputs import Caches
from aladin_training.batches.items import PLAIN
from aladin_training.batches.offline_negatives import (
    MinedFrom,
    OfflineNegatives,
    load_negatives,
    save_negatives,
)
from aladin_training.config.defaults import Lists
from aladin_training.data import Record
from aladin_training.data.regions import RegionStore
from aladin_training.mining.sweep import hardest_negatives

logger = logging.getLogger(__name__)

MEMORY_BUDGET_BYTES = 512 * 2**20


def encode_for_score(
    model: AladinModel, dataset: PairDataset, score: ScoreName, progress: Progress
) -> tuple[EncodedBatch, EncodedBatch]:
    """Encode every photo and caption of a data set, keeping only what one score reads.

    The tokens of a large training split do not fit into memory (COCO: some hundred GiB); if only
    the embeddings are scored, the tokens of each batch are dropped.
    """
    if score != "matching":
        return dataset.encode(model, progress=progress)
    return dataset.encode(model, keep=_without_tokens, progress=progress)


def _without_tokens(encoding: EncodedBatch) -> EncodedBatch:
    return EncodedBatch(
        encoding.embedding, encoding.tokens[:, :0].clone(), encoding.mask[:, :0].clone()
    )


@torch.inference_mode()
def mine_negatives(
    model: AladinModel,
    dataset: PairDataset,
    lists: MinedFrom,
    memory_budget_bytes: int = MEMORY_BUDGET_BYTES,
    progress: Progress | None = None,
) -> OfflineNegatives:
    """Score all photos against all captions and keep the best ones that do not match.

    The network may differ from the one that is trained with the lists: a cheap teacher mines for
    an expensive student.
    """
    progress = progress or NullProgress()
    if lists.num_texts < 1 or lists.num_images < 1:
        counts = f"{lists.num_texts} texts and {lists.num_images} images"
        raise InputError(f"expected at least 1 text and 1 image to mine, got {counts}")
    if lists.score not in model.score_names:
        known = ", ".join(model.score_names)
        raise InputError(f"the network has no score {lists.score!r}, only {known}")
    num_photos = len(dataset.captions_of_photo)
    if num_photos < 2:
        raise InputError("mining needs at least 2 photos, got 1: all captions are its own")
    images, texts = encode_for_score(model, dataset, lists.score, progress)
    caption_rows, photo_rows = hardest_negatives(
        lambda photos, captions: model.scores(
            lists.score, images.rows(photos), texts.rows(captions)
        ),
        dataset.image_of_text.to(images.embedding.device),
        num_photos,
        lists.num_texts,
        lists.num_images,
        memory_budget_bytes,
        progress,
    )
    return OfflineNegatives(caption_rows.cpu(), photo_rows.cpu(), lists)


def mine_file(
    checkpoint: Checkpoint[AladinModel],
    records: Sequence[Record],
    out: Path,
    *,
    cache: Path,
    lists: Lists,
    memory_budget_bytes: int = MEMORY_BUDGET_BYTES,
    progress: Progress | None = None,
    regions: RegionStore | None = None,
) -> None:
    """Mine a file, unless it exists already.

    Args:
        checkpoint: The teacher.
        records: Photos with captions that it was trained on, see `read_trained`.
        out: File to write; one of other data, another teacher or other settings is never replaced.
        cache: Folder for the outputs of frozen encoders.
        lists: What is listed.
        memory_budget_bytes: Upper bound of the block of scores held at any time.
        progress: Receives photos and captions.
        regions: Regions of the photos, for a network that reads these.

    Raises:
        AladinError: If the data cannot be used.
        StaleNegativesError: If `out` holds other negatives.
    """
    progress = progress or NullProgress()
    model = checkpoint.model
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    dataset = PairDataset.prepare(records, model, Caches(cache, "auto"), [PLAIN], progress, regions)
    mined_from = MinedFrom.of(dataset.digest, checkpoint.model_id, lists)
    if out.exists():
        load_negatives(out, mined_from)
        logger.info("%s holds these negatives already: nothing to do", out)
        return
    out.parent.mkdir(parents=True, exist_ok=True)  # a wrong path fails before the work
    save_negatives(out, mine_negatives(model, dataset, mined_from, memory_budget_bytes, progress))
