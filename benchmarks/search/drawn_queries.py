"""Queries that say no, drawn from captions: "A, not B", and captions with something negated.

What a photo shows is read from its captions: it has A if the phrases of A are parts of phrases in
them, it has B if two of them name it, and it lacks B if none mentions it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from aladin_index.search.negation import NEGATION_WORD
from aladin_training.data.phrases import Wording, draw_short_text, find_phrases, meanings_of
from aladin_training.data.records import Record

PAGE = 5  # Hits that are looked at; so many photos at least have A and B, and A without B.
_LEAST_WITH_A = 10
LEAST_NAMED = 2


class Photo(NamedTuple):
    """What the captions of a photo say.

    Attributes:
        wording: Their phrases.
        mentioned: Words of the phrases, plural nouns as singular ones.
        named: Number of captions that have a noun.
    """

    wording: Wording
    mentioned: frozenset[str]
    named: Counter[str]

    @classmethod
    def of(cls, captions: Sequence[str]) -> Photo:
        """Read the captions of a photo."""
        phrases = [find_phrases(caption) for caption in captions]
        words = (word for found in phrases for phrase in found for word in phrase.meaning)
        nouns = (
            {word for phrase in found for word in phrase._replace(words=phrase.words[-1:]).meaning}
            for found in phrases
        )
        return cls(Wording(captions), frozenset(words), Counter(w for each in nouns for w in each))


class NotQuery(NamedTuple):
    """A text with something that hits must not have: "A, not B".

    Attributes:
        text: A.
        without: B.
        has_a: Ids of the photos that have A.
    """

    text: str
    without: str
    has_a: frozenset[str]


def draw_queries(
    records: Sequence[Record], photos: dict[str, Photo], count: int, seed: int
) -> list[NotQuery]:
    """Draw queries from the captions; fewer if there are not enough different ones.

    Args:
        records: Photos with captions.
        photos: What the captions say, by id.
        count: Number of queries.
        seed: Seed of all choices.
    """
    generator = random.Random(seed)
    nouns = Counter(
        noun
        for photo in photos.values()
        for noun, captions in photo.named.items()
        if captions >= LEAST_NAMED
    )
    common = sorted(noun for noun, number in nouns.items() if number >= _LEAST_WITH_A)
    found: dict[tuple[str, str], NotQuery] = {}
    for _ in range(100 * count):
        text = draw_short_text(generator.choice(generator.choice(records).captions), generator)
        meanings = meanings_of(text or "")
        if text is None or not meanings:
            continue
        has_a = [item_id for item_id, photo in photos.items() if photo.wording.holds(meanings)]
        if len(has_a) < _LEAST_WITH_A:
            continue
        splitting = splitting_nouns(text, has_a, photos, common)
        if splitting:
            without = generator.choice(splitting)
            found.setdefault((text.lower(), without), NotQuery(text, without, frozenset(has_a)))
        if len(found) == count:
            break
    return list(found.values())


def splitting_nouns(
    text: str,
    has_a: Sequence[str],
    photos: dict[str, Photo],
    common: Sequence[str] | None = None,
) -> list[str]:
    """Return the nouns that enough photos which have A have, and enough lack.

    Args:
        text: A.
        has_a: Ids of the photos that have A.
        photos: What the captions say, by id.
        common: Nouns to choose from, or None for all.
    """
    meanings = meanings_of(text)
    having = Counter(n for each in has_a for n, c in photos[each].named.items() if c > 1)
    mentioned = Counter(word for each in has_a for word in photos[each].mentioned)
    return [
        noun
        for noun in (sorted(having) if common is None else common)
        if having[noun] >= PAGE
        and len(has_a) - mentioned[noun] >= PAGE
        and not any(noun in meaning for meaning in meanings)
    ]


def unmentioned(records: Sequence[Record], nouns: Sequence[str]) -> float:
    """Return how often a photo that one caption says to have a noun has no other that mentions it.

    Args:
        records: Photos with captions.
        nouns: Nouns, each as often as it counts.
    """
    wanted = Counter(nouns)
    named: Counter[str] = Counter()
    alone: Counter[str] = Counter()
    for record in records:
        each = [Photo.of([caption]) for caption in record.captions]
        for place, photo in enumerate(each):
            others = [other for number, other in enumerate(each) if number != place]
            for noun in photo.named.keys() & wanted.keys():
                named[noun] += 1
                alone[noun] += not any(noun in other.mentioned for other in others)
    shares = [(alone[noun] / named[noun], count) for noun, count in wanted.items() if named[noun]]
    return sum(share * count for share, count in shares) / max(sum(wanted.values()), 1)


class NegatedQuery(NamedTuple):
    """A caption, and a sentence that negates something besides.

    Attributes:
        text: A, the caption.
        sentence: The caption and what hits must not have.
        without: B.
        photo: Id of the caption's photo, which lacks B.
    """

    text: str
    sentence: str
    without: str
    photo: str


def draw_negated(
    records: Sequence[Record], photos: dict[str, Photo], count: int, seed: int
) -> list[NegatedQuery]:
    """Draw captions with something to negate; fewer if there are not enough different ones.

    Args:
        records: Photos with captions.
        photos: What the captions say, by id.
        count: Number of queries.
        seed: Seed of all choices.
    """
    generator = random.Random(seed)
    having: dict[str, set[str]] = {}  # nouns, by a noun of the same photo
    for photo in photos.values():
        nouns = {noun for noun, captions in photo.named.items() if captions >= LEAST_NAMED}
        for noun in nouns:
            having.setdefault(noun, set()).update(nouns)
    found: dict[tuple[str, str], NegatedQuery] = {}
    for _ in range(100 * count):
        record = generator.choice(records)
        text = generator.choice(record.captions).strip(" .")
        phrases = find_phrases(text)
        if not phrases or NEGATION_WORD.search(text):
            continue
        near = sorted(having.get(phrases[0].noun, set()) - photos[record.id].mentioned)
        if not near:
            continue
        without = generator.choice(near)
        negation = generator.choice((f" without {_with_article(without)}", f", no {without}"))
        query = NegatedQuery(text, text + negation, without, record.id)
        found.setdefault((text.lower(), without), query)
        if len(found) == count:
            break
    return list(found.values())


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
