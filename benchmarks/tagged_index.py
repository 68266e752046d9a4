"""A copy of an index whose items carry metadata: something for filters to look at.

Real photo collections come with metadata, Flickr8k does not. What is given to an item follows from
its row alone, so that every copy is the same: a number, a text, a bool, a list, and a field that
some items lack.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from index.building.generation_writer import SideSource, write_generation
from index.building.publish import install_model
from index.building.side_writer import EncodedPart
from index.disk import disk_errors, only_builder
from index.layout import MODEL
from index.live_parts import live_parts
from index.live_side import LiveSide
from index.reader import open_index
from index.settings import BuildSettings, Target

_CITIES = ("Pisa", "Lucca", "Firenze", "Siena", "Arezzo")
_COLOURS = ("red", "green", "blue", "black", "white", "grey", "brown")

# Let through from 1 of 100 items to nearly all; every kind of test is among them.
FILTERS: tuple[dict[str, Any], ...] = (
    {"city": "Pisa"},
    {"year": {"gte": 2005, "lt": 2012}},
    {"tags": ["red", "blue"]},
    {"not": {"city": ["Pisa", "Lucca"]}},
    {"or": [{"public": True}, {"rating": {"gt": 4}}]},
    {"rating": {"exists": False}, "public": False},
    {"number": {"lt": 100}, "tags": {"nin": ["white"]}},
    {"city": {"gte": "Lucca", "lt": "Q"}},
)


def tag_index(source: Path, root: Path, settings: BuildSettings) -> None:
    """Write a copy of the live items of an index, with metadata in the place of theirs.

    Args:
        source: the index.
        root: of the copy; new.
        settings: of the copy's first stage and tokens; the tokens' form has to be the source's.
    """
    with open_index(source) as index, disk_errors(root), only_builder(root):
        install_model(root, source / MODEL, index.manifest.model)
        sides: dict[Target, SideSource] = {}
        for target in index.manifest.targets:
            side = index.side(target)
            sides[target] = SideSource(
                embedding_dim=side.entry.embedding_dim,
                codec=side.base.tokens.codec,
                parts=_tagged_parts(side),
            )
        write_generation(root, sides, index.manifest.model, settings, "tagged")


def _tagged_parts(side: LiveSide) -> Iterator[EncodedPart]:
    row = 0
    for part in live_parts(side):
        items = [item._replace(metadata=metadata_of(row + n)) for n, item in enumerate(part.items)]
        row += len(items)
        yield part._replace(items=items)


def metadata_of(row: int) -> dict[str, Any]:
    """Return the metadata of the item at a row."""
    metadata: dict[str, Any] = {
        "number": row,
        "year": 2000 + row % 20,
        "city": _CITIES[row % len(_CITIES)],
        "public": row % 3 == 0,
        "tags": [_COLOURS[row % 7], _COLOURS[row % 11 % 7]],
    }
    if row % 4:
        metadata["rating"] = 1 + row * 7 % 5 + row % 2 / 2
    return metadata
