"""Items that the index of a backend is made of, and what it should find, worked out one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from aladin_index.encode.encoded import ItemBatch
from aladin_index.items.tables import StoredItem
from aladin_index.search.results import SearchAnswer
from aladin_index.settings import BuildSettings
from aladin_index.tokens.codec import TokenCodec
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.inference import encode_texts
from aladin_network.scoring.encoding import Encoding
from aladin_network.types import Modality

EMBEDDING_DIM, TOKEN_DIM = 16, 8
# Of a score; floats are summed up in one order here and in others there.
TOLERANCE = 2e-5
SETTINGS = BuildSettings(filter_fields=("number",))
# What an index takes for an id, and a database, an URL or a query language might not.
ODD_IDS = [
    "a space",
    "über/日本/🐕",
    "e\u0301",  # not the same as the next one, though it looks like it
    "\u00e9",
    "' OR 1=1 --",
    '"quoted"',
    "back\\slash",
    "per%20cent",
    "{brace} [bracket]",
    "-1",
    "x" * 300,
]
_CITIES = ["Pisa", "Lucca", "Arezzo", "Über"]
_COLOURS = ["red", "green", "blue"]
_WORDS = ["a", "red", "dog", "runs", "by", "the", "green", "boat", "and", "sleeps"]


class Known(NamedTuple):
    """What is known of an item without an index; tokens as they are stored."""

    item: StoredItem
    embedding: np.ndarray
    tokens: np.ndarray


# In the order of their rows.
KnownItems = dict[str, Known]


class Expected(NamedTuple):
    """What should be found in a place."""

    id: str
    match: float
    align: float


def metadata_of(number: int) -> dict[str, Any]:
    """Metadata with every kind of value that filters tell apart."""
    metadata: dict[str, Any] = {
        "number": number,
        "even": number % 2 == 0,
        "tags": [_COLOURS[number % 3], _COLOURS[number % 4 % 3]],
        "pair": [number % 10, 9],
        "mixed": number if number % 2 else str(number),
        "a.b": number % 5,
        "größe": "klein" if number % 7 else "groß",
        "big": 2**53 + number % 3,
        "nothing": None,
        "nested": {"x": number},
    }
    if number % 4 != 3:
        metadata["city"] = _CITIES[number % 4 if number % 5 else 3]
    if number % 3:
        metadata["rating"] = number / 4
    return metadata


class FilterCase(NamedTuple):
    """A filter as a request brings it, and the same said of an item's metadata."""

    spec: dict[str, Any]
    passes: Callable[[Mapping[str, Any]], bool]


FILTERS = [
    FilterCase({"city": "Pisa"}, lambda m: m.get("city") == "Pisa"),
    FilterCase({"city": ["Pisa", "Über", "Rome"]}, lambda m: m.get("city") in ("Pisa", "Über")),
    FilterCase({"city": {"ne": "Pisa"}}, lambda m: m.get("city") != "Pisa"),
    FilterCase({"tags": "red"}, lambda m: "red" in m["tags"]),
    FilterCase({"tags": {"nin": ["red", "blue"]}}, lambda m: set(m["tags"]) == {"green"}),
    FilterCase({"even": True}, lambda m: m["even"]),
    FilterCase({"even": 1}, lambda _: False),
    FilterCase({"number": True}, lambda _: False),
    FilterCase({"number": 1.0}, lambda m: m["number"] == 1),
    FilterCase({"number": {"gte": 10, "lt": 20}}, lambda m: 10 <= m["number"] < 20),
    FilterCase({"pair": {"gt": 8, "lt": 3}}, lambda m: m["pair"][0] < 3),
    FilterCase({"rating": {"exists": False}}, lambda m: "rating" not in m),
    FilterCase({"rating": {"gt": 2.25}}, lambda m: m.get("rating", 0) > 2.25),
    FilterCase({"mixed": 3}, lambda m: m["mixed"] == 3),
    FilterCase({"mixed": "4"}, lambda m: m["mixed"] == "4"),
    FilterCase({"mixed": {"gte": 0}}, lambda m: isinstance(m["mixed"], int)),
    FilterCase({"a.b": 1}, lambda m: m["a.b"] == 1),
    FilterCase({"größe": "groß"}, lambda m: m["größe"] == "groß"),
    FilterCase({"big": 2**53 + 1}, lambda m: m["big"] == 2**53 + 1),
    FilterCase({"big": {"gt": 2**53 + 1}}, lambda m: m["big"] == 2**53 + 2),
    FilterCase({"nothing": {"exists": True}}, lambda _: False),
    FilterCase({"nested": {"exists": False}, "other": {"ne": 1}}, lambda _: True),
    FilterCase({"number": {"gt": 1000}}, lambda _: False),
    FilterCase({"number": 7}, lambda m: m["number"] == 7),
    FilterCase(
        {"or": [{"city": "Lucca"}, {"not": {"number": {"lt": 30}}}], "tags": {"ne": "blue"}},
        lambda m: (m.get("city") == "Lucca" or m["number"] >= 30) and "blue" not in m["tags"],
    ),
    FilterCase({"city": {"gte": "Lucca", "lt": "Q"}}, lambda m: m.get("city") in ("Lucca", "Pisa")),
    FilterCase({"city": {"gt": "Z"}}, lambda m: m.get("city") == "Über"),
]


def photos(count: int, seed: int = 0, *, first: int = 0) -> ItemBatch:
    """Make photos up: random embeddings and regions, the ids of `ODD_IDS` among theirs."""
    random = np.random.default_rng([seed, first])
    lengths = random.integers(1, 6, count)
    items: list[StoredItem] = []
    for number in range(first, first + count):
        name = ODD_IDS[number] if number < len(ODD_IDS) else f"photo {number}"
        caption = f"caption {number}" if number % 2 else None
        uri = f"album/{number}.jpg"
        items.append(StoredItem(-1, name, uri, None, caption, None, 40, 30, metadata_of(number)))
    return ItemBatch(
        items=items,
        embeddings=_normalised(random.standard_normal((count, EMBEDDING_DIM))),
        tokens=_normalised(random.standard_normal((int(lengths.sum()), TOKEN_DIM))),
        lengths=lengths.astype(np.int64),
    )


def captions(checkpoint: Checkpoint, count: int) -> ItemBatch:
    """Make texts of one to nine words up, with the network's tokens: evidence needs their words."""
    random = np.random.default_rng(1)
    texts = [" ".join(random.choice(_WORDS, 1 + number % 9)) for number in range(count)]
    items = [
        StoredItem(-1, f"text {number}", None, None, text, None, None, None, metadata_of(number))
        for number, text in enumerate(texts)
    ]
    # The small network's own embeddings of such texts are nearly one.
    embeddings = _normalised(random.standard_normal((count, EMBEDDING_DIM)))
    encoding = encode_texts(checkpoint.model, texts)
    return ItemBatch(
        items=items,
        embeddings=embeddings,
        tokens=encoding.tokens[encoding.mask],
        lengths=encoding.mask.sum(axis=1),
    )


def known(new: ItemBatch, codec: TokenCodec) -> KnownItems:
    """Say of each item what an index that has it knows."""
    ends = np.cumsum(new.lengths)
    return {
        item.id: Known(
            item,
            new.embeddings[place],
            codec.unpack(codec.pack(new.tokens[ends[place] - new.lengths[place] : ends[place]])),
        )
        for place, item in enumerate(new.items)
    }


def made_up_query(random: np.random.Generator, tokens: int = 3) -> Encoding:
    """Make a query of either modality up."""
    embedding = _normalised(random.standard_normal((1, EMBEDDING_DIM)))
    words = _normalised(random.standard_normal((tokens, TOKEN_DIM)))
    return Encoding.of_item(embedding[0], words)


def slow_match(
    items: Iterable[Known], query: Encoding, modality: Modality = "text"
) -> list[Expected]:
    """Return all items in the first stage's order."""
    found: list[Expected] = []
    for each in items:
        similarity = query.item_tokens(0) @ each.tokens.T  # (query tokens, item tokens)
        of_words = similarity if modality == "text" else similarity.T
        align = float(sum(max(regions, default=0.0) for regions in of_words.tolist()))
        found.append(Expected(each.item.id, float(each.embedding @ query.embedding[0]), align))
    return sorted(found, key=lambda each: -each.match)


def assert_matched(result: SearchAnswer, expected: Sequence[Expected]) -> None:
    """Compare all hits of a search without re-ranking; an alignment has the error of each word."""
    assert [hit.id for hit in result.hits] == [each.id for each in expected]
    for hit, each in zip(result.hits, expected, strict=True):
        assert hit.score == hit.stages.match.score == pytest.approx(each.match, abs=TOLERANCE)
        assert hit.stages.align is not None
        assert hit.stages.align.score == pytest.approx(each.align, abs=10 * TOLERANCE)


def _normalised(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def merged(parts: Sequence[KnownItems]) -> KnownItems:
    """Join what is known; later items replace earlier ones and come last."""
    joined: KnownItems = {}
    for part in parts:
        for item_id, each in part.items():
            joined.pop(item_id, None)
            joined[item_id] = each
    return joined


def as_stored(new: ItemBatch) -> KnownItems:
    """Return items as an index whose tokens are float16 has them."""
    return known(new, TokenCodec("float16", TOKEN_DIM))


def taken(new: ItemBatch, places: Sequence[int]) -> ItemBatch:
    """Return some of the items."""
    ends = np.cumsum(new.lengths)
    parts = [new.tokens[ends[place] - new.lengths[place] : ends[place]] for place in places]
    return replace(
        new,
        items=[new.items[place] for place in places],
        embeddings=new.embeddings[list(places)],
        tokens=np.concatenate(parts),
        lengths=new.lengths[list(places)],
    )


def renamed(new: ItemBatch, ids: Sequence[str]) -> ItemBatch:
    """Return the items under other ids."""
    items = [item._replace(id=name) for item, name in zip(new.items, ids, strict=True)]
    return replace(new, items=items)
