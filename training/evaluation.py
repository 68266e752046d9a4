"""Exhaustive evaluation: every text against every image, by each score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aladin.checkpoint import Checkpoint
from aladin.encoding import Encoding, concatenate
from aladin.fusion import Fusion
from aladin.images import read_image
from aladin.inference import encode_photos, encode_texts
from aladin.metrics import Ranks, RetrievalMetrics, retrieval_ranks, summarize
from aladin.model import AladinModel
from aladin.progress import NullProgress, Progress
from aladin.scoring import matching_scores
from training.data import Record

T = TypeVar("T")

_PHOTOS_A_BATCH = 32
_TEXTS_A_BATCH = 256


@dataclass(frozen=True)
class ExhaustiveEvaluation:
    """Scores and ranks of a split.

    Attributes:
        matching_scores: cosines of the embeddings, ``scores[image, text]``.
        alignment_scores: the alignment head's, same shape.
        image_of_text: row of each text's image.
        ranks: by score name: matching, alignment, fused.
    """

    matching_scores: Float[Tensor, "images texts"]
    alignment_scores: Float[Tensor, "images texts"]
    image_of_text: Int[Tensor, " texts"]
    ranks: dict[str, Ranks]

    def metrics(self) -> dict[str, RetrievalMetrics]:
        """Summarise the ranks by score name."""
        return {name: summarize(ranks) for name, ranks in self.ranks.items()}


@torch.inference_mode()
def evaluate_encodings(
    model: AladinModel,
    fusion: Fusion,
    images: Encoding,
    texts: Encoding,
    image_of_text: Int[Tensor, " texts"],
) -> ExhaustiveEvaluation:
    """Score all pairs and rank them by embedding, by alignment and by the fusion of both.

    Args:
        model: whose alignment rule is used.
        fusion: constants of the third score, per direction.
        images: encoded images.
        texts: encoded texts.
        image_of_text: row of each text's image.
    """
    match = matching_scores(images, texts)
    align = model.alignment_scores(images, texts)
    by_text = retrieval_ranks(fusion.text_to_image.combine(align, match), image_of_text)
    by_image = retrieval_ranks(fusion.image_to_text.combine(align, match), image_of_text)
    ranks = {
        "matching": retrieval_ranks(match, image_of_text),
        "alignment": retrieval_ranks(align, image_of_text),
        "fused": Ranks(by_text.text_to_image, by_image.image_to_text),
    }
    return ExhaustiveEvaluation(match, align, image_of_text, ranks)


def evaluate_checkpoint(
    checkpoint: Checkpoint, records: Sequence[Record], progress: Progress | None = None
) -> ExhaustiveEvaluation:
    """Evaluate a checkpoint on photos and captions, encoded as the service encodes them.

    Args:
        checkpoint: to be evaluated.
        records: photos with captions, any number a photo.
        progress: told of photos, then of captions.

    Raises:
        ImageError: a photo cannot be decoded.
    """
    progress = progress or NullProgress()
    captions = [caption for record in records for caption in record.captions]
    images = _encode(
        [record.image for record in records],
        _PHOTOS_A_BATCH,
        "photos",
        progress,
        lambda paths: encode_photos(checkpoint.model, [read_image(path) for path in paths]),
    )
    texts = _encode(
        captions,
        _TEXTS_A_BATCH,
        "captions",
        progress,
        lambda batch: encode_texts(checkpoint.model, batch, truncate=True),
    )
    image_of_text = torch.tensor(
        [row for row, record in enumerate(records) for _ in record.captions]
    )
    return evaluate_encodings(checkpoint.model, checkpoint.fusion, images, texts, image_of_text)


def _encode(
    items: Sequence[T],
    batch_size: int,
    unit: str,
    progress: Progress,
    encode: Callable[[Sequence[T]], Encoding],
) -> Encoding:
    progress.start(len(items), unit)
    parts: list[Encoding] = []
    for start in range(0, len(items), batch_size):
        batch = items[start : start + batch_size]
        parts.append(encode(batch))
        progress.advance(len(batch))
    return concatenate(parts)
