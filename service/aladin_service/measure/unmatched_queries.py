"""Text queries that nothing in a split matches: exchanged words, and foreign subjects.

Captions whose photo is taken out are the hard kind: other photos often show nearly the same. The
two kinds here are made of words:

* near: a caption of the split with one noun or colour exchanged for another of its kind, so that
  all but one of its words describe its photo;
* far: captions of the demo's drawn scenes, and descriptions of subjects that photos of everyday
  life rarely show; only those with a noun that no caption of the split has.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from aladin_network.calibration.examples import AskedQuery
from aladin_network.calibration.features import CandidateScores
from aladin_network.calibration.measures import NoMatchKind
from aladin_network.model import AladinModel
from aladin_network.scoring.correction import HubCorrection
from aladin_network.scoring.scores import EncodedBatch
from aladin_network.types import Progress
from aladin_service.measure.calibration_split import PairScores, RightAnswers, asked_query
from aladin_training.data import Record
from aladin_training.data.phrases import find_phrases, meanings_of
from aladin_training.demo.scenes import describe_scenes
from aladin_training.evaluation import encode_captions

# Words of one line are exchanged for each other. Words that can be true of the same thing (a boy is
# a child, a jacket may be called a coat) are never in one line.
_THINGS_AND_COLOURS = """
    black white red blue green yellow pink orange brown purple grey
    dog cat horse cow elephant monkey goat bear duck
    dogs cats horses cows elephants monkeys goats bears ducks
    man woman
    men women
    boy girl
    boys girls
    ball frisbee stick kite balloon umbrella guitar bucket
    shirt coat dress sweater skirt
    hat helmet scarf tie backpack
    bike bicycle skateboard motorcycle car bus train boat truck
    beach street snow grass forest desert kitchen
    ocean mountain city field road pool park lake river
    soccer tennis basketball baseball hockey golf
    chair bench table bed couch
    swimming climbing skating cooking reading painting
"""
_WORD = re.compile(r"[a-z]+", re.IGNORECASE)


def _kinds(lines: str) -> dict[str, tuple[str, ...]]:
    kinds = [tuple(line.split()) for line in lines.strip().splitlines()]
    return {word: kind for kind in kinds for word in kind}


_KIND_OF = _kinds(_THINGS_AND_COLOURS)

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
# Drawn scenes whose captions are used.
_SCENES = 80


@dataclass(frozen=True, kw_only=True)
class UnmatchedQueries:
    """Text queries that no photo of a split matches.

    Attributes:
        texts: The queries.
        kinds: (queries,) kind of each.
        photos: (queries,) int64; of a near query the row of the photo whose caption was changed.
            Far queries about the same subject share a number.
        encoded: Their encodings.
    """

    texts: Sequence[str]
    kinds: Sequence[NoMatchKind]
    photos: NDArray[np.int64]
    encoded: EncodedBatch


def near_texts(records: Sequence[Record]) -> Iterator[tuple[int, str]]:
    """Yield one changed caption for each photo that has one, with the photo's row."""
    for row, record in enumerate(records):
        captions = list(record.captions)
        generator = random.Random(captions[0])
        generator.shuffle(captions)
        changed = (exchange_word(caption, record.captions, generator) for caption in captions)
        text = next(filter(None, changed), None)
        if text is not None:
            yield row, text


def far_texts(records: Sequence[Record]) -> Iterator[tuple[int, str]]:
    """Yield texts with a noun that no caption has, with a number for the subject."""
    said = [meanings_of(text) for record in records for text in record.captions]
    known = {word for of_text in said for phrase in of_text for word in phrase}
    drawn = list(enumerate(describe_scenes(_SCENES)))
    named = [(len(drawn) + k, [way.format(of) for way in _WAYS]) for k, of in enumerate(_SUBJECTS)]
    for number, texts in [*drawn, *named]:
        for text in texts:
            nouns = (phrase.noun for phrase in find_phrases(text))
            if any(noun not in known for noun in nouns):
                yield number, text


def encode_unmatched_queries(
    model: AladinModel,
    records: Sequence[Record],
    right_answers: RightAnswers,
    progress: Progress,
) -> UnmatchedQueries | None:
    """Make and encode the queries that no photo of a split matches.

    Args:
        model: The network.
        records: Photos with captions.
        right_answers: Tells which photos are right for a text; queries that are right for one are
            left out.
        progress: Receives the number of encoded texts.

    Returns:
        None if there are none.
    """
    # Numbers beyond those of the photos would be photos of which nothing is known.
    asked: list[tuple[NoMatchKind, int, str]] = []
    for row, text in near_texts(records):
        asked.append(("near", row, text))
    for number, text in far_texts(records):
        asked.append(("far", number % len(records), text))
    right = right_answers([text for *_, text in asked], records)
    made = [each for each, of_text in zip(asked, right, strict=True) if not of_text.any()]
    if not made:
        return None
    texts = [text for *_, text in made]
    return UnmatchedQueries(
        texts=texts,
        kinds=[kind for kind, *_ in made],
        photos=np.array([photo for _, photo, _ in made], dtype=np.int64),
        encoded=encode_captions(model, texts, progress),
    )


@torch.inference_mode()
def ask_unmatched(
    model: AladinModel,
    images: EncodedBatch,
    queries: UnmatchedQueries,
    num_candidates: int,
    correction: HubCorrection | None = None,
) -> list[AskedQuery]:
    """Score all pairs of the split's photos and the queries.

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
    photos, nothing = np.arange(len(match)), np.zeros(len(match), dtype=np.bool_)
    return [
        asked_query(
            photo,
            CandidateScores(photos, match[:, row], align[:, row], np.full(len(photos), words[row])),
            nothing,
            num_candidates,
        )._replace(has_match=False, kind=kind, embedding=queries.encoded.embedding[row].numpy())
        for row, (photo, kind) in enumerate(
            zip(queries.photos.tolist(), queries.kinds, strict=True)
        )
    ]


def exchange_word(caption: str, captions: Sequence[str], generator: random.Random) -> str | None:
    """Exchange one word of a caption for one that no caption of its photo mentions.

    Args:
        caption: Caption to change.
        captions: All captions of its photo.
        generator: Source of all choices.

    Returns:
        None if the caption has no word of the lists.
    """
    said = {word.lower() for text in captions for word in _WORD.findall(text)}
    found = [word for word in _WORD.finditer(caption) if word.group().lower() in _KIND_OF]
    generator.shuffle(found)
    for word in found:
        others = [each for each in _KIND_OF[word.group().lower()] if each not in said]
        if others:
            return caption[: word.start()] + generator.choice(others) + caption[word.end() :]
    return None
