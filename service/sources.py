"""From data files to the items of an index, one by one: a source may be larger than memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from index.building.source_items import ImageItem, TextItem
from training.data import iter_records
from training.data.regions import RegionStore, region_key, region_keys
from training.data.texts import iter_texts


def image_items(
    source: Path, split: str | None, regions: RegionStore | None = None
) -> Iterator[ImageItem]:
    """Read the photos of a data set.

    Args:
        source: of any format that `training.data` knows.
        split: only this one; None: all photos.
        regions: of the photos, for a network that reads these; before the first photo is
            returned, the source is read through to see that each has its regions.

    Raises:
        DataError: the source cannot be used; while reading, a photo of it cannot.
        RegionError: photos have no regions.
    """
    if regions is not None:
        region_keys(iter_records(source, split, require_captions=False), regions)
    return (
        ImageItem(
            id=record.id,
            path=record.photo.path,
            offset=record.photo.offset,
            length=record.photo.length,
            regions_key=None if regions is None else region_key(record, regions),
            uri=record.uri,
            text=record.captions[0] if record.captions else None,
            metadata=record.metadata,
        )
        for record in iter_records(source, split, require_captions=False)
    )


def text_items(source: Path, split: str | None) -> Iterator[TextItem]:
    """Read texts, or the captions of a data set.

    Args:
        source: JSONL or a table of texts, or any source of photos with captions.
        split: only the captions of this one; None: all.

    Raises:
        DataError: the source cannot be used; while reading, a text of it cannot.
    """
    return (
        TextItem(id=record.id, text=record.text, metadata=record.metadata, image_id=record.image_id)
        for record in iter_texts(source, split)
    )
