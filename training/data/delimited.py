"""CSV and TSV with a header, as open_clip reads them: ``filepath`` and ``title``."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from aladin.columns import CAPTIONS, ID, PHOTO, SPLIT
from aladin.errors import DataError
from training.data.fields import Place
from training.data.table import Table

# "007" is a code and "+1" a vote: numbers are what a program would write as such.
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_MAX_INTEGER_DIGITS = 18  # what surely fits into the 64 bits that a filter compares
_BOOLEANS = {"true": True, "false": False}
_TEXT_COLUMNS = frozenset({*PHOTO, *CAPTIONS, *ID, SPLIT})


def open_csv(file: Path) -> Table:
    """Open a table whose cells are separated by commas.

    The first line names the columns. Cells may be quoted. In columns that become metadata a
    cell such as 12, -0.5, 1e-3 or true is a number or a truth value, an empty one is left out.

    Raises:
        DataError: the file or its header cannot be used; while reading, a line.
    """
    return _open(file, ",")


def open_tsv(file: Path) -> Table:
    """Open a table whose cells are separated by tabs; see `open_csv`."""
    return _open(file, "\t")


def _open(file: Path, delimiter: str) -> Table:
    lines = _cells(file, delimiter)
    place, columns = next(lines, (Place(file), []))
    if not columns:
        raise place.error("is empty, expected a header")
    repeated = next((name for name in columns if columns.count(name) > 1), None)
    if repeated is not None:
        raise place.error(f"names the column {repeated!r} more than once")
    return Table(file, columns, _rows(columns, lines))


def _rows(
    columns: list[str], lines: Iterator[tuple[Place, list[str]]]
) -> Iterator[tuple[Place, dict[str, Any]]]:
    for place, cells in lines:
        if len(cells) != len(columns):
            raise place.error(f"expected {len(columns)} cells, as in the header, got {len(cells)}")
        yield (
            place,
            {
                name: (cell or None) if name in _TEXT_COLUMNS else _typed(cell)
                for name, cell in zip(columns, cells, strict=True)
            },
        )


def _typed(cell: str) -> Any:
    """Return a cell as the number or truth value that it spells; None for an empty one."""
    if _INTEGER.fullmatch(cell):
        return int(cell) if len(cell.lstrip("-")) <= _MAX_INTEGER_DIGITS else cell
    if _DECIMAL.fullmatch(cell) and math.isfinite(float(cell)):
        return float(cell)
    return _BOOLEANS.get(cell.lower(), cell or None)


def _cells(file: Path, delimiter: str) -> Iterator[tuple[Place, list[str]]]:
    """Yield the cells of each line that is not blank; a quoted cell may hold line ends."""
    first = 1
    try:
        with file.open("rb") as raw:
            reader = csv.reader(_decoded(file, raw), delimiter=delimiter, strict=True)
            for cells in reader:
                if cells:
                    yield Place(file, first), cells
                first = reader.line_num + 1
    except csv.Error as error:
        reason = f"not a line of a table ({error}); a quote inside of a quoted cell is doubled"
        raise DataError(file, first, reason) from None
    except OSError as error:
        raise DataError(file, None, error.strerror or "cannot be read") from error


def _decoded(file: Path, raw: Iterable[bytes]) -> Iterator[str]:
    # Line by line, so that one that is not UTF-8 is still counted.
    for number, line in enumerate(raw, start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            reason = f"not UTF-8 at byte {error.start + 1} of the line"
            raise DataError(file, number, reason) from None
