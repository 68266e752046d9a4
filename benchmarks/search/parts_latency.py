"""Times queries of several parts, and searches by words, beside a text query of the same index.

    python -m benchmarks.search.parts_latency --items 100000 [--json] [--keep DIR]

The photos and the texts are those of `benchmarks.search.scale`: made from real encodings, 49
regions each, int8 tokens; texts are encoded already. Searches take turns, on one thread, so that
other load slows all of them alike.

text        one text, 100 candidates: what the others are compared with
two         two texts that hits have
not         a text that hits have, and one that they do not have
not_three   the same with three that they do not have
feedback    a text, three items that hits are like and three that they are unlike
lexical     a text with its words as well; each photo has twelve words, drawn like those of a
            language from 20,000, and so has each text

NAME_p50_ms     median time of both stages and the look-up of ten hits
NAME_over_text  that time, divided by that of the text query
read_words_s    reading the words of all photos once, in the first search by words
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from aladin_index.generations.reader import open_index
from aladin_index.items.store import ItemStore
from aladin_index.items.tables import StoredItem
from aladin_index.items.words import WordIndex
from aladin_index.search.backend import EncodedPart, EncodedParts, EncodedQuery
from aladin_index.search.live_collection import LiveCollection
from aladin_index.search.options import SearchOptions
from aladin_index.search.results import Role, SearchAnswer
from aladin_index.search.searcher import TwoStageSearcher
from benchmarks.lib.measuring import ratio, time_in_turn, use_one_thread
from benchmarks.lib.output import figures_parser, print_figures
from benchmarks.lib.processes import in_fresh_process
from benchmarks.lib.small_collection import text_encoding
from benchmarks.lib.synthetic import SyntheticPhotos, TextQueries
from benchmarks.lib.synthetic_sources import find_source
from benchmarks.search.scale import QUICK_ITEMS, build

_CANDIDATES, _HITS = 100, 10
_SEARCHES, _QUICK_SEARCHES = 300, 20
_VOCABULARY, _WORDS_EACH = 20_000, 12


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the measurements, and print the figures."""
    parser = figures_parser(__doc__, "2,000 photos, a few seconds")
    parser.add_argument("--items", type=int, default=100_000, help="number of photos")
    parser.add_argument("--source", type=Path, metavar="INDEX", help="index of real photos")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="folder to keep the index in")
    options = parser.parse_args(arguments)
    items = QUICK_ITEMS if options.quick else options.items
    searches = _QUICK_SEARCHES if options.quick else _SEARCHES
    figures = measure(items, searches, options.source, options.keep)
    print_figures(figures, as_json=options.json)


def measure(
    items: int, searches: int, source: Path | None = None, keep: Path | None = None
) -> dict[str, Any]:
    """Build the index if it is not there, and search it, each in a process of its own.

    Args:
        items: Number of photos.
        searches: Number of searches of each kind.
        source: Index of real photos, or None for the choice of `find_source`.
        keep: Folder for the index, or None for a temporary one.
    """
    place = tempfile.TemporaryDirectory() if keep is None else nullcontext(keep)
    with place as folder:
        root = Path(folder) / "index"
        if not (root / "CURRENT").exists():
            in_fresh_process(build, root, items, "int8", "auto", source)
        return {"items": items} | in_fresh_process(search, root, items, searches, source)


def search(root: Path, items: int, searches: int, source: Path | None) -> dict[str, Any]:
    """Time the searches of an index."""
    use_one_thread()
    photos = SyntheticPhotos(find_source(source).divided()[1])
    queries = photos.queries(searches + 10, items, seed=1)
    del photos
    with closing(open_index(root)) as index:
        kinds = Searches(TwoStageSearcher(index), queries)
        began = time.perf_counter()
        kinds.by_words(0)
        read_s = time.perf_counter() - began
        times = time_in_turn(kinds.runs(), searches)
    medians = {f"{name}_p50_ms": float(np.median(each)) for name, each in times.items()}
    ratios = {f"{name}_over_text": ratio(times, name, "text") for name in times if name != "text"}
    return medians | ratios | {"read_words_s": read_s}


class Searches:
    """Searches of each kind, by the number of their turn."""

    def __init__(self, searcher: TwoStageSearcher, queries: TextQueries) -> None:
        """Search with encoded texts; photos get words of their own, in memory alone."""
        self._searcher = searcher
        self._encodings = [
            text_encoding(embedding, words)
            for embedding, words in zip(queries.embeddings, queries.words, strict=True)
        ]
        self._photos = queries.photos.tolist()
        collection = searcher.index.side("images")
        assert isinstance(collection, LiveCollection)  # the benchmark builds an index in files
        collection.base.items.words = _drawn_words(collection.base.items)

    def runs(self) -> dict[str, Callable[[int], object]]:
        """Return the searches by the names of the figures."""
        return {
            "text": lambda turn: self._find(self._text(turn)),
            "two": lambda turn: self._find_parts(turn, ("all", "all")),
            "not": lambda turn: self._find_parts(turn, ("all", "not")),
            "not_three": lambda turn: self._find_parts(turn, ("all", "not", "not", "not")),
            "feedback": lambda turn: self._find_parts(turn, ("all",), examples=3),
            "lexical": self.by_words,
        }

    def by_words(self, turn: int) -> SearchAnswer:
        """Search with a text and its words."""
        query = EncodedQuery(self._encoding(turn), "text", text=_sentence(-1 - turn))
        return self._find(query, lexical=1.0)

    def _text(self, turn: int) -> EncodedQuery:
        return EncodedQuery(self._encoding(turn), "text")

    def _encoding(self, turn: int) -> Any:
        return self._encodings[turn % len(self._encodings)]

    def _find_parts(self, turn: int, roles: Sequence[Role], examples: int = 0) -> SearchAnswer:
        parts = [EncodedPart(self._text(turn + place), role) for place, role in enumerate(roles)]
        following = (self._photos[(turn + place) % len(self._photos)] for place in range(20))
        photos = list(dict.fromkeys(following))
        kinds: tuple[Role, ...] = ("like", "unlike")
        for place, role in enumerate(kinds):
            for photo in photos[place * examples : (place + 1) * examples]:
                parts.append(EncodedPart(self._searcher.stored_query(f"photo-{photo}"), role))
        return self._find(EncodedParts(tuple(parts)))

    def _find(
        self, query: EncodedQuery | EncodedParts, lexical: float | None = None
    ) -> SearchAnswer:
        options = SearchOptions(k=_HITS, candidates=_CANDIDATES, lexical=lexical)
        return self._searcher.search(query, "images", options)


def _drawn_words(store: ItemStore) -> WordIndex:
    """Return the words of items of which each has a sentence of its own."""

    def by_rows(rows: Sequence[int]) -> list[StoredItem]:
        return [item._replace(text=_sentence(item.row)) for item in store.by_rows(rows)]

    return WordIndex(by_rows)


def _sentence(number: int) -> str:
    """Return words whose frequencies fall with their rank, as those of a language do."""
    generator = np.random.default_rng([0, abs(number), int(number < 0)])
    ranks = np.exp(generator.uniform(0, np.log(_VOCABULARY), _WORDS_EACH)).astype(int)
    return " ".join(f"word{rank}" for rank in ranks)


if __name__ == "__main__":
    main()
