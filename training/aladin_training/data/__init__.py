"""Data sets: one reader a file, chosen by the source's suffix.

What is read is said in ``columns.py`` for tables, and in each reader for the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from aladin_training.data.formats import KNOWN_FORMATS, read_entries
from aladin_training.data.records import (
    OnSkip,
    Record,
    SkippedOfSplit,
    collect,
    log_skipped,
    select,
)

__all__ = ["KNOWN_FORMATS", "Record", "iter_records", "read_records"]


def iter_records(
    source: Path,
    split: str | None = None,
    *,
    require_captions: bool = True,
    images: Path | None = None,
    on_skip: OnSkip = log_skipped,
) -> Iterator[Record]:
    """Read a data set photo by photo, whatever its size; a Karpathy JSON alone is read at once.

    That an id is used once, and that the file of a photo is there, is left to who reads on.

    Args:
        source: a file of `KNOWN_FORMATS`, a pattern of such files, or a folder.
        split: only this one; None: all photos.
        require_captions: refuse a photo without captions; searching photos needs none.
        images: folder of a Karpathy JSON's photos, if it is not beside the file.
        on_skip: called with each file of the split that looks like a photo and cannot be read.

    Raises:
        DataError: the source cannot be used; while reading, a line of it cannot, or, at the
            end, there was no photo or no such split.
    """
    skipped = SkippedOfSplit(split, on_skip)
    entries = select(
        read_entries(source, images, skipped),
        source,
        split,
        require_captions=require_captions,
        skipped=skipped,
    )
    return (entry.record for entry in entries)


def read_records(
    source: Path,
    split: str | None = None,
    *,
    require_captions: bool = True,
    require_photos: bool = True,
    images: Path | None = None,
) -> list[Record]:
    """Read a data set, whole: nothing is returned if one photo of it cannot be used.

    Files that look like photos and are in a format that is not read are logged as warnings.

    Args:
        source: see `iter_records`, as for the others.
        split: only this one; None: all photos.
        require_captions: refuse a photo without captions.
        require_photos: refuse a photo whose file is missing; networks that read ready-made
            regions need none.
        images: folder of a Karpathy JSON's photos.

    Raises:
        DataError: see `iter_records`; also: an id repeats, or the file of a photo is missing.
    """
    skipped = SkippedOfSplit(split, log_skipped)
    entries = read_entries(source, images, skipped)
    chosen = select(entries, source, split, require_captions=require_captions, skipped=skipped)
    return collect(chosen, require_photos=require_photos)
