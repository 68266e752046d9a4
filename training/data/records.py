"""One photo of a data set with its captions, whatever file it was read from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aladin.errors import DataError
from training.data.fields import Place


@dataclass(frozen=True, kw_only=True)
class Record:
    """A photo and what is known of it.

    Attributes:
        id: unique in its source; the user's own, else `uri`.
        image: absolute path of the photo.
        uri: the photo as the source names it.
        captions: any number; none where captions are not required.
        split: None if the source does not say.
        metadata: the user's own, handed through.
    """

    id: str
    image: Path
    uri: str
    captions: tuple[str, ...]
    split: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


def collect(
    entries: Iterable[tuple[Place, Record]], source: Path, *, require_captions: bool
) -> list[Record]:
    """Gather a reader's records, refusing those that training or indexing could not use.

    Args:
        entries: each record with the place it was read from.
        source: named in the error about a source without records.
        require_captions: refuse a photo without captions.

    Raises:
        DataError: a photo is missing, has no caption or repeats an id, or there is no record.
    """
    first: dict[str, Place] = {}
    records: list[Record] = []
    for place, record in entries:
        if record.id in first:
            raise place.error(f"id {record.id!r} repeats, first used at {first[record.id]}")
        if not record.image.is_file():
            raise place.error(f"no such photo: {record.image}")
        if require_captions and not record.captions:
            raise place.error(f"photo {record.uri!r} has no caption")
        first[record.id] = place
        records.append(record)
    if not records:
        raise DataError(source, None, "holds no photo")
    return records
