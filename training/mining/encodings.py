"""Encode a whole data set, keeping only what one score reads."""

from __future__ import annotations

import torch

from aladin.encoding import Encoding, concatenate
from aladin.model import AladinModel
from aladin.progress import Progress
from aladin.scoring import ScoreName
from training.dataset import PairDataset
from training.tasks.batch import to_device, tuple_to_device

_ITEMS_A_BATCH = 250


@torch.inference_mode()
def encode_for_score(
    model: AladinModel, dataset: PairDataset, score: ScoreName, progress: Progress
) -> tuple[Encoding, Encoding]:
    """Encode every photo and caption.

    The tokens of a large training split fill more memory than any machine has (COCO: some
    hundred GiB); where only the embeddings are scored, the tokens of each batch are let go.

    Args:
        model: in evaluation mode.
        dataset: photos and captions.
        score: that is to be computed from the encodings.
        progress: told of photos, then of captions.

    Returns:
        The images and the texts by row, on the model's device; for matching without tokens.
    """
    device = next(model.parameters()).device
    images: list[Encoding] = []
    progress.start(len(dataset.captions_of_photo), "photos")
    for rows in _batches(len(dataset.captions_of_photo)):
        photos = to_device(dataset.photos.get(rows, [0] * len(rows)), device)
        images.append(_keep(model.encode_images(photos), score))
        progress.advance(len(rows))
    texts: list[Encoding] = []
    progress.start(len(dataset.captions), "captions")
    for rows in _batches(len(dataset.captions)):
        captions = tuple_to_device(dataset.texts.get(rows), device)
        texts.append(_keep(model.encode_texts(captions), score))
        progress.advance(len(rows))
    return concatenate(images), concatenate(texts)


def _keep(encoding: Encoding, score: ScoreName) -> Encoding:
    """Drop the tokens if the score does not read them."""
    if score != "matching":
        return encoding
    return Encoding(
        encoding.embedding, encoding.tokens[:, :0].clone(), encoding.mask[:, :0].clone()
    )


def _batches(total: int) -> list[range]:
    return [
        range(start, min(total, start + _ITEMS_A_BATCH))
        for start in range(0, total, _ITEMS_A_BATCH)
    ]
