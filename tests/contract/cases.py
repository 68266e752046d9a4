"""The queries of the contract: bodies of `POST /v1/search/{target}`, which every door translates.

A picture is named by `PHOTOS`; a door reads its file. A query that a door cannot express is left
out for that door alone, see `doors.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from aladin_network.types import Target

ITEMS = 24
COLOURS = ("red", "green", "blue", "yellow")
THINGS = ("dog", "boat", "star", "house", "bird", "tree")
PLACES = ("grass", "sea", "street")
CAPTION_WORDS = " ".join(("a the on is and by", *COLOURS, *THINGS, *PLACES))
# Pictures beside the collection, to search with.
PHOTOS = {"photo": 101, "other photo": 102}


class Case(NamedTuple):
    """A search.

    Attributes:
        name: Key of its stored answers.
        target: Collection that is searched.
        body: The request, with names of `PHOTOS` in place of pictures.
    """

    name: str
    target: Target
    body: dict[str, Any]


def write_picture(path: Path, seed: int) -> None:
    """Write a picture of coloured blocks, another one for every seed, without loss."""
    colours = np.random.default_rng(seed).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    Image.fromarray(colours).resize((48, 40), Image.Resampling.NEAREST).save(path, "PNG")


def data_lines(folder: Path) -> Iterator[dict[str, Any]]:
    """Write the pictures of the collection, and yield the lines of its JSONL.

    Args:
        folder: Folder of the pictures.
    """
    named = itertools.cycle(itertools.product(THINGS, COLOURS))
    for number, (thing, colour) in zip(range(ITEMS), named, strict=False):
        file = folder / f"{number:02d}.png"
        write_picture(file, number)
        place = PLACES[number % len(PLACES)]
        metadata = {"number": number, "colour": colour, "tags": [thing, place]}
        if number % 5 == 0:
            metadata["rare"] = f"mark {number}"
        captions = [f"a {colour} {thing} on the {place}", f"the {thing} is {colour}"]
        yield {
            "image": file.name,
            "id": f"album/{number:02d} {thing}?",
            "captions": captions,
            "metadata": metadata,
        }


_WORDS = {"text": "a red dog on the grass"}
_ITEM = {"id": "album/04 boat?"}
_CAPTION = {"id": "album/04 boat?#0"}
_PHOTO = {"image": "photo"}
_BOX = [0.25, 0.1, 0.9, 0.75]

CASES = [
    # One term, each of its kinds in both collections.
    Case("words", "images", _WORDS),
    Case("words find texts", "texts", _WORDS),
    Case("one word", "images", {"text": "boat"}),
    Case("many words", "images", {"text": "a blue bird and a yellow house by the sea " * 2}),
    Case("words that no caption has", "images", {"text": "quarterly tax report"}),
    Case("photo finds texts", "texts", _PHOTO),
    Case("photo finds photos", "images", _PHOTO),
    Case("other photo finds texts", "texts", {"image": "other photo", "k": 4}),
    Case("item finds photos", "images", _ITEM),
    Case("item finds texts", "texts", _ITEM),
    Case("caption finds photos", "images", _CAPTION),
    Case("caption finds texts", "texts", _CAPTION),
    # Pages and blocks of candidates.
    Case("one hit", "images", _WORDS | {"k": 1}),
    Case("all hits", "images", _WORDS | {"k": 50}),
    Case("second page", "images", _WORDS | {"k": 5, "offset": 5}),
    Case("page beyond the last", "images", _WORDS | {"offset": 500}),
    Case("few candidates", "images", _WORDS | {"candidates": 3, "k": 8}),
    Case("blocks of seven", "images", _WORDS | {"candidates": 7, "k": 5, "offset": 5}),
    Case("blocks of one", "texts", _PHOTO | {"candidates": 1, "k": 6}),
    Case("exhaustive", "images", _WORDS | {"candidates": "exhaustive"}),
    Case("exhaustive for a photo", "texts", _PHOTO | {"candidates": "exhaustive", "k": 7}),
    Case(
        "exhaustive, second page",
        "images",
        _WORDS | {"candidates": "exhaustive", "offset": 8, "k": 8},
    ),
    Case("exhaustive for an item", "texts", _ITEM | {"candidates": "exhaustive"}),
    # Stages and fusion.
    Case("embedding alone", "images", _WORDS | {"rerank": False}),
    Case("embedding alone for a photo", "texts", _PHOTO | {"rerank": False, "k": 12}),
    Case("alignment alone", "images", _WORDS | {"fusion": 1.0}),
    Case("alignment alone for a photo", "texts", _PHOTO | {"fusion": 1.0}),
    Case("fusion of .3", "images", _WORDS | {"fusion": 0.3, "k": 12}),
    Case("fusion of 0", "images", _WORDS | {"fusion": 0.0}),
    Case("exhaustive alignment", "images", _WORDS | {"fusion": 1.0, "candidates": "exhaustive"}),
    # Evidence.
    Case("evidence", "images", _WORDS | {"explain": True, "k": 3}),
    Case("evidence of texts", "texts", _PHOTO | {"explain": True, "k": 3}),
    Case("evidence of an item", "texts", _ITEM | {"explain": True, "k": 2}),
    Case("evidence without re-ranking", "images", _WORDS | {"explain": True, "rerank": False}),
    # Filters and order.
    Case("equal", "images", _WORDS | {"filter": {"colour": "red"}}),
    Case("one of several", "images", _WORDS | {"filter": {"tags": ["dog", "sea"]}}),
    Case("range", "texts", _WORDS | {"filter": {"number": {"gte": 6, "lt": 12}}}),
    Case(
        "all, any and none",
        "images",
        _WORDS | {"filter": {"or": [{"colour": "blue"}, {"not": {"number": {"gt": 3}}}]}},
    ),
    Case("field that some items have", "images", _WORDS | {"filter": {"rare": {"exists": True}}}),
    Case("filter of an unknown field", "images", _WORDS | {"filter": {"year": 2020}}),
    Case("filter that nothing fits", "images", _WORDS | {"filter": {"number": 999}}),
    Case("filter for a photo", "texts", _PHOTO | {"filter": {"colour": "green"}}),
    Case(
        "filter, exhaustive",
        "images",
        _WORDS | {"filter": {"tags": "sea"}, "candidates": "exhaustive"},
    ),
    Case("sorted", "images", _WORDS | {"sort": "-number", "k": 6}),
    Case("sorted by a text that some have", "images", _WORDS | {"sort": "rare", "k": 12}),
    Case("sorted by an unknown field", "images", _WORDS | {"sort": "year"}),
    # Values of fields among the nearest: without the conditions on the field itself.
    Case("counted", "images", _WORDS | {"facets": ["colour", "tags", "year"], "candidates": 7}),
    Case(
        "counted beside a filter",
        "images",
        _ITEM
        | {"facets": ["colour", "number"], "filter": {"colour": "red", "number": {"lt": 12}}}
        | {"candidates": 5, "k": 2, "offset": 1},
    ),
    Case(
        "counted with a word",
        "images",
        {"text": "mark 15", "lexical": 1.0, "facets": ["rare"], "candidates": 2, "k": 2},
    ),
    # Words of captions and metadata.
    Case("rare word", "images", {"text": "mark 15", "lexical": 1.0, "k": 4}),
    Case("rare word, half", "images", {"text": "a boat mark 20", "lexical": 0.5, "k": 6}),
    Case("rare word of texts", "texts", {"text": "yellow tree", "lexical": 1.0, "k": 4}),
    Case("word with a filter", "images", {"text": "sea", "lexical": 1, "filter": {"number": 4}}),
    # Several terms.
    Case("two texts", "images", {"all": [{"text": "a red dog"}, {"text": "grass"}]}),
    Case("weighted", "images", {"all": [{"text": "a boat", "weight": 3.0}, {"text": "street"}]}),
    Case("words without others", "images", {"all": [_WORDS], "not": [{"text": "grass"}]}),
    Case("text and photo", "images", {"all": [{"text": "a bird"}, _PHOTO], "k": 6}),
    Case("liked items", "images", {"like": ["album/04 boat?", "album/09 star?"]}),
    Case("words and a liked item", "images", {"all": [_WORDS], "like": ["album/04 boat?"]}),
    Case("terms, second page", "images", {"all": [_WORDS], "not": [{"text": "sea"}], "offset": 6}),
    Case("terms, few candidates", "images", {"all": [_WORDS, _ITEM], "candidates": 6, "k": 9}),
    Case("terms without re-ranking", "images", {"all": [_WORDS, _ITEM], "rerank": False}),
    # A box of a photo.
    Case("box of an item", "images", _ITEM | {"box": _BOX, "k": 5}),
    Case("box of a photo", "images", _PHOTO | {"box": _BOX, "k": 5}),
    # What is refused.
    Case("nothing to search for", "images", {"k": 3}),
    Case("two queries", "images", _WORDS | _ITEM),
    Case("unknown item", "images", {"id": "nowhere"}),
    Case("empty text", "images", {"text": ""}),
    Case("no hits wanted", "images", _WORDS | {"k": 0}),
    Case("fusion above 1", "images", _WORDS | {"fusion": 1.5}),
    Case(
        "filter with an unknown operator", "images", _WORDS | {"filter": {"number": {"about": 1}}}
    ),
    Case("box beside words", "images", _WORDS | {"box": _BOX}),
    Case("box without an area", "images", _ITEM | {"box": [0.5, 0.5, 0.5, 0.9]}),
    Case("only what hits do not have", "images", {"not": [{"text": "grass"}]}),
    Case("rare words of a photo", "texts", _PHOTO | {"lexical": 1.0}),
]
