"""Measures queries of several parts on photos with captions: "A, not B", and feedback.

    python -m benchmarks.search.query_parts INDEX DATA.jsonl [--split S] [--queries 1000] [--seed 0]

INDEX holds the photos of DATA. What a photo shows is read from its captions: it has A if the
phrases of A are parts of phrases in them, it has B if two of them name it, and it lacks B if none
mentions it.

A is a text shorter than a caption that is drawn from one, B a noun. Both are drawn at random from
pairs for which at least ten photos have A, at least five of these B, and at least five lack it.

not       A alone and "A, not B": `right`, the share of the first five hits that have A and lack B
          (with at least five such photos their R@5), `has_a`, and the shares of queries whose
          first five hits have no B (`free`), and with no B above the first right hit (`first`)
negated   "A without B" or "A, no B", where A is a caption, B a noun that no caption of its photo
          mentions, and that a photo with the same first noun has: the share of queries with the
          caption's photo among the first five hits (`r5`), and with a photo that has B (`with_b`),
          for A alone, for the sentence as a text, and for it split as answers suggest
          (`aladin_index.search.negation`); `split_found` is the share that can be split
feedback  A, of whose first twenty hits the first three right and the first three wrong ones are
          marked: right ones among the next twenty hits, without and with the marks, and their ratio
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.open import open_backend
from aladin_index.search.negation import NEGATION_WORD, suggest_split
from aladin_index.search.options import SearchOptions
from aladin_index.search.searcher import TwoStageSearcher
from aladin_service.search.encoder import QueryEncoder
from aladin_service.search.job import ItemQuery, PartsQuery, QueryPart, TextQuery
from aladin_service.search.parts import encode_any
from aladin_service.settings import QueryLimits
from aladin_training.data import read_records
from aladin_training.data.phrases import Wording, draw_short_text, find_phrases, meanings_of
from aladin_training.data.records import Record
from benchmarks.lib.output import figures_parser, print_figures

_PAGE = 5
_LEAST_WITH_A = 10
_LEAST_NAMED = 2
_MARKED = 3
_SEEN = 20
# Ways to ask for "A without B": not at all, as it is written, and as two parts.
_WAYS = ("affirmative", "sentence", "split")


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
        if captions >= _LEAST_NAMED
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
        having = Counter(n for each in has_a for n, c in photos[each].named.items() if c > 1)
        mentioned = Counter(word for each in has_a for word in photos[each].mentioned)
        splitting = [
            noun
            for noun in common
            if having[noun] >= _PAGE
            and len(has_a) - mentioned[noun] >= _PAGE
            and not any(noun in meaning for meaning in meanings)
        ]
        if splitting:
            without = generator.choice(splitting)
            found.setdefault((text.lower(), without), NotQuery(text, without, frozenset(has_a)))
        if len(found) == count:
            break
    return list(found.values())


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
        nouns = {noun for noun, captions in photo.named.items() if captions >= _LEAST_NAMED}
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


class Measured:
    """Searches of an index, by the ids of the hits."""

    def __init__(self, searcher: TwoStageSearcher, encoder: QueryEncoder) -> None:
        """Search with texts that `encoder` encodes."""
        self._searcher = searcher
        self._encode = partial(encode_any, encoder, searcher)

    def hits(self, query: TextQuery | PartsQuery, k: int = _PAGE) -> list[str]:
        """Return the ids of the first hits."""
        answer = self._searcher.search(self._encode(query), "images", SearchOptions(k=k))
        return [hit.id for hit in answer.hits]

    def without(self, asked: NotQuery, *, excludes: bool, photos: dict[str, Photo]) -> list[float]:
        """Return the four figures of a query.

        Args:
            asked: The query.
            excludes: Whether "not B" is a part of it.
            photos: What the photos show.
        """
        query: TextQuery | PartsQuery = TextQuery(asked.text)
        if excludes:
            unwanted = QueryPart(TextQuery(asked.without), "not")
            query = PartsQuery((QueryPart(query, "all"), unwanted))
        hits = self.hits(query, 100)
        lacks = [asked.without not in photos[hit].mentioned for hit in hits]
        has_b = [photos[hit].named[asked.without] >= _LEAST_NAMED for hit in hits]
        has_a = [hit in asked.has_a for hit in hits]
        right = [a and b for a, b in zip(has_a, lacks, strict=True)]
        first_right = right.index(True) if True in right else len(hits)
        return [
            sum(right[:_PAGE]) / _PAGE,
            sum(has_a[:_PAGE]) / _PAGE,
            not any(has_b[:_PAGE]),
            not any(has_b[:first_right]) and first_right < len(hits),
        ]

    def negated(self, asked: NegatedQuery, photos: dict[str, Photo]) -> list[float]:
        """Return `r5` and `with_b` of the three ways, and whether the sentence can be split.

        Args:
            asked: The query.
            photos: What the photos show.
        """
        whole = TextQuery(asked.sentence)
        suggested = suggest_split(asked.sentence)
        split: TextQuery | PartsQuery = whole
        if suggested is not None:
            parts = [QueryPart(TextQuery(part.text), part.role) for part in suggested]
            split = PartsQuery(tuple(parts))
        figures: list[float] = []
        for query in (TextQuery(asked.text), whole, split):
            hits = self.hits(query)
            has_b = any(photos[hit].named[asked.without] >= _LEAST_NAMED for hit in hits)
            figures += [asked.photo in hits, has_b]
        return [*figures, suggested is not None]

    def feedback(self, text: str, right: frozenset[str]) -> tuple[int, int] | None:
        """Return the numbers of right hits among the next ones, without and with marks.

        Args:
            text: The query.
            right: Ids of the right photos.

        Returns:
            None if the first hits have too few right or wrong ones.
        """
        hits = self.hits(TextQuery(text), 2 * _SEEN)
        seen, after = hits[:_SEEN], hits[_SEEN:]
        likes = [hit for hit in seen if hit in right][:_MARKED]
        unlikes = [hit for hit in seen if hit not in right][:_MARKED]
        if len(likes) < _MARKED or len(unlikes) < _MARKED:
            return None
        parts = [QueryPart(TextQuery(text), "all")]
        parts += [QueryPart(ItemQuery(each), "like") for each in likes]
        parts += [QueryPart(ItemQuery(each), "unlike") for each in unlikes]
        marked = [hit for hit in self.hits(PartsQuery(tuple(parts)), 3 * _SEEN) if hit not in seen]
        return len(right.intersection(after)), len(right.intersection(marked[:_SEEN]))


def measure(
    index: Path, data: Path, split: str | None = None, queries: int = 1000, seed: int = 0
) -> dict[str, Any]:
    """Return all figures.

    Args:
        index: Index of the photos.
        data: Their captions.
        split: Split of the data that is indexed, or None for all.
        queries: Number of queries.
        seed: Seed of their choice.
    """
    with closing(open_backend(index)) as opened, closing(QueryEncoder(QueryLimits())) as encoder:
        measured = Measured(TwoStageSearcher(opened), encoder)
        records = read_records(data, split)
        photos = {record.id: Photo.of(record.captions) for record in records}
        drawn = draw_queries(records, photos, queries, seed)
        figures: dict[str, Any] = {"photos": len(photos), "queries": len(drawn)}
        for name, excludes in (("alone", False), ("not", True)):
            each = [measured.without(q, excludes=excludes, photos=photos) for q in drawn]
            means = np.mean(each, axis=0).tolist()
            names = ("right", "has_a", "free", "first")
            figures |= {f"{name}_{n}": mean for n, mean in zip(names, means, strict=True)}
        negated = draw_negated(records, photos, queries, seed)
        each = [measured.negated(query, photos) for query in negated]
        names = [f"{way}_{n}" for way in _WAYS for n in ("r5", "with_b")]
        figures["negated_queries"] = len(negated)
        figures |= dict(zip([*names, "split_found"], np.mean(each, axis=0).tolist(), strict=True))
        texts = {query.text: query.has_a for query in drawn if len(query.has_a) >= 2 * _SEEN}
        counts = [found for each in texts.items() if (found := measured.feedback(*each))]
        next_right: NDArray[np.float64] = np.mean(counts, axis=0) if counts else np.full(2, np.nan)
        figures |= {
            "feedback_texts": len(counts),
            "next_right_unmarked": float(next_right[0]),
            "next_right_marked": float(next_right[1]),
            "feedback_ratio": float(next_right[1] / next_right[0]),
        }
        return figures


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the measurements, and print them."""
    parser = figures_parser(__doc__)
    parser.add_argument("index", type=Path, help="index of the photos")
    parser.add_argument("data", type=Path, help="JSONL of the photos with captions")
    parser.add_argument("--split", help="split that is indexed; by default all")
    parser.add_argument("--queries", type=int, default=1000, help="queries to draw")
    parser.add_argument("--seed", type=int, default=0, help="seed of the drawn queries")
    options = parser.parse_args(arguments)
    figures = measure(options.index, options.data, options.split, options.queries, options.seed)
    print_figures(figures, as_json=options.json)


if __name__ == "__main__":
    main()
