"""A document of a few kinds of blocks, which `markdown` and `html` write down.

A document as one HTML file that needs nothing else: the pictures are inside.

A document as Markdown (GitHub's, for the tables).
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import assert_never


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


_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.55 system-ui, sans-serif; color: #1c2024; background: #fff;
       max-width: 76rem; margin: 2.5rem auto; padding: 0 1.25rem; }
h1 { font-size: 1.7rem; line-height: 1.2; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
p, ul { max-width: 52rem; } li { margin: .25rem 0; }
.table { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .35rem .7rem; text-align: right; white-space: nowrap;
         border-bottom: 1px solid #e3e6ea; }
th { vertical-align: bottom; white-space: normal; border-bottom: 2px solid #9aa3ad; }
th:first-child, td:first-child { text-align: left; }
tr.marked td { background: #eef4fb; font-weight: 600; }
figure { margin: 1.25rem 0; } img { max-width: 100%; height: auto; }
figcaption { color: #59636e; max-width: 52rem; }
""".strip()


def to_html(blocks: Sequence[Block]) -> str:
    """Write a document; its first block is a heading, which names the page.

    Args:
        blocks: in order.
    """
    title = next(block.text for block in blocks if isinstance(block, Heading))
    body = "\n".join(_block(block) for block in blocks)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{_STYLE}\n</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _block(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"<h{level}>{escape(text)}</h{level}>"
        case Paragraph(text):
            return f"<p>{escape(text)}</p>"
        case Bullets(items):
            return "<ul>\n" + "\n".join(f"<li>{escape(item)}</li>" for item in items) + "\n</ul>"
        case Table():
            return _table(block)
        case Picture(file, caption):
            data = base64.b64encode(file.read_bytes()).decode("ascii")
            return (
                f'<figure>\n<img src="data:image/png;base64,{data}" alt="{escape(caption)}">\n'
                f"<figcaption>{escape(caption)}</figcaption>\n</figure>"
            )
        case _:
            assert_never(block)


def _table(table: Table) -> str:
    lines = ['<div class="table"><table>', f"<thead>{_row(table.header, 'th')}</thead>", "<tbody>"]
    for number, row in enumerate(table.rows):
        lines.append(_row(row, "td", marked=number in table.marked))
    return "\n".join([*lines, "</tbody>", "</table></div>"])


def _row(cells: Sequence[str], tag: str, *, marked: bool = False) -> str:
    opening = '<tr class="marked">' if marked else "<tr>"
    return opening + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def to_markdown(blocks: Sequence[Block], folder: Path) -> str:
    """Write a document.

    Args:
        blocks: in order.
        folder: of the Markdown file; links to pictures count from there.
    """
    return "\n\n".join(_block_markdown(block, folder) for block in blocks) + "\n"


def _block_markdown(block: Block, folder: Path) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {escape_markdown(text)}"
        case Paragraph(text):
            return escape_markdown(text)
        case Bullets(items):
            return "\n".join(f"* {escape_markdown(item)}" for item in items)
        case Table(header, rows, marked):
            lines = [_line(header), _line(["---", *["---:"] * (len(header) - 1)], plain=True)]
            for number, row in enumerate(rows):
                lines.append(_line(row, bold=number in marked))
            return "\n".join(lines)
        case Picture(file, caption):
            link = Path(os.path.relpath(file, folder)).as_posix()
            return f"![{escape_markdown(caption)}]({link})"
        case _:
            assert_never(block)


def _line(cells: Sequence[str], *, plain: bool = False, bold: bool = False) -> str:
    written = cells if plain else [escape_markdown(cell) for cell in cells]
    if bold:
        written = [f"**{cell}**" if cell else cell for cell in written]
    return f"| {' | '.join(written)} |"


def escape_markdown(text: str) -> str:
    """Keep a text from being taken for markup, on one line."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))
