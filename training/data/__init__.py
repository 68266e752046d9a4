"""Data sets: one reader a file, chosen by the source's suffix."""

from __future__ import annotations

from pathlib import Path

from aladin.errors import DataError
from training.data.folder import read_folder
from training.data.jsonl import read_jsonl
from training.data.karpathy import read_karpathy
from training.data.records import Record, collect

__all__ = ["Record", "read_records"]


def read_records(
    source: Path,
    split: str | None = None,
    *,
    require_captions: bool = True,
    images: Path | None = None,
) -> list[Record]:
    """Read a data set, whole: nothing is returned if one line of it cannot be used.

    Args:
        source: a ``.jsonl`` file, a Karpathy ``.json`` file, or a folder of photos.
        split: only this one; None: all photos.
        require_captions: refuse a photo without captions; searching photos needs none.
        images: folder of a Karpathy JSON's photos, if it is not beside the file.

    Raises:
        DataError: the source, or a line of it, cannot be used; or it has no such split.
    """
    suffix = source.suffix.lower()
    if source.is_dir():
        entries = read_folder(source)
    elif not source.exists():
        raise DataError(source, None, "no such file or folder")
    elif suffix == ".jsonl":
        entries = read_jsonl(source)
    elif suffix == ".json":
        entries = read_karpathy(source, images)
    else:
        raise DataError(source, None, "expected a folder, a .jsonl or a Karpathy .json file")
    records = collect(entries, source, require_captions=require_captions)
    return records if split is None else _of_split(records, split, source)


def _of_split(records: list[Record], split: str, source: Path) -> list[Record]:
    chosen = [record for record in records if record.split == split]
    if not chosen:
        known = sorted({record.split for record in records if record.split is not None})
        raise DataError(source, None, f"has no split {split!r}, known are {known}")
    return chosen
