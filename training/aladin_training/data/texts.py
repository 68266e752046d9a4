"""Texts without photos, and the captions of a data set as texts of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aladin_network.errors import DataError, brief
from aladin_network.photos.files import CAPTIONS, PHOTO, first_of
from aladin_network.types import TextItem
from aladin_training.data import iter_records
from aladin_training.data.fields import Place, Row
from aladin_training.data.json_files import read_lines
from aladin_training.data.records import (
    OnSkip,
    SkippedOfSplit,
    ignore_skipped,
    log_skipped,
    unusable,
)
from aladin_training.data.tables import TABLES, Table, open_table

_KNOWN = frozenset({"id", "text", "metadata"})


def iter_texts(
    source: Path, split: str | None = None, on_skip: OnSkip = log_skipped
) -> Iterator[TextItem]:
    """Read texts one by one: lines of texts, or the captions of photos.

    The caller has to check that ids are unique. A photo without a caption yields no text.

    Args:
        source: JSONL of ``{"id": "...", "text": "...", "metadata": {}}``, recognised by its first
            line; a table with ``id`` and ``text``, without a column of photos; or any source of
            photos that `iter_records` reads.
        split: Split of photos with captions, or None for all.
        on_skip: Called with each text that cannot be used, and each file that looks like a photo
            and cannot be read.

    Raises:
        DataError: If the source cannot be used, or at the end, if there was no text.
    """
    skipped = SkippedOfSplit(None, on_skip)
    return _some(_texts(source, split, skipped), source, skipped)


def _texts(source: Path, split: str | None, on_skip: OnSkip) -> Iterator[TextItem]:
    if source.is_file():
        suffix = source.suffix.lower()
        if suffix == ".jsonl" and _holds_texts(source):
            return _text_lines(source, on_skip)
        if suffix in TABLES:
            table = open_table(source, on_skip)
            if first_of(PHOTO, table.columns) is None:
                return _text_rows(table, on_skip)
    return (
        TextItem(
            id=caption_id,
            text=caption,
            metadata=record.metadata,
            image_id=record.id,
        )
        for record in iter_records(source, split, require_captions=False, on_skip=on_skip)
        for caption_id, caption in zip(record.caption_ids, record.captions, strict=True)
    )


def _some(texts: Iterator[TextItem], source: Path, skipped: SkippedOfSplit) -> Iterator[TextItem]:
    first = next(texts, None)
    if first is None:
        but = f" that can be read: {skipped.summary}" if skipped.count else ""
        raise DataError(source, None, f"holds no text{but}")
    yield first
    yield from texts


def _holds_texts(file: Path) -> bool:
    first = next(read_lines(file, None, ignore_skipped), None)
    return first is not None and "text" in first


def _text_lines(file: Path, on_skip: OnSkip) -> Iterator[TextItem]:
    for line in read_lines(file, _KNOWN, on_skip):
        try:
            yield TextItem(
                id=line.text("id"), text=line.text("text"), metadata=line.mapping("metadata")
            )
        except DataError as error:
            on_skip(unusable(error))


def _text_rows(table: Table, on_skip: OnSkip) -> Iterator[TextItem]:
    if first_of(CAPTIONS, table.columns) is None:
        columns = ", ".join(map(brief, table.columns))
        reason = f"expected a column of photos or of texts, got the columns {columns}"
        raise DataError(table.file, None, reason)
    for place, row in table.rows:
        try:
            yield _text_of_row(row, place)
        except DataError as error:
            on_skip(unusable(error))


def _text_of_row(row: dict[str, Any], place: Place) -> TextItem:
    known = Row(row, place)
    text_id, texts = known.id, known.captions
    if text_id is None or len(texts) != 1:
        found = f"id {brief(text_id)} and {len(texts)} texts"
        raise place.error(f"expected an id and a text, got {found}")
    return TextItem(id=text_id, text=texts[0], metadata=known.metadata())
