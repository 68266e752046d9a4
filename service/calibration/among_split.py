"""Queries that search the photos and the captions of their own split, every pair scored."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from aladin.calibration.examples import AskedQuery, candidates_kept
from aladin.calibration.scores import CandidateScores
from aladin.fusion import Direction
from aladin.model import AladinModel
from service.calibration.encoded_split import EncodedSplit


@torch.inference_mode()
def ask_split(
    model: AladinModel, split: EncodedSplit, num_candidates: int
) -> Callable[[Direction], list[AskedQuery]]:
    """Score all pairs of a split.

    Args:
        model: the network.
        split: encoded.
        num_candidates: of a search's first stage.

    Returns:
        What asks the queries of a direction.
    """
    match = model.scores("matching", split.images, split.texts).float().numpy()
    align = model.scores("alignment", split.images, split.texts).float().numpy()
    words, photo_of_text = split.words, split.photo_of_text
    photos = np.arange(len(match))

    def queries(direction: Direction) -> Iterator[AskedQuery]:
        if direction == "text_to_image":
            for text, photo in enumerate(photo_of_text):
                of_query = np.full(len(photos), words[text])
                scores = CandidateScores(photos, match[:, text], align[:, text], of_query)
                yield asked_query(int(photo), scores, photos == photo, num_candidates)
        else:
            texts = np.arange(len(photo_of_text))
            for photo in photos:
                scores = CandidateScores(texts, match[photo], align[photo], words)
                yield asked_query(int(photo), scores, photo_of_text == photo, num_candidates)

    return lambda direction: list(queries(direction))


def asked_query(
    photo: int, scores: CandidateScores, right: NDArray[np.bool_], num_candidates: int
) -> AskedQuery:
    """Keep what the first stage finds, with the right answers and without them.

    Args:
        photo: number of the photo that asks, or whose caption asks.
        scores: of items, in any order.
        right: of them; whether each belongs together with the query.
        num_candidates: of a search's first stage.
    """
    count = candidates_kept(num_candidates, int(right.sum()))
    best = np.argsort(-scores.match, kind="stable")[:count]
    return AskedQuery(photo, scores.take(best), right[best])
