"""Conversion of data files to index items, one by one: a source may exceed memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

from aladin_index.encode.source_items import ImageItem, PhotoPlaces, TextItem, cut_text
from aladin_index.format.skipped import SkippedItem
from aladin_index.search.word_filters import FOLDER
from aladin_network.photos.formats import PHOTO_SUFFIXES
from aladin_training.data import Record, iter_records
from aladin_training.data.folder import common_folder
from aladin_training.data.folder_rules import FolderRules
from aladin_training.data.records import OnSkip, SkippedPhoto, ignore_skipped
from aladin_training.data.regions import RegionStore, region_key, region_keys
from aladin_training.data.texts import iter_texts


def images_of_all(
    sources: Sequence[Path],
    split: str | None,
    regions: RegionStore | None = None,
    places: PhotoPlaces | None = None,
    rules: FolderRules | None = None,
) -> Iterator[ImageItem | SkippedItem]:
    """Read the photos of several sources, one after another, each as `image_items` reads it.

    Files of photos that follow each other, as a shell writes them for ``*.jpg``, are one source:
    one that cannot be read is skipped, and is an error only if it was the only one.
    """
    groups: list[Path | list[Path]] = []
    for source in sources:
        if source.suffix.lower() not in PHOTO_SUFFIXES or not source.is_file():
            groups.append(source)
        elif groups and isinstance(photos := groups[-1], list):
            photos.append(source)
        else:
            groups.append([source])
    return chain.from_iterable(
        [image_items(group, split, regions, places, rules) for group in groups]
    )


def image_items(
    source: Path | Sequence[Path],
    split: str | None,
    regions: RegionStore | None = None,
    places: PhotoPlaces | None = None,
    rules: FolderRules | None = None,
) -> Iterator[ImageItem | SkippedItem]:
    """Read the photos of a data set.

    Args:
        source: Source of any format that `aladin_training.data` supports, or several files of one.
        split: Split to read, or None for all photos.
        regions: Regions of the photos, for a network that reads regions; before the first photo is
            returned, the source is read through to check that each photo has regions.
        places: Looks up where each photo is stored, or None if no photo will be shown to anyone.
        rules: What is skipped in a folder of photos, and counts of it; None for the defaults.

    Returns:
        The photos, and among them what looks like a photo and is skipped.

    Raises:
        DataError: If the source cannot be used.
        RegionError: If photos have no regions.
    """
    rules = rules or FolderRules()
    if regions is not None:
        records = iter_records(
            source,
            split,
            require_captions=False,
            on_skip=ignore_skipped,
            rules=FolderRules(rules.exclude, sidecars=False),
        )
        region_keys(records, regions)
    # Opened here, not with the first photo, so that a missing source is detected at once.
    skipped: list[SkippedPhoto] = []
    records = iter_records(
        source, split, require_captions=False, on_skip=skipped.append, rules=rules
    )

    of_folder = isinstance(source, Path) and source.is_dir()

    def items() -> Iterator[ImageItem | SkippedItem]:
        for record in records:
            yield from _as_skipped_items(skipped)
            fault = None if places is None else places.fault(record.photo.path, record.uri)
            if fault is not None:
                yield SkippedItem(record.id, fault)
                continue
            key = None if regions is None else region_key(record, regions)
            yield photo_item(record, key, skipped.append, of_folder=of_folder)
        yield from _as_skipped_items(skipped)

    return items()


def photo_item(
    record: Record, regions_key: str | None, on_skip: OnSkip, *, of_folder: bool
) -> ImageItem:
    """Return the item of a photo, with its first caption as far as it is stored."""
    text = record.captions[0] if record.captions else None
    if text is not None:
        text, cut = cut_text(text, "images")
        if cut is not None:
            on_skip(SkippedPhoto(record.id, f"indexed, but {cut}", is_part=True))
    return ImageItem(
        id=record.id,
        path=record.photo.path,
        offset=record.photo.offset,
        length=record.photo.length,
        regions_key=regions_key,
        uri=record.uri,
        text=text,
        metadata=_with_folders(record) if of_folder else record.metadata,
        of_folder=of_folder,
    )


def _with_folders(record: Record) -> Mapping[str, Any]:
    """Return a photo's metadata with the names of its folders inside the source, outermost first.

    So they are searched as words, and filters can name them.
    """
    tar = record.photo.path.name  # of a photo that is part of one: no folder
    above = [name for name in PurePosixPath(record.uri).parts[:-1] if name != tar]
    folders = list(dict.fromkeys(above))
    return {FOLDER: folders, **record.metadata} if folders else record.metadata


def photo_places(source: Path | Sequence[Path], root: Path | Sequence[Path] | None) -> PhotoPlaces:
    """Return an object that looks up where the photos of a data set are stored.

    Args:
        source: Source of any format that `aladin_training.data` supports, or several of them.
        root: Folder or folders outside of which no photo is used, or None to use photos from
            anywhere; see `PhotoPlaces`.
    """
    sources = [source] if isinstance(source, Path) else source
    return PhotoPlaces([each if each.is_dir() else common_folder(each) for each in sources], root)


def text_items(
    source: Path, split: str | None, *, report: bool = True
) -> Iterator[TextItem | SkippedItem]:
    """Read texts, or the captions of a data set.

    Args:
        source: JSONL or a table of texts, or any source of photos with captions.
        split: Split whose captions are read, or None for all captions.
        report: Whether to return what is skipped, too: False if another reading does.

    Returns:
        The texts, and among them what is skipped.

    Raises:
        DataError: If the source cannot be used.
    """
    skipped: list[SkippedPhoto] = []
    records = iter_texts(source, split, skipped.append if report else ignore_skipped)

    def items() -> Iterator[TextItem | SkippedItem]:
        for each in records:
            yield from _as_skipped_items(skipped)
            text, cut = cut_text(each.text, "texts")
            yield replace(each, text=text)
            if cut is not None and report:
                yield SkippedItem(each.id, f"indexed, but {cut}")
        yield from _as_skipped_items(skipped)

    return items()


def texts_of_all(
    sources: Sequence[Path], split: str | None, reported: Sequence[Path] = ()
) -> Iterator[TextItem | SkippedItem]:
    """Read the texts of several sources, one after another, each as `text_items` reads it."""
    return chain.from_iterable(
        [text_items(source, split, report=source not in reported) for source in sources]
    )


def _as_skipped_items(skipped: list[SkippedPhoto]) -> Iterator[SkippedItem]:
    """Yield the photos that a reader has skipped so far."""
    while skipped:
        photo = skipped.pop(0)
        yield SkippedItem(photo.name, photo.reason)
