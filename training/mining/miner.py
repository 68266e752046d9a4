"""The first round of AOQ: a trained network names the hardest negatives of the whole split."""

from __future__ import annotations

import torch

from aladin.errors import InputError
from aladin.model import AladinModel
from aladin.progress import NullProgress, Progress
from aladin.scoring import ScoreName
from training.dataset import PairDataset
from training.defaults import NUM_IMAGES, NUM_TEXTS
from training.mining.encodings import encode_for_score
from training.mining.negatives import MinedFrom, OfflineNegatives
from training.mining.sweep import hardest_negatives

MEMORY_BUDGET_BYTES = 512 * 2**20


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

    The network may be another one than that which is trained with the lists: a cheap teacher
    mines for an expensive student.

    Args:
        model: the teacher, in evaluation mode.
        model_id: of its checkpoint.
        dataset: the training split.
        score: of the teacher.
        num_texts: captions to keep for each photo, at least 1.
        num_images: photos to keep for each caption, at least 1.
        memory_budget_bytes: upper bound of the block of scores held at any time; the encodings
            and the lists come on top of it.
        progress: told of photos and captions encoded, then of photos compared.

    Raises:
        InputError: a count is below 1; the network lacks the score or gives NaN; or there is
            only one photo, to which every caption belongs.
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
