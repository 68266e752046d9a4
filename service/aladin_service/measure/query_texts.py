"""Text queries of a split beside its captions, and the photos that are right for them.

* Short texts: nouns and noun phrases of the captions. Some have one word replaced by a made-up one:
  whatever it means, no photo shows it.
* Foreign texts: descriptions of subjects that photos of everyday life rarely show; those with a
  noun that no caption of the split has.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_network.model import AladinModel
from aladin_network.scoring.scores import EncodedBatch
from aladin_network.types import Progress
from aladin_training.data import Record
from aladin_training.data.phrases import Wording, draw_short_text, find_phrases, meanings_of
from aladin_training.evaluation import encode_captions

# Queries with a made-up word, relative to the others.
_MADE_UP = 0.25
_CONSONANTS, _VOWELS = "bcdfghjklmnprstvwz", "aeiou"
# Most short queries that are asked: more add time, and hardly any precision.
_MOST_QUERIES = 3000

_SUBJECTS = tuple(
    line.strip()
    for line in """
    a chest x-ray
    an ultrasound scan of a kidney
    a microscope slide of bacteria
    a satellite map of a hurricane
    a weather chart with isobars
    a bar chart of quarterly revenue
    a pie chart of election results
    a circuit diagram with resistors
    a printed circuit board
    a page of source code
    a spreadsheet of invoices
    a scanned passport
    a handwritten letter
    a crossword puzzle
    a chess diagram
    sheet music for a violin sonata
    a nebula photographed by a telescope
    the surface of the moon with craters
    the rings of saturn
    an eclipse
    an oil painting of a saint
    a marble statue of an emperor
    an egyptian papyrus with hieroglyphs
    a medieval manuscript
    a stained glass window in a cathedral
    a gold coin of an ancient king
    a fossil of a trilobite
    an amethyst crystal
    a bowl of ramen with chopsticks
    a plate of spaghetti with basil
    a sliced avocado on toast
    a chocolate cake with candles
    a jar of strawberry jam
    a coral reef with a clownfish
    an octopus
    a spider in its web
    a caterpillar on a leaf
    a mushroom with a spotted cap
    a cactus in blossom
    a penguin colony
    a giraffe in the savannah
    a crocodile
    a steam locomotive
    a submarine
    a jet engine
    a wind turbine
    an oil rig
    a nuclear power plant
    a combine harvester
    a server rack with cables
    a dentist's chair
    a surgeon in an operating theatre
    an astronaut in a space station
    a wedding ring on a velvet cushion
    a bottle of perfume
    a pocket watch
    a sewing machine
    a typewriter
    a wardrobe with mirrors
    an empty parking garage
    """.strip().splitlines()
)
_WAYS = ("{}", "{} in black and white", "a close-up of {}", "a drawing of {}")

# Tells which photos texts are right for: (texts, photos) bool.
RightAnswers = Callable[[Sequence[str], Sequence[Record]], NDArray[np.bool_]]


class TextQueries(NamedTuple):
    """Text queries among the photos of a split.

    Attributes:
        encoded: Their encodings.
        right: (queries, photos) bool.
        groups: (queries,) int64; queries about the same thing share a number, so that no model is
            judged by a query about things that it was fitted to.
        is_short: Whether they are nouns and noun phrases, for which many photos may be right.
    """

    encoded: EncodedBatch
    right: NDArray[np.bool_]
    groups: NDArray[np.int64]
    is_short: bool = False


def right_by_captions(texts: Sequence[str], records: Sequence[Record]) -> NDArray[np.bool_]:
    """Find the photos whose captions' own words say what short texts say; see `Wording.holds`."""
    wordings = [Wording(record.captions) for record in records]
    right = np.zeros((len(texts), len(records)), dtype=np.bool_)
    for row, text in enumerate(texts):
        meanings = meanings_of(text)
        right[row] = [bool(meanings) and wording.holds(meanings) for wording in wordings]
    return right


def encode_short_queries(
    model: AladinModel,
    records: Sequence[Record],
    right_answers: RightAnswers,
    progress: Progress,
) -> TextQueries | None:
    """Draw and encode the short queries of a split, and some of them with a made-up word.

    None if the captions have no noun phrase, or none that is right for a photo.
    """
    drawn = draw_short_queries(records)
    right = right_answers(drawn, records)
    # A text that is right for nothing, by its rules, says nothing about probabilities.
    texts = [text for text, of_text in zip(drawn, right, strict=True) if of_text.any()]
    if not texts:
        return None
    made_up = make_up_words(texts)
    nouns: dict[str, int] = {}
    groups = [nouns.setdefault(text.split()[-1], len(nouns)) for text in texts]
    # A made-up word is in the group of the text that it was put into.
    groups += groups[: len(made_up)]
    nothing = np.zeros((len(made_up), len(records)), dtype=np.bool_)
    return TextQueries(
        encoded=encode_captions(model, [*texts, *made_up], progress),
        right=np.concatenate([right[right.any(axis=1)], nothing]),
        groups=np.array(groups, dtype=np.int64),
        is_short=True,
    )


def encode_foreign_queries(
    model: AladinModel,
    records: Sequence[Record],
    right_answers: RightAnswers,
    progress: Progress,
) -> TextQueries | None:
    """Encode texts of foreign subjects, which no photo of a split matches; None without any."""
    made = list(foreign_texts(records))
    right = right_answers([text for _, text in made], records)
    made = [each for each, of_text in zip(made, right, strict=True) if not of_text.any()]
    if not made:
        return None
    return TextQueries(
        encoded=encode_captions(model, [text for _, text in made], progress),
        right=np.zeros((len(made), len(records)), dtype=np.bool_),
        groups=np.array([number for number, _ in made], dtype=np.int64),
    )


def foreign_texts(records: Sequence[Record]) -> Iterator[tuple[int, str]]:
    """Yield texts with a noun that no caption has, with a number for the subject."""
    said = [meanings_of(text) for record in records for text in record.captions]
    known = {word for of_text in said for phrase in of_text for word in phrase}
    for number, subject in enumerate(_SUBJECTS):
        for way in _WAYS:
            text = way.format(subject)
            if any(phrase.noun not in known for phrase in find_phrases(text)):
                yield number, text


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
