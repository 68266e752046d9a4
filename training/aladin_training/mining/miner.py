"""The first round of AOQ: a trained network finds the hardest negatives of a whole split."""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from aladin_network.checkpoint import load_checkpoint
from aladin_network.errors import InputError
from aladin_network.model import AladinModel
from aladin_network.scoring.scores import EncodedBatch
from aladin_network.types import NullProgress, Progress, ScoreName
from aladin_training.batches.dataset import PairDataset
from aladin_training.batches.items import PLAIN
from aladin_training.batches.offline_negatives import (
    MinedFrom,
    OfflineNegatives,
    load_negatives,
    save_negatives,
)
from aladin_training.config.defaults import NUM_IMAGES, NUM_TEXTS
from aladin_training.data import read_records
from aladin_training.data.regions import RegionStore
from aladin_training.data.selection import selection_of
from aladin_training.mining.sweep import hardest_negatives

logger = logging.getLogger(__name__)

MEMORY_BUDGET_BYTES = 512 * 2**20


def encode_for_score(
    model: AladinModel, dataset: PairDataset, score: ScoreName, progress: Progress
) -> tuple[EncodedBatch, EncodedBatch]:
    """Encode every photo and caption of a data set, keeping only what one score reads.

    The tokens of a large training split do not fit into memory (COCO: some hundred GiB); if only
    the embeddings are scored, the tokens of each batch are dropped.

    Args:
        model: Network in evaluation mode.
        dataset: Photos and captions.
        score: Score to be computed from the encodings.
        progress: Receives photos, then captions.

    Returns:
        The images and the texts by row, on the model's device; without tokens for matching.
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
    model_id: str,
    dataset: PairDataset,
    score: ScoreName = "matching",
    num_texts: int = NUM_TEXTS,
    num_images: int = NUM_IMAGES,
    memory_budget_bytes: int = MEMORY_BUDGET_BYTES,
    progress: Progress | None = None,
) -> OfflineNegatives:
    """Score all photos against all captions and keep the best ones that do not match.

    The network may differ from the one that is trained with the lists: a cheap teacher mines for
    an expensive student.

    Args:
        model: Teacher in evaluation mode.
        model_id: Id of its checkpoint.
        dataset: Training split.
        score: Score of the teacher.
        num_texts: Captions to keep for each photo, at least 1.
        num_images: Photos to keep for each caption, at least 1.
        memory_budget_bytes: Upper bound of the block of scores held at any time, in addition to the
            encodings and the lists.
        progress: Receives photos and captions encoded, then photos compared.

    Raises:
        InputError: If a count is below 1, the network lacks the score or returns NaN, or there is
            only one photo, so that no caption is a negative.
    """
    progress = progress or NullProgress()
    if num_texts < 1 or num_images < 1:
        counts = f"{num_texts} texts and {num_images} images"
        raise InputError(f"expected at least 1 text and 1 image to mine, got {counts}")
    if score not in model.score_names:
        known = ", ".join(model.score_names)
        raise InputError(f"the network has no score {score!r}, only {known}")
    num_photos = len(dataset.captions_of_photo)
    if num_photos < 2:
        raise InputError("mining needs at least 2 photos, got 1: all captions are its own")
    images, texts = encode_for_score(model, dataset, score, progress)
    caption_rows, photo_rows = hardest_negatives(
        lambda photos, captions: model.scores(score, images.rows(photos), texts.rows(captions)),
        dataset.image_of_text.to(images.embedding.device),
        num_photos,
        num_texts,
        num_images,
        memory_budget_bytes,
        progress,
    )
    mined_from = MinedFrom(
        data=dataset.digest,
        model_id=model_id,
        score=score,
        num_texts=num_texts,
        num_images=num_images,
    )
    return OfflineNegatives(caption_rows.cpu(), photo_rows.cpu(), mined_from)


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
    """Mine a file, unless it exists already.

    Args:
        checkpoint_folder: Checkpoint of the teacher.
        data: Photos with captions.
        split: Split of the data, or None for all photos.
        out: File to write; one of other data, another teacher or other settings is never replaced.
        cache: Folder for the outputs of frozen encoders.
        score: See `mine_negatives`, as for the following arguments.
        num_texts: Captions to keep for each photo.
        num_images: Photos to keep for each caption.
        memory_budget_bytes: Upper bound of the block of scores held at any time.
        progress: Receives photos and captions.
        regions: Regions of the photos, for a network that reads these.

    Raises:
        AladinError: If the checkpoint or the data cannot be used.
        StaleNegativesError: If `out` holds other negatives.
    """
    progress = progress or NullProgress()
    checkpoint = load_checkpoint(checkpoint_folder)
    model = checkpoint.model
    records = read_records(data, split, require_photos=regions is None)
    selection = selection_of(checkpoint.provenance.recipe)
    if selection is not None and selection.train_split == split:
        records, _ = selection.divide(records)  # the others were not trained on either
    model.to("cuda" if torch.cuda.is_available() else "cpu")
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
    out.parent.mkdir(parents=True, exist_ok=True)  # a wrong path fails before the work
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
