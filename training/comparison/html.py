"""A document as one HTML file that needs nothing else: the pictures are inside."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from typing import assert_never

from training.comparison.document import Block, Bullets, Heading, Paragraph, Picture, Table

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
