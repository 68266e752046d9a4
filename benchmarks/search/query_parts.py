"""Measures queries of several parts on photos with captions: "A, not B", and feedback.

    python -m benchmarks.search.query_parts INDEX DATA.jsonl [--split S] [--queries 1000] [--seed 0]

INDEX holds the photos of DATA, in files. What a photo shows is read from its captions: it has A if
the phrases of A are parts of phrases in them, it has B if two of them name it, and it lacks B if
none mentions it.

A is a text shorter than a caption that is drawn from one, B a noun. Both are drawn at random from
pairs for which at least ten photos have A, at least five of these B, and at least five lack it.

alone, not, not_2, not_4   A alone, and "A, not B" with B's weight: `right`, the share of the first
          five hits that have A and lack B (with at least five such photos their R@5), `has_a`, and
          the shares of queries whose first five hits have no B (`free`), and with no B above the
          first right hit (`first`)
bound     the same for A alone without the photos whose captions mention B: what knowing B would do
seen      the same for queries whose B at least two of the first five hits for A alone have, as if
          somebody saw it there: `seen_alone`, `seen_not`
unmentioned   of the photos that one caption says to have B, the share that the others do not say
negated   "A without B" or "A, no B", where A is a caption, B a noun that no caption of its photo
          mentions, and that a photo with the same first noun has: the share of queries with the
          caption's photo among the first five hits (`r5`), and with a photo that has B (`with_b`),
          for A alone, for the sentence as a text, and for it split as answers suggest
          (`aladin_index.search.negation`); `split_found` is the share that can be split
feedback  A, of whose first twenty hits the first three right and the first three wrong ones are
          marked: right ones among the next twenty hits without marks (`next_right`), and how many
          times as many with them: `ours`, the queries of qdrant-edge-py that take marks (by the
          same embeddings; with its coefficients a, b, c), and `all_labels`, a linear classifier of
          the embeddings that learns from the captions of all other photos, in five parts
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from aladin_index.open import open_backend
from aladin_index.search.backend import EncodedQuery
from aladin_index.search.live_collection import LiveCollection
from aladin_index.search.negation import suggest_split
from aladin_index.search.options import SearchOptions
from aladin_index.search.searcher import TwoStageSearcher
from aladin_service.search.encoder import QueryEncoder
from aladin_service.search.job import ItemQuery, PartsQuery, QueryPart, TextQuery
from aladin_service.search.parts import encode_any
from aladin_service.settings import QueryLimits
from aladin_training.data import read_records
from benchmarks.lib.output import figures_parser, print_figures
from benchmarks.search.drawn_queries import (
    LEAST_NAMED,
    PAGE,
    NegatedQuery,
    NotQuery,
    Photo,
    draw_negated,
    draw_queries,
    splitting_nouns,
    unmentioned,
)
from benchmarks.search.feedback import SEEN, Ratios, mark, open_qdrant, rank_by_labels

# Ways to ask for "A without B": not at all, as it is written, and as two parts.
_WAYS = ("affirmative", "sentence", "split")
_WEIGHTS = {"not": 1.0, "not_2": 2.0, "not_4": 4.0}
_DEEP = 100  # hits that are looked through for the first right one
_SEEN_B = 2


class Measured:
    """Searches of an index, by the ids of the hits."""

    def __init__(self, searcher: TwoStageSearcher, encoder: QueryEncoder) -> None:
        """Search with texts that `encoder` encodes."""
        self._searcher = searcher
        self._encode = partial(encode_any, encoder, searcher)

    def hits(self, query: TextQuery | PartsQuery, k: int = PAGE) -> list[str]:
        """Return the ids of the first hits."""
        answer = self._searcher.search(self._encode(query), "images", SearchOptions(k=k))
        return [hit.id for hit in answer.hits]

    def without(
        self, asked: NotQuery, photos: dict[str, Photo], weight: float | None = None
    ) -> list[float]:
        """Return the four figures of a query.

        Args:
            asked: The query.
            photos: What the photos show.
            weight: Weight of "not B", or None for A alone.
        """
        query: TextQuery | PartsQuery = TextQuery(asked.text)
        if weight is not None:
            unwanted = QueryPart(TextQuery(asked.without), "not", weight)
            query = PartsQuery((QueryPart(query, "all"), unwanted))
        return judge(self.hits(query, _DEEP), asked, photos)

    def bound(self, asked: NotQuery, photos: dict[str, Photo]) -> list[float]:
        """Return the four figures of A alone without the photos that mention B."""
        hits = self.hits(TextQuery(asked.text), _DEEP)
        kept = [hit for hit in hits if asked.without not in photos[hit].mentioned]
        return judge(kept, asked, photos)

    def seen(
        self, asked: NotQuery, photos: dict[str, Photo], generator: random.Random
    ) -> NotQuery | None:
        """Draw another B that several of the first hits for A alone have; None without any."""
        first = self.hits(TextQuery(asked.text))
        nouns = [
            noun
            for noun in splitting_nouns(asked.text, sorted(asked.has_a), photos)
            if sum(photos[hit].named[noun] >= LEAST_NAMED for hit in first) >= _SEEN_B
        ]
        return asked._replace(without=generator.choice(nouns)) if nouns else None

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
            has_b = any(photos[hit].named[asked.without] >= LEAST_NAMED for hit in hits)
            figures += [asked.photo in hits, has_b]
        return [*figures, suggested is not None]

    def feedback(self, texts: dict[str, frozenset[str]]) -> dict[str, float]:
        """Return the figures of relevance feedback.

        Args:
            texts: Queries, with the ids of the right photos.
        """
        photos = self._searcher.index.side("images")
        assert isinstance(photos, LiveCollection)  # the benchmark takes an index in files
        ids = [item.id for item in photos.items.by_rows(range(photos.count))]
        embeddings = photos.embeddings(list(range(len(ids))))
        ratios = Ratios()
        with open_qdrant(ids, embeddings) as qdrant:
            for text, right in texts.items():
                marks = mark(self.hits(TextQuery(text), 2 * SEEN), right)
                if marks is None:
                    continue
                ratios.start(marks, right)
                parts = [QueryPart(TextQuery(text), "all")]
                parts += [QueryPart(ItemQuery(each), "like") for each in marks.likes]
                parts += [QueryPart(ItemQuery(each), "unlike") for each in marks.unlikes]
                ratios.add("ours", self.hits(PartsQuery(tuple(parts)), 3 * SEEN))
                if qdrant is not None:
                    words = self._encode(TextQuery(text))
                    assert isinstance(words, EncodedQuery)  # of one part
                    embedding = words.encoding.embedding[0]
                    for name, hits in qdrant.searches(embedding, marks, 3 * SEEN):
                        ratios.add(name, hits)
                ratios.add("all_labels", rank_by_labels(ids, embeddings, right))
        return ratios.figures()


def judge(hits: Sequence[str], asked: NotQuery, photos: dict[str, Photo]) -> list[float]:
    """Return `right`, `has_a`, `free` and `first` of a query's hits, best first."""
    lacks = [asked.without not in photos[hit].mentioned for hit in hits]
    has_b = [photos[hit].named[asked.without] >= LEAST_NAMED for hit in hits]
    has_a = [hit in asked.has_a for hit in hits]
    right = [a and b for a, b in zip(has_a, lacks, strict=True)]
    first_right = right.index(True) if True in right else len(hits)
    return [
        sum(right[:PAGE]) / PAGE,
        sum(has_a[:PAGE]) / PAGE,
        not any(has_b[:PAGE]),
        not any(has_b[:first_right]) and first_right < len(hits),
    ]


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
        figures |= _means("alone", [measured.without(query, photos) for query in drawn])
        for name, weight in _WEIGHTS.items():
            figures |= _means(name, [measured.without(query, photos, weight) for query in drawn])
        figures |= _means("bound", [measured.bound(query, photos) for query in drawn])
        generator = random.Random(seed)
        each = (measured.seen(query, photos, generator) for query in drawn)
        seen = [query for query in each if query is not None]
        figures["seen_queries"] = len(seen)
        figures |= _means("seen_alone", [measured.without(query, photos) for query in seen])
        figures |= _means("seen_not", [measured.without(query, photos, 1.0) for query in seen])
        figures["unmentioned"] = unmentioned(records, [query.without for query in drawn])
        negated = draw_negated(records, photos, queries, seed)
        rows = [measured.negated(query, photos) for query in negated]
        names = [f"{way}_{n}" for way in _WAYS for n in ("r5", "with_b")]
        figures["negated_queries"] = len(negated)
        figures |= dict(zip([*names, "split_found"], np.mean(rows, axis=0).tolist(), strict=True))
        texts = {query.text: query.has_a for query in drawn if len(query.has_a) >= 2 * SEEN}
        return figures | measured.feedback(texts)


def _means(name: str, rows: Sequence[Sequence[float]]) -> dict[str, float]:
    """Return the means of the four figures of some queries."""
    means = np.mean(rows, axis=0).tolist() if rows else [float("nan")] * 4
    names = ("right", "has_a", "free", "first")
    return {f"{name}_{each}": mean for each, mean in zip(names, means, strict=True)}


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
