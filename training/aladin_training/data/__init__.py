"""Readers of data sets, chosen by the source's suffix.

The columns of tables are described in ``fields.py``, other formats in their readers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from aladin_training.data.folder_rules import FolderRules
from aladin_training.data.formats import KNOWN_FORMATS, read_entries
from aladin_training.data.records import (
    OnSkip,
    Record,
    SkipLog,
    SkippedOfSplit,
    collect,
    log_skipped,
    select,
)

__all__ = ["KNOWN_FORMATS", "Record", "iter_records", "read_records"]


def iter_records(
    source: Path | Sequence[Path],
    split: str | None = None,
    *,
    require_captions: bool = True,
    images: Path | None = None,
    on_skip: OnSkip = log_skipped,
    rules: FolderRules | None = None,
) -> Iterator[Record]:
    """Read a data set photo by photo, however large it is; only a Karpathy JSON is read at once.

    The caller has to check that ids are unique and that the files of photos exist.

    Args:
        source: File of one of the `KNOWN_FORMATS`, a pattern of such files, or a folder; or several
            of them, read one after another as one data set.
        split: Split to read, or None for all photos.
        require_captions: Skip photos without captions; searching photos needs none.
        images: Folder of a Karpathy JSON's photos, if it is not beside the file.
        on_skip: Called with each photo and caption of the split that cannot be used.
        rules: What is skipped in a folder of photos, see `read_folder`; None for a data set.

    Raises:
        DataError: If the source cannot be used, or at the end, if there was no photo or no such
            split.
    """
    skipped = SkippedOfSplit(split, on_skip)
    sources = [source] if isinstance(source, Path) else source
    # All are opened here, not when the first is at its end, to detect a missing one at once.
    opened = [read_entries(each, images, skipped, rules) for each in sources]
    named = sources[0] if len(sources) == 1 else Path(f"{sources[0]} and {len(sources) - 1} more")
    entries = select(
        (entry for entries in opened for entry in entries),
        named,
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
    """Read a whole data set; photos and captions that cannot be used are skipped and logged.

    Args:
        source: See `iter_records`, as for the other arguments.
        split: Split to read, or None for all photos.
        require_captions: Skip photos without captions.
        require_photos: Skip photos whose file is missing; networks that read ready-made regions
            need no photos.
        images: Folder of a Karpathy JSON's photos.

    Raises:
        DataError: If `iter_records` raises it, more than half of the photos cannot be used, or, in
            a block of `strict_data`, one cannot.
    """
    log = SkipLog(source)
    skipped = SkippedOfSplit(split, log)
    entries = read_entries(source, images, skipped)
    chosen = select(entries, source, split, require_captions=require_captions, skipped=skipped)
    records = collect(chosen, skipped, require_photos=require_photos)
    log.end(len(records))
    return records
