"""SCAN's "precomp" folders as data sets: captions, and arrays of ready-made regions.

    {split}_ims.npy     (rows, 36, 2048) float32, the regions
    {split}_caps.txt    one caption on each line; those of one photo are consecutive
    {split}_ids.txt     one id for each photo, or for each caption; may be missing

Some of these folders repeat a photo's row for each of its five captions, so that there are as
many rows as captions. Like SCAN's reader, this one recognises them by the numbers of rows and
captions; it then reads every fifth row and logs that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from aladin_network.errors import DataError, brief
from aladin_network.photos.files import PhotoFile
from aladin_training.data.fields import Place, readable
from aladin_training.data.records import LocatedRecord, Record, Source

logger = logging.getLogger(__name__)

_IMAGES = "_ims.npy"
_REPEATED = 5
_KNOWN = ("train", "dev", "val", "test", "testall")
# The split "dev" of SCAN is called "val" everywhere else.
_SPLITS = {"dev": "val"}
# Number of groups of five rows that are compared before five rows are taken for one photo.
_GROUPS_COMPARED = 8


class PrecompSplit(NamedTuple):
    """One split of a folder; keys are ``SPLIT/ID``, and of a photo's equal rows one is read."""

    name: str
    images: Path
    keys: list[str]
    rows_a_photo: int
    captions: list[tuple[str, ...]]


def is_precomp(folder: Path) -> bool:
    """Tell whether a folder is one of these, without listing what may be millions of photos."""
    return folder.is_dir() and any((folder / f"{name}{_IMAGES}").is_file() for name in _KNOWN)


def read_precomp(source: Source) -> Iterator[LocatedRecord]:
    """Read the photos of a folder, which has no photo files, only regions."""
    folder = source.path.absolute()
    for split in open_precomp(folder):
        place = Place(folder / f"{split.name}_caps.txt")
        for key, captions in zip(split.keys, split.captions, strict=True):
            yield LocatedRecord(
                place,
                Record(
                    id=key,
                    photo=PhotoFile(folder / key),
                    uri=key,
                    captions=captions,
                    split=_SPLITS.get(split.name, split.name),
                ),
            )


def open_precomp(folder: Path) -> list[PrecompSplit]:
    """Find the splits of a folder, with the files of each."""
    return [
        _open_split(folder, images.name.removesuffix(_IMAGES))
        for images in sorted(folder.glob(f"*{_IMAGES}"))
    ]


def map_images(file: Path) -> np.ndarray:
    """Map an array (rows, regions, numbers) into memory; rows are read on demand."""
    try:
        with readable(file):
            images: np.ndarray = np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise DataError(file, None, f"expected an array of numbers ({error})") from None
    if images.ndim != 3 or 0 in images.shape:
        expected = "an array of shape (photos, regions, numbers)"
        raise DataError(file, None, f"expected {expected}, found {images.shape}")
    return images


def _open_split(folder: Path, name: str) -> PrecompSplit:
    file = folder / f"{name}{_IMAGES}"
    images = map_images(file)
    rows = len(images)
    captions_file = folder / f"{name}_caps.txt"
    captions = _lines(captions_file)
    if not captions or len(captions) % rows:
        expected = f"one caption a line, the same number for each of the {rows} rows of {file.name}"
        raise DataError(captions_file, None, f"expected {expected}; found {len(captions)} lines")
    rows_a_photo = _REPEATED if len(captions) == rows and _is_repeated(images) else 1
    if rows_a_photo > 1:
        logger.info(
            "%s: %d rows for %d captions: each photo's row is there %d times, one is read",
            *(file, rows, len(captions), rows_a_photo),
        )
    photos = rows // rows_a_photo
    each = len(captions) // photos
    return PrecompSplit(
        name=name,
        images=file,
        keys=[f"{name}/{photo_id}" for photo_id in _ids(folder, name, photos, each)],
        rows_a_photo=rows_a_photo,
        captions=[
            tuple(caption for caption in captions[first : first + each] if caption)
            for first in range(0, len(captions), each)
        ],
    )


def _is_repeated(images: np.ndarray) -> bool:
    """Tell whether each five rows are equal, by comparing some groups of five."""
    if len(images) % _REPEATED:
        return False
    groups = len(images) // _REPEATED
    for group in np.linspace(0, groups - 1, min(groups, _GROUPS_COMPARED)).astype(int):
        rows = images[group * _REPEATED : (group + 1) * _REPEATED]
        if not np.array_equal(rows, np.broadcast_to(rows[:1], rows.shape)):
            return False
    return True


def _ids(folder: Path, name: str, photos: int, captions_a_photo: int) -> list[str]:
    """Return the photos' ids, or their numbers if every caption has an id of its own."""
    file = folder / f"{name}_ids.txt"
    numbers = [str(number) for number in range(photos)]
    if not file.exists():
        return numbers
    ids = _lines(file)
    if len(ids) == photos * captions_a_photo and captions_a_photo > 1:
        groups = [ids[n : n + captions_a_photo] for n in range(0, len(ids), captions_a_photo)]
        if any(len(set(group)) > 1 for group in groups):
            return numbers
        ids = [group[0] for group in groups]
    elif len(ids) != photos:
        expected = f"an id for each of {photos} photos or {photos * captions_a_photo} captions"
        raise DataError(file, None, f"expected {expected}, found {len(ids)}")
    first: dict[str, int] = {}
    for number, photo_id in enumerate(ids):
        if not photo_id or photo_id in first:
            raise DataError(
                file, None, f"expected an id of its own for each photo: {brief(photo_id)}"
            )
        first[photo_id] = number
    return ids


def _lines(file: Path) -> list[str]:
    try:
        with readable(file):
            return [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    except UnicodeDecodeError as error:
        raise DataError(file, None, f"not UTF-8 at byte {error.start + 1}") from None
