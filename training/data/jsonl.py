"""JSON lines, one photo a line: the project's own format.

{"image": "path relative to the file", "captions": ["..."], "split": "train",
 "id": "optional", "metadata": {}}
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path

from aladin.errors import DataError
from aladin.photo_file import PhotoFile
from training.data.fields import Fields, Place, parse_json
from training.data.records import Entry, Record

_KNOWN = frozenset({"image", "captions", "split", "id", "metadata"})


def read_jsonl(file: Path) -> Iterator[Entry]:
    """Read the photos of a JSONL file.

    Raises:
        DataError: a line is not JSON, lacks a field, or has an unknown or ill-typed one.
    """
    folder = file.absolute().parent
    for line in read_lines(file, _KNOWN):
        uri = line.text("image")
        yield Entry(
            line.place,
            Record(
                id=line.optional_text("id") or uri,
                photo=PhotoFile(folder / uri),
                uri=uri,
                captions=line.texts("captions"),
                split=line.optional_text("split"),
                metadata=line.mapping("metadata"),
            ),
        )


def read_lines(file: Path, known: frozenset[str] | None) -> Iterator[Fields]:
    """Parse a JSONL file; blank lines are skipped.

    Args:
        file: UTF-8, with any line ends.
        known: the fields that a line may have; None leaves that open.

    Raises:
        DataError: the file cannot be read, or a line is not a JSON object.
    """
    try:
        # In bytes, so that a line that is not UTF-8 is still counted.
        with file.open("rb") as lines:
            for number, raw in enumerate(lines, start=1):
                if number == 1:
                    raw = raw.removeprefix(codecs.BOM_UTF8)
                if raw.strip():
                    place = Place(file, number)
                    yield Fields(parse_json(raw, place), place, known)
    except OSError as error:
        raise DataError(file, None, error.strerror or "cannot be read") from error
