"""Measures searches by words as well: rare names, captions, and time.

    python -m benchmarks.search.lexical INDEX DATA.jsonl [--split val] [--items 100000] [--json]

INDEX holds the photos of DATA, each with its first caption as its text, which is searched.

names     every photo gets a made-up name in its metadata, its caption or its file name (in memory,
          the index is not changed): the share of the queries "NAME" and "a photo of NAME" whose
          first hit is its photo
captions  the captions of DATA but the first, which is the photo's own text: the sum of R@1, R@5 and
          R@10 in percent by weight of the words; `same_without_text` says whether all photos are
          found at the same places with weight 1 as without words where photos have no text
ms        the median time of a caption's search by weight 0 and 1, at the index's size; and with
          the captions repeated for `--items` photos, the seconds of reading their words once and
          the milliseconds of a look-up
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from aladin_index.items.store import ItemStore
from aladin_index.items.tables import StoredItem
from aladin_index.items.words import WordIndex, words_of
from aladin_index.open import open_backend
from aladin_index.search.backend import EncodedQuery
from aladin_index.search.live_collection import LiveCollection
from aladin_index.search.options import SearchOptions
from aladin_index.search.searcher import TwoStageSearcher
from aladin_service.search.encoder import QueryEncoder
from aladin_service.search.job import TextQuery
from aladin_service.settings import QueryLimits
from aladin_training.data import read_records
from benchmarks.lib.output import figures_parser, print_figures

_WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 1.0)
_FORMS = {"alone": "{}", "in_words": "a photo of {}"}
_SYLLABLES = ("ba", "do", "fi", "ku", "le", "mo", "ni", "pa", "ro", "su")
_TIMED = 300


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the measurements, and print the figures."""
    parser = figures_parser(__doc__)
    parser.add_argument("index", type=Path, help="index of the photos")
    parser.add_argument("data", type=Path, help="the photos with their captions")
    parser.add_argument("--split", default=None, help="split that the index has")
    parser.add_argument("--items", type=int, default=100_000, help="photos of the look-up")
    options = parser.parse_args(arguments)
    records = read_records(options.data, options.split)
    queries = [(text, record.id) for record in records for text in record.captions[1:]]
    print_figures(measure(options.index, queries, options.items), as_json=options.json)


def measure(index: Path, captions: Sequence[tuple[str, str]], items: int) -> dict[str, Any]:
    """Return the figures.

    Args:
        index: Index of photos.
        captions: Texts, and the id of the photo that each belongs to.
        items: Number of photos of the look-up.
    """
    with closing(open_backend(index)) as opened, closing(QueryEncoder(QueryLimits())) as encoder:
        searcher = TwoStageSearcher(opened)
        photos = opened.side("images")
        assert isinstance(photos, LiveCollection)  # the benchmark takes an index in files
        store, own = photos.base.items, photos.base.items.words

        def encode(text: str) -> EncodedQuery:
            return encoder.encode_one(searcher, TextQuery(text))

        encoded = [(encode(text), photo) for text, photo in captions]
        figures: dict[str, Any] = {
            f"captions_{weight:g}": _rsum(searcher, encoded, weight) for weight in _WEIGHTS
        }
        for weight in (0.0, 1.0):
            figures[f"ms_{weight:g}"] = _median_ms(searcher, encoded[:_TIMED], weight)
        named = [
            (_name(row), item.id) for row, item in enumerate(store.by_rows(range(photos.count)))
        ]
        for kind, form in _FORMS.items():
            asked = [(encode(form.format(name)), photo) for name, photo in named]
            for place, put in _PLACES.items():
                store.words = _named(store, put)
                figures[f"names_in_{place}_{kind}"] = _first(searcher, asked, 1.0)
        store.words = _without_text(store)
        places = [_places(searcher, encoded, weight) for weight in (0.0, 1.0)]
        figures["same_without_text"] = bool((places[0] == places[1]).all())
        store.words = own
    return figures | _look_up([text for text, _ in captions], items)


# Where a photo has its name, beside its caption.
_PLACES: dict[str, Callable[[StoredItem, str], StoredItem]] = {
    "metadata": lambda item, name: item._replace(metadata={"name": name}),
    "caption": lambda item, name: item._replace(text=f"{item.text} with {name}"),
    "file_name": lambda item, name: item._replace(uri=f"holiday/{name}_01.jpg"),
}


def _named(store: ItemStore, put: Callable[[StoredItem, str], StoredItem]) -> WordIndex:
    """Return the words of items with a made-up name."""

    def by_rows(rows: Sequence[int]) -> list[StoredItem]:
        return [put(each._replace(uri=None), _name(each.row)) for each in store.by_rows(rows)]

    return WordIndex(by_rows)


def _without_text(store: ItemStore) -> WordIndex:
    """Return the words of items without any text."""

    def by_rows(rows: Sequence[int]) -> list[StoredItem]:
        return [each._replace(uri=None, text=None, metadata={}) for each in store.by_rows(rows)]

    return WordIndex(by_rows)


def _name(row: int) -> str:
    """Return a name that no other row has."""
    return "zq" + "".join(_SYLLABLES[int(digit)] for digit in f"{row:04}")


def _places(
    searcher: TwoStageSearcher, asked: Sequence[tuple[EncodedQuery, str]], weight: float
) -> np.ndarray:
    """Return the place of the right photo among the first ten hits, 10 if it is not there."""
    options, places = SearchOptions(k=10, lexical=weight), []
    for query, photo in asked:
        found = [hit.id for hit in searcher.search(query, "images", options).hits]
        places.append(found.index(photo) if photo in found else 10)
    return np.array(places)


def _rsum(
    searcher: TwoStageSearcher, asked: Sequence[tuple[EncodedQuery, str]], weight: float
) -> float:
    places = _places(searcher, asked, weight)
    return round(100 * sum(float((places < k).mean()) for k in (1, 5, 10)), 2)


def _first(
    searcher: TwoStageSearcher, asked: Sequence[tuple[EncodedQuery, str]], weight: float
) -> float:
    return float((_places(searcher, asked, weight) == 0).mean())


def _median_ms(
    searcher: TwoStageSearcher, asked: Sequence[tuple[EncodedQuery, str]], weight: float
) -> float:
    options, times = SearchOptions(k=10, lexical=weight), []
    for query, _ in asked:
        began = time.perf_counter()
        searcher.search(query, "images", options)
        times.append(1000 * (time.perf_counter() - began))
    return float(np.median(times))


def _look_up(texts: Sequence[str], items: int) -> dict[str, float]:
    def by_rows(rows: Sequence[int]) -> list[StoredItem]:
        each = ((row, texts[row % len(texts)]) for row in rows)
        return [StoredItem(r, str(r), f"{r}.jpg", None, t, None, 1, 1, {}) for r, t in each]

    index, times = WordIndex(by_rows), []
    began = time.perf_counter()
    index.find([], items, 0)
    read_s = time.perf_counter() - began
    for text in texts[:_TIMED]:
        began = time.perf_counter()
        index.find(words_of(text), items, 0.01 * items)
        times.append(1000 * (time.perf_counter() - began))
    return {"read_s": read_s, "look_up_ms": float(np.median(times))}


if __name__ == "__main__":
    main()
