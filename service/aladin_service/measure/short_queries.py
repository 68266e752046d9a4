"""Short text queries of a split: nouns and noun phrases of its captions, and the right photos."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from aladin_network.calibration.features import CandidateScores
from aladin_network.calibration.fit import AskedDirection, AskedShortTexts
from aladin_network.calibration.fitted_on import TextLengths
from aladin_network.model import AladinModel
from aladin_network.scoring.scores import Encoding
from aladin_network.types import Progress
from aladin_service.measure.calibration_split import RightAnswers, asked_query
from aladin_training.data import Record
from aladin_training.data.phrases import Wording, draw_short_text, find_phrases, meanings_of
from aladin_training.evaluation import encode_captions

# Short texts drawn from each caption; equal ones are asked once.
_PER_CAPTION = 2
# Most queries that are asked: more add time, and hardly any precision.
_MOST_QUERIES = 3000


@dataclass(frozen=True, kw_only=True)
class ShortQueries:
    """Short text queries among the photos of a split.

    Attributes:
        texts: The queries, without repetition.
        encoded: Their encodings.
        right: (queries, photos) bool.
        groups: (queries,) int64; queries with the same last word share a number, so that no model
            is judged by a query about things that it was fitted to.
    """

    texts: Sequence[str]
    encoded: Encoding
    right: NDArray[np.bool_]
    groups: NDArray[np.int64]


def right_by_captions(texts: Sequence[str], records: Sequence[Record]) -> NDArray[np.bool_]:
    """Find the photos whose captions' own words say what short texts say; see `Wording.holds`."""
    wordings = [Wording(record.captions) for record in records]
    right = np.zeros((len(texts), len(records)), dtype=np.bool_)
    for row, text in enumerate(texts):
        meanings = meanings_of(text)
        right[row] = [bool(meanings) and wording.holds(meanings) for wording in wordings]
    return right


def draw_short_queries(records: Sequence[Record]) -> list[str]:
    """Draw nouns and noun phrases from captions, always the same ones, without repetition."""
    texts: dict[str, None] = {}
    for record in records:
        for caption in record.captions:
            generator = random.Random(caption)
            for phrase in find_phrases(caption):
                part = caption[phrase.start : phrase.end]
                drawn = draw_short_text(part, generator) if generator.random() < 0.5 else part
                texts.setdefault((drawn or part).lower())
    chosen = sorted(texts)
    random.Random(0).shuffle(chosen)
    return chosen[:_MOST_QUERIES]


def encode_short_queries(
    model: AladinModel,
    records: Sequence[Record],
    right_answers: RightAnswers,
    progress: Progress,
) -> ShortQueries | None:
    """Draw and encode the short queries of a split.

    Args:
        model: The network.
        records: Photos with captions.
        right_answers: Tells which photos are right for a text.
        progress: Receives the number of encoded texts.

    Returns:
        None if the captions have no noun phrase.
    """
    texts = draw_short_queries(records)
    if not texts:
        return None
    nouns: dict[str, int] = {}
    groups = [nouns.setdefault(text.split()[-1], len(nouns)) for text in texts]
    return ShortQueries(
        texts=texts,
        encoded=encode_captions(model, texts, progress),
        right=right_answers(texts, records),
        groups=np.array(groups, dtype=np.int64),
    )


@torch.inference_mode()
def ask_short_queries(
    model: AladinModel, images: Encoding, queries: ShortQueries, num_candidates: int
) -> AskedShortTexts:
    """Score all pairs of the split's photos and the short queries.

    Args:
        model: The network.
        images: Encodings of the photos.
        queries: The queries.
        num_candidates: Number of candidates of a search's first stage.
    """
    match = model.scores("matching", images, queries.encoded).float().numpy()
    align = model.scores("alignment", images, queries.encoded).float().numpy()
    words = queries.encoded.mask.sum(dim=1).numpy()
    photos = np.arange(len(match))
    asked = [
        asked_query(
            int(queries.groups[row]),
            CandidateScores(photos, match[:, row], align[:, row], np.full(len(photos), words[row])),
            queries.right[row],
            num_candidates,
        )
        for row in range(len(words))
        if queries.right[row].any()
    ]
    return AskedShortTexts(AskedDirection(asked, num_candidates), TextLengths.of(words))
