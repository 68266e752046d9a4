"""Encoded photos and captions of a split, and queries among them with all pairs scored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from aladin_network.calibration.examples import AskedQuery, candidates_kept
from aladin_network.calibration.features import CandidateScores
from aladin_network.errors import InputError
from aladin_network.model import AladinModel
from aladin_network.scoring.correction import EncodedItems, HubCorrection
from aladin_network.scoring.correction_fit import TARGET_OF, corrected
from aladin_network.scoring.scores import EncodedBatch
from aladin_network.types import Direction, Progress
from aladin_training.data import Record
from aladin_training.data.regions import RegionStore
from aladin_training.evaluation import encode_records


@dataclass(frozen=True, kw_only=True)
class EncodedSplit:
    """Photos of a split that have a caption, and their captions, encoded like user queries.

    Attributes:
        records: The photos.
        images: Encodings of the photos, in the same order.
        texts: Encodings of the captions, photo by photo.
        photo_of_text: (texts,) int64, the row of each caption's photo.
        caption_ids: IDs of the captions in an index of the same data.
        right: (texts, photos) bool, whether caption and photo belong together; more photos than
            the caption's own may be right.
    """

    records: Sequence[Record]
    images: EncodedBatch
    texts: EncodedBatch
    photo_of_text: NDArray[np.int64]
    caption_ids: Sequence[str]
    right: NDArray[np.bool_]

    @property
    def words(self) -> NDArray[np.int64]:
        """(texts,) int64, the number of words of each caption."""
        return self.texts.mask.sum(dim=1).numpy()


# Tells which photos texts are right for: (texts, photos) bool.
RightAnswers = Callable[[Sequence[str], Sequence[Record]], NDArray[np.bool_]]


def encode_split(
    model: AladinModel,
    records: Sequence[Record],
    progress: Progress,
    regions: RegionStore | None = None,
    right_answers: RightAnswers | None = None,
) -> EncodedSplit:
    """Encode a split.

    Args:
        model: The network.
        records: Photos; those without a caption are skipped.
        progress: Receives the progress over photos, then over captions.
        regions: Regions of the photos, for a network that reads regions.
        right_answers: Tells which photos captions are right for; with None each is right for its
            own photo only.

    Raises:
        InputError: If no photo has a caption; for other cases see `encode_records`.
    """
    asking = [record for record in records if record.captions]
    if not asking:
        raise InputError(
            f"calibration: expected photos with captions, found {len(records)} without"
        )
    images, texts = encode_records(model, asking, progress, regions)
    photo_of_text = np.repeat(np.arange(len(asking)), [len(record.captions) for record in asking])
    right = photo_of_text[:, np.newaxis] == np.arange(len(asking))
    if right_answers is not None:
        captions = [caption for record in asking for caption in record.captions]
        right |= right_answers(captions, asking)
    return EncodedSplit(
        records=asking,
        images=images,
        texts=texts,
        photo_of_text=photo_of_text,
        right=right,
        caption_ids=[each for record in asking for each in record.caption_ids],
    )


class PairScores(NamedTuple):
    """Scores of all pairs of photos and texts."""

    images: EncodedBatch
    texts: EncodedBatch
    match: Float[Tensor, "images texts"]
    align: Float[Tensor, "images texts"]

    @classmethod
    def of(cls, model: AladinModel, images: EncodedBatch, texts: EncodedBatch) -> PairScores:
        """Score all pairs by a network."""
        match, align = (
            model.scores(name, images, texts).float() for name in ("matching", "alignment")
        )
        return cls(images, texts, match, align)

    def corrected(
        self, direction: Direction, correction: HubCorrection | None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return both scores as a search of this direction compares them, (images, texts)."""
        if correction is None:
            return self.match.numpy(), self.align.numpy()
        target = TARGET_OF[direction]
        items = EncodedItems.of((self.images if target == "images" else self.texts).arrays())
        biases, words = correction.biases(target, items), self.texts.mask.sum(dim=1).numpy()
        scores = corrected(self.match, self.align, direction, biases, words)
        return scores.match.numpy(), scores.align.numpy()


@torch.inference_mode()
def ask_split(
    model: AladinModel,
    split: EncodedSplit,
    num_candidates: int,
    correction: HubCorrection | None = None,
) -> Callable[[Direction], list[AskedQuery]]:
    """Score all pairs of a split.

    Args:
        model: The network.
        split: The encoded split.
        num_candidates: Number of candidates of a search's first stage.
        correction: Hubness correction of the scores, or None.

    Returns:
        What asks the queries of a direction.
    """
    plain = PairScores.of(model, split.images, split.texts)
    words, photo_of_text = split.words, split.photo_of_text
    photos = np.arange(split.images.size)

    def queries(direction: Direction) -> Iterator[AskedQuery]:
        match, align = plain.corrected(direction, correction)
        if direction == "text_to_image":
            for text, photo in enumerate(photo_of_text):
                of_query = np.full(len(photos), words[text])
                scores = CandidateScores(photos, match[:, text], align[:, text], of_query)
                asked = asked_query(int(photo), scores, split.right[text], num_candidates)
                yield asked._replace(embedding=split.texts.embedding[text].numpy())
        else:
            texts = np.arange(len(photo_of_text))
            for photo in photos:
                scores = CandidateScores(texts, match[photo], align[photo], words)
                yield asked_query(int(photo), scores, split.right[:, photo], num_candidates)

    return lambda direction: list(queries(direction))


def asked_query(
    photo: int, scores: CandidateScores, right: NDArray[np.bool_], num_candidates: int
) -> AskedQuery:
    """Keep the candidates of the first stage, with the right answers and without them.

    Args:
        photo: Number of the photo that is the query, or whose caption is.
        scores: Scores of items, in any order.
        right: Whether each of the items belongs to the query.
        num_candidates: Number of candidates of a search's first stage.
    """
    count = candidates_kept(num_candidates, int(right.sum()))
    best = np.argsort(-scores.match, kind="stable")[:count]
    return AskedQuery(photo, scores.take(best), right[best])
