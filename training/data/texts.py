"""Texts without photos, or the captions of a data set as texts of their own."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aladin.errors import DataError
from training.data import read_records
from training.data.fields import Place
from training.data.jsonl import read_lines

_KNOWN = frozenset({"id", "text", "metadata"})


@dataclass(frozen=True, kw_only=True)
class TextRecord:
    """A text to search for.

    Attributes:
        id: unique in its source; of a caption ``IMAGE#0``, ``IMAGE#1`` ...
        text: not blank.
        metadata: the user's own; a caption has its photo's.
        image_id: the photo that a caption describes.
    """

    id: str
    text: str
    metadata: dict[str, Any] = field(default_factory=dict)
    image_id: str | None = None


def read_texts(source: Path, split: str | None = None) -> list[TextRecord]:
    """Read text lines, or the captions of any source that `read_records` knows.

    Args:
        source: JSONL of ``{"id": "...", "text": "...", "metadata": {}}``, or photos with
            captions; the first line decides.
        split: of photos with captions.

    Raises:
        DataError: a line cannot be used, an id repeats, or there is no text.
    """
    if _holds_texts(source):
        return _read_text_lines(source)
    return [
        TextRecord(
            id=f"{record.id}#{number}",
            text=caption,
            metadata=record.metadata,
            image_id=record.id,
        )
        for record in read_records(source, split)
        for number, caption in enumerate(record.captions)
    ]


def _holds_texts(source: Path) -> bool:
    if source.suffix.lower() != ".jsonl" or not source.is_file():
        return False
    first = next(read_lines(source, known=None), None)
    return first is not None and "text" in first


def _read_text_lines(file: Path) -> list[TextRecord]:
    records: list[TextRecord] = []
    first: dict[str, Place] = {}
    for line in read_lines(file, _KNOWN):
        text_id = line.text("id")
        if text_id in first:
            raise line.place.error(f"id {text_id!r} repeats, first used at {first[text_id]}")
        first[text_id] = line.place
        records.append(
            TextRecord(id=text_id, text=line.text("text"), metadata=line.mapping("metadata"))
        )
    if not records:
        raise DataError(file, None, "holds no text")
    return records
