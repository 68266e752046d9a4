"""Short text queries of a split: nouns and noun phrases of its captions, and the right photos.

Some of them have one word replaced by a made-up one: whatever it means, no photo shows it.
"""

from __future__ import annotations

import math
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
from aladin_network.scoring.correction import HubCorrection
from aladin_network.scoring.scores import EncodedBatch
from aladin_network.types import Progress
from aladin_service.measure.calibration_split import PairScores, RightAnswers, asked_query
from aladin_training.data import Record
from aladin_training.data.phrases import Wording, draw_short_text, find_phrases, meanings_of
from aladin_training.evaluation import encode_captions

# Queries with a made-up word, relative to the others.
_MADE_UP = 0.25
_CONSONANTS, _VOWELS = "bcdfghjklmnprstvwz", "aeiou"
# Most queries that are asked: more add time, and hardly any precision.
_MOST_QUERIES = 3000


@dataclass(frozen=True, kw_only=True)
class ShortQueries:
    """Short text queries among the photos of a split.

    Attributes:
        texts: The queries, without repetition.
        encoded: Their encodings.
        right: (queries, photos) bool; none is right for a query with a made-up word.
        groups: (queries,) int64; queries with the same last word share a number, so that no model
            is judged by a query about things that it was fitted to.
    """

    texts: Sequence[str]
    encoded: EncodedBatch
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


def make_up_words(texts: Sequence[str]) -> list[str]:
    """Return some of the texts with a made-up word in the place of one of theirs."""
    generator = random.Random(0)
    changed: list[str] = []
    for text in texts[: math.ceil(_MADE_UP * len(texts))]:
        words = text.split()
        letters = (_CONSONANTS, _VOWELS) * generator.randint(2, 4)
        word = "".join(generator.choice(each) for each in letters)
        has_article = len(words) > 1 and words[0] in ("a", "an", "the")
        words[generator.randrange(int(has_article), len(words))] = word
        changed.append(" ".join(words))
    return changed


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
        None if the captions have no noun phrase, or none that is right for a photo.
    """
    texts = draw_short_queries(records)
    if not texts:
        return None
    right = right_answers(texts, records)
    # A text that is right for nothing, by its rules, says nothing about probabilities.
    texts = [text for text, of_text in zip(texts, right, strict=True) if of_text.any()]
    if not texts:
        return None
    made_up = make_up_words(texts)
    nouns: dict[str, int] = {}
    groups = [nouns.setdefault(text.split()[-1], len(nouns)) for text in texts]
    # A made-up word is in the group of the text that it was put into.
    groups += groups[: len(made_up)]
    nothing = np.zeros((len(made_up), len(records)), dtype=np.bool_)
    return ShortQueries(
        texts=[*texts, *made_up],
        encoded=encode_captions(model, [*texts, *made_up], progress),
        right=np.concatenate([right[right.any(axis=1)], nothing]),
        groups=np.array(groups, dtype=np.int64),
    )


@torch.inference_mode()
def ask_short_queries(
    model: AladinModel,
    images: EncodedBatch,
    queries: ShortQueries,
    num_candidates: int,
    correction: HubCorrection | None = None,
) -> AskedShortTexts:
    """Score all pairs of the split's photos and the short queries.

    Args:
        model: The network.
        images: Encodings of the photos.
        queries: The queries.
        num_candidates: Number of candidates of a search's first stage.
        correction: Hubness correction of the scores, or None.
    """
    plain = PairScores.of(model, images, queries.encoded)
    match, align = plain.corrected("text_to_image", correction)
    words = queries.encoded.mask.sum(dim=1).numpy()
    photos = np.arange(len(match))
    asked = [
        asked_query(
            int(queries.groups[row]),
            CandidateScores(photos, match[:, row], align[:, row], np.full(len(photos), words[row])),
            queries.right[row],
            num_candidates,
        )._replace(
            has_match=bool(queries.right[row].any()),
            # Of those with a match, the right photos are taken out: the hard kind.
            kind="hard" if queries.right[row].any() else "far",
            embedding=queries.encoded.embedding[row].numpy(),
        )
        for row in range(len(words))
    ]
    typed = np.array([len(text.split()) for text in queries.texts], dtype=np.int64)
    return AskedShortTexts(AskedDirection(asked, num_candidates), TextLengths.of(typed))
