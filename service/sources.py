"""From data files to the items of an index."""

from __future__ import annotations

from pathlib import Path

from index.source_items import ImageItem, TextItem
from training.data import read_records
from training.data.texts import read_texts


def image_items(source: Path, split: str | None) -> list[ImageItem]:
    """Read the photos of a data set.

    Args:
        source: JSONL, Karpathy JSON or a folder of photos.
        split: only this one; None: all photos.

    Raises:
        DataError: the source cannot be used.
    """
    return [
        ImageItem(
            id=record.id,
            path=record.image,
            uri=record.uri,
            text=record.captions[0] if record.captions else None,
            metadata=record.metadata,
        )
        for record in read_records(source, split, require_captions=False)
    ]


def text_items(source: Path, split: str | None) -> list[TextItem]:
    """Read texts, or the captions of a data set.

    Args:
        source: JSONL of texts, or any source of photos with captions.
        split: only the captions of this one; None: all.

    Raises:
        DataError: the source cannot be used.
    """
    return [
        TextItem(id=record.id, text=record.text, metadata=record.metadata, image_id=record.image_id)
        for record in read_texts(source, split)
    ]
