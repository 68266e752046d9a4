"""Exhaustive evaluation: every text against every image, by each score of the network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aladin_network.checkpoint_files import Checkpoint
from aladin_network.errors import InputError
from aladin_network.inference import (
    encode_images,
    encode_photos,
    encode_texts,
)
from aladin_network.model import AladinModel
from aladin_network.photos.decoding import read_image
from aladin_network.scoring.encoding import Encoding
from aladin_network.scoring.fusion import Fusion
from aladin_network.scoring.hub_correction import EncodedItems, HubCorrection
from aladin_network.scoring.hub_correction_fit import ScoredSplit, corrected_ranks
from aladin_network.scoring.metrics import (
    Ranks,
    RetrievalMetrics,
    fold_blocks,
    mean_metrics,
    retrieval_ranks,
    summarize,
)
from aladin_network.scoring.scores import EncodedBatch
from aladin_network.scoring.separation import cross_retrieval_ranks, mean_difference
from aladin_network.scoring.two_stages import two_stage_ranks
from aladin_network.types import NullProgress, Progress
from aladin_training.batches.inputs import warn_of_long_captions
from aladin_training.batches.items import PLAIN, check_regions, region_items, usable_photos
from aladin_training.data import Record
from aladin_training.data.regions import RegionStore

T = TypeVar("T")

_PHOTOS_A_BATCH = 32
_TEXTS_A_BATCH = 256


@dataclass(frozen=True, kw_only=True)
class ExhaustiveEvaluation:
    """Scores and ranks of a split.

    Attributes:
        scores: Scores by head, as ``scores[name][image, text]``: matching (cosines of the
            embeddings), alignment, and attention if the network has that head.
        fusion: Fusion of alignment and matching, per direction.
        image_of_text: Row of each text's image.
        ranks: Ranks by score: those of `scores`, then fused, then two_stage (the best by matching,
            ordered by the fused score); with a hubness correction also corrected_matching,
            corrected_alignment and corrected_fused.
        mean_difference: DBL's MD by head.
        cross_ranks: AOQ's cross-retrieval rank of each text with its image by head, from 1.
    """

    scores: dict[str, Float[Tensor, "images texts"]]
    fusion: Fusion
    image_of_text: Int[Tensor, " texts"]
    ranks: dict[str, Ranks]
    mean_difference: dict[str, float]
    cross_ranks: dict[str, Int[Tensor, " texts"]]

    @property
    def matching_scores(self) -> Float[Tensor, "images texts"]:
        """Cosines of the embeddings."""
        return self.scores["matching"]

    @property
    def alignment_scores(self) -> Float[Tensor, "images texts"]:
        """Scores of the alignment head."""
        return self.scores["alignment"]

    def metrics(self) -> dict[str, RetrievalMetrics]:
        """Summarise the ranks by score name."""
        return {name: summarize(ranks) for name, ranks in self.ranks.items()}

    def folded_metrics(self, folds: int) -> dict[str, RetrievalMetrics]:
        """Average the metrics of contiguous blocks of images (COCO's "1K"), without corrections."""
        parts: list[dict[str, RetrievalMetrics]] = []
        for block in fold_blocks(self.matching_scores.shape[0], self.image_of_text, folds):
            ranks = rank_scores(block.inside(self.scores), self.fusion, block.image_of_text)
            parts.append({name: summarize(each) for name, each in ranks.items()})
        return {name: mean_metrics([part[name] for part in parts]) for name in parts[0]}


@torch.inference_mode()
def evaluate_encodings(
    model: AladinModel,
    fusion: Fusion,
    images: EncodedBatch,
    texts: EncodedBatch,
    image_of_text: Int[Tensor, " texts"],
    correction: HubCorrection | None = None,
) -> ExhaustiveEvaluation:
    """Score all pairs by every head, and rank them; see `score_encodings`, `evaluate_scores`."""
    evaluation = evaluate_scores(score_encodings(model, images, texts), fusion, image_of_text)
    if correction is None:
        return evaluation
    split = ScoredSplit(
        images=EncodedItems.of(images.arrays()),
        texts=EncodedItems.of(texts.arrays()),
        match=evaluation.matching_scores,
        align=evaluation.alignment_scores,
        image_of_text=image_of_text,
    )
    ranks = corrected_ranks(correction, split)
    ranks = {f"corrected_{name}": each for name, each in ranks.items()}
    return replace(evaluation, ranks=evaluation.ranks | ranks)


@torch.inference_mode()
def score_encodings(
    model: AladinModel, images: EncodedBatch, texts: EncodedBatch
) -> dict[str, Float[Tensor, "images texts"]]:
    """Score all pairs by every head of a network.

    The scores stay in memory, four bytes for each pair and head: 20 MB for 1,000 images with
    5,000 texts, 500 MB for COCO's 5,000 with 25,000.
    """
    return {name: model.scores(name, images, texts) for name in model.score_names}


@torch.inference_mode()
def evaluate_scores(
    scores: dict[str, Float[Tensor, "images texts"]],
    fusion: Fusion,
    image_of_text: Int[Tensor, " texts"],
) -> ExhaustiveEvaluation:
    """Rank all pairs by each score of a head, by their fusion and by two stages."""
    return ExhaustiveEvaluation(
        scores=scores,
        fusion=fusion,
        image_of_text=image_of_text,
        ranks=rank_scores(scores, fusion, image_of_text),
        mean_difference={
            name: mean_difference(each, image_of_text) for name, each in scores.items()
        },
        cross_ranks={
            name: cross_retrieval_ranks(each, image_of_text) for name, each in scores.items()
        },
    )


def evaluate_checkpoint(
    checkpoint: Checkpoint[AladinModel],
    records: Sequence[Record],
    progress: Progress | None = None,
    regions: RegionStore | None = None,
    correction: HubCorrection | None = None,
) -> ExhaustiveEvaluation:
    """Evaluate a checkpoint on photos and captions, encoded as the service encodes them.

    Args:
        checkpoint: Checkpoint to evaluate.
        records: Photos with any number of captions.
        progress: Receives photos, then captions.
        regions: Regions of the photos, for a network that reads these.
        correction: Hubness correction to evaluate beside the plain scores, or None.

    Raises:
        InputError: If no photo has a caption; see also `encode_records`.
    """
    progress = progress or NullProgress()
    if not any(record.captions for record in records):
        raise InputError(f"nothing to evaluate: {len(records)} photos without a caption")
    image_of_text = torch.tensor(
        [row for row, record in enumerate(records) for _ in record.captions]
    )
    images, texts = encode_records(checkpoint.model, records, progress, regions)
    model, fusion = checkpoint.model, checkpoint.fusion
    return evaluate_encodings(model, fusion, images, texts, image_of_text, correction)


def mean_scores(
    scores: Sequence[dict[str, Float[Tensor, "images texts"]]],
) -> dict[str, Float[Tensor, "images texts"]]:
    """Average the scores of networks head by head, without heads that one of them lacks."""
    heads = [name for name in scores[0] if all(name in each for each in scores)]
    return {name: torch.stack([each[name] for each in scores]).mean(dim=0) for name in heads}


def usable_records(
    records: Sequence[Record], progress: Progress, regions: RegionStore | None = None
) -> list[Record]:
    """Return the photos that can be decoded; the others are skipped with a warning.

    Args:
        records: Photos with or without captions.
        progress: Receives photos.
        regions: Regions of the photos, which are then not decoded.

    Raises:
        DataError: If more than half of them cannot be, or, in a block of `strict_data`, one cannot.
    """
    if regions is not None or not records:
        return list(records)
    _, rows = usable_photos([record.photo for record in records], [PLAIN], None, progress)
    return [records[row] for row in rows]


def encode_records(
    model: AladinModel,
    records: Sequence[Record],
    progress: Progress,
    regions: RegionStore | None = None,
) -> tuple[EncodedBatch, EncodedBatch]:
    """Encode photos and their captions as the service encodes them.

    Args:
        model: Network that encodes.
        records: Photos, of which at least one has a caption.
        progress: Receives photos, then captions.
        regions: Regions of the photos, for a network that reads these.

    Returns:
        The photos, and their captions in the order of the photos.

    Raises:
        ImageError: If a photo cannot be decoded.
        RegionError: If photos have no regions, or the network cannot read them.
        InputError: If the network reads regions and there are none, or vice versa.
    """
    encoder = model.image.encoder
    check_regions(encoder, regions)
    if regions is None:
        images = _encode(
            [record.photo for record in records],
            _PHOTOS_A_BATCH,
            "photos",
            progress,
            lambda files: encode_photos(model, [read_image(file) for file in files]),
        )
    else:
        images = _encode(
            region_items(records, encoder, regions).keys,
            _PHOTOS_A_BATCH,
            "photos",
            progress,
            lambda keys: encode_images(
                model, [encoder.preprocess(regions.read(key)) for key in keys]
            ),
        )
    captions = [caption for record in records for caption in record.captions]
    return images, encode_captions(model, captions, progress)


def encode_captions(
    model: AladinModel, captions: Sequence[str], progress: Progress
) -> EncodedBatch:
    """Encode texts as the service encodes queries, but cut those that are too long."""
    warn_of_long_captions(model.text.encoder, captions)
    return _encode(
        captions,
        _TEXTS_A_BATCH,
        "captions",
        progress,
        lambda batch: encode_texts(model, batch, truncate=True),
    )


def rank_scores(
    scores: dict[str, Tensor], fusion: Fusion, image_of_text: Int[Tensor, " texts"]
) -> dict[str, Ranks]:
    """Rank all pairs by each score, by their fusion and by two stages; see `evaluate_scores`."""
    match, align = scores["matching"], scores["alignment"]
    ranks = {name: retrieval_ranks(each, image_of_text) for name, each in scores.items()}
    ranks["fused"] = two_stage_ranks(match, align, fusion, image_of_text, num_candidates=None)
    ranks["two_stage"] = two_stage_ranks(match, align, fusion, image_of_text)
    return ranks


def _encode(
    items: Sequence[T],
    batch_size: int,
    unit: str,
    progress: Progress,
    encode: Callable[[Sequence[T]], Encoding],
) -> EncodedBatch:
    progress.start(len(items), unit)
    parts: list[Encoding] = []
    for start in range(0, len(items), batch_size):
        batch = items[start : start + batch_size]
        parts.append(encode(batch))
        progress.advance(len(batch))
    return EncodedBatch.of(Encoding.concatenate(parts))
