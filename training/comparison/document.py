"""A document of a few kinds of blocks, which `markdown` and `html` write down."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Heading:
    """A title; level 1 is the document's."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """Running text."""

    text: str


@dataclass(frozen=True)
class Bullets:
    """A list of sentences."""

    items: list[str]


@dataclass(frozen=True)
class Table:
    """A table; the first column is of words, the others of numbers.

    Attributes:
        header: a cell a column.
        rows: as many cells each.
        marked: rows that stand out, such as the baseline's.
    """

    header: list[str]
    rows: list[list[str]]
    marked: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Picture:
    """A PNG file.

    Attributes:
        file: the picture.
        caption: says what it shows.
    """

    file: Path
    caption: str


Block = Heading | Paragraph | Bullets | Table | Picture
