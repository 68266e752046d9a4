"""A document as Markdown (GitHub's, for the tables)."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import assert_never

from training.comparison.document import Block, Bullets, Heading, Paragraph, Picture, Table


def to_markdown(blocks: Sequence[Block], folder: Path) -> str:
    """Write a document.

    Args:
        blocks: in order.
        folder: of the Markdown file; links to pictures count from there.
    """
    return "\n\n".join(_block(block, folder) for block in blocks) + "\n"


def _block(block: Block, folder: Path) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {escape(text)}"
        case Paragraph(text):
            return escape(text)
        case Bullets(items):
            return "\n".join(f"* {escape(item)}" for item in items)
        case Table(header, rows, marked):
            lines = [_line(header), _line(["---", *["---:"] * (len(header) - 1)], plain=True)]
            for number, row in enumerate(rows):
                lines.append(_line(row, bold=number in marked))
            return "\n".join(lines)
        case Picture(file, caption):
            link = Path(os.path.relpath(file, folder)).as_posix()
            return f"![{escape(caption)}]({link})"
        case _:
            assert_never(block)


def _line(cells: Sequence[str], *, plain: bool = False, bold: bool = False) -> str:
    written = cells if plain else [escape(cell) for cell in cells]
    if bold:
        written = [f"**{cell}**" if cell else cell for cell in written]
    return f"| {' | '.join(written)} |"


def escape(text: str) -> str:
    """Keep a text from being taken for markup, on one line."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))
