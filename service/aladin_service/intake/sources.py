"""From data files to the items of an index, one by one: a source may be larger than memory.

Regions that are found in the photos themselves while an index is built or added to.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from aladin_index.encode.source_items import ImageItem, PhotoPlaces, TextItem
from aladin_index.format.records import SkippedItem
from aladin_network.detectors.base import Detector, load_detector
from aladin_network.photos.decoding import read_image
from aladin_network.photos.files import PhotoFile
from aladin_network.photos.regions import RegionSet
from aladin_training.data import iter_records
from aladin_training.data.formats import common_folder
from aladin_training.data.records import OnSkip, SkippedPhoto, ignore_skipped, log_skipped
from aladin_training.data.regions import RegionStore, region_key, region_keys
from aladin_training.data.texts import iter_texts


def image_items(
    source: Path,
    split: str | None,
    regions: RegionStore | None = None,
    places: PhotoPlaces | None = None,
) -> Iterator[ImageItem | SkippedItem]:
    """Read the photos of a data set.

    Args:
        source: of any format that `aladin_training.data` knows.
        split: only this one; None: all photos.
        regions: of the photos, for a network that reads these; before the first photo is
            returned, the source is read through to see that each has its regions.
        places: looks where each photo lies; None: it does not matter, for nobody will be shown
            the photos.

    Returns:
        The photos, and among them what looks like a photo and is left out.

    Raises:
        DataError: the source cannot be used; while reading, a photo of it cannot.
        RegionError: photos have no regions.
    """
    if regions is not None:
        records = iter_records(source, split, require_captions=False, on_skip=ignore_skipped)
        region_keys(records, regions)
    # Opened here, not with the first photo: a source that is not there is found at once.
    skipped: list[SkippedPhoto] = []
    records = iter_records(source, split, require_captions=False, on_skip=skipped.append)

    def items() -> Iterator[ImageItem | SkippedItem]:
        for record in records:
            yield from _left_out(skipped)
            fault = None if places is None else places.fault(record.photo.path, record.uri)
            if fault is not None:
                yield SkippedItem(record.id, fault)
                continue
            yield ImageItem(
                id=record.id,
                path=record.photo.path,
                offset=record.photo.offset,
                length=record.photo.length,
                regions_key=None if regions is None else region_key(record, regions),
                uri=record.uri,
                text=record.captions[0] if record.captions else None,
                metadata=record.metadata,
            )
        yield from _left_out(skipped)

    return items()


def photo_places(source: Path, root: Path | None) -> PhotoPlaces:
    """Return what looks where the photos of a data set lie.

    Args:
        source: of any format that `aladin_training.data` knows.
        root: folder outside of which no photo is taken, or None to take photos from anywhere.
    """
    return PhotoPlaces(source if source.is_dir() else common_folder(source), root)


def text_items(
    source: Path, split: str | None, on_skip: OnSkip = log_skipped
) -> Iterator[TextItem]:
    """Read texts, or the captions of a data set.

    Args:
        source: JSONL or a table of texts, or any source of photos with captions.
        split: only the captions of this one; None: all.
        on_skip: called with each file that looks like a photo and cannot be read; its captions
            are not among the texts.

    Raises:
        DataError: the source cannot be used; while reading, a text of it cannot.
    """
    return (
        TextItem(id=record.id, text=record.text, metadata=record.metadata, image_id=record.image_id)
        for record in iter_texts(source, split, on_skip)
    )


def _left_out(skipped: list[SkippedPhoto]) -> Iterator[SkippedItem]:
    """Hand on what a reader has skipped so far."""
    while skipped:
        photo = skipped.pop(0)
        yield SkippedItem(photo.name, photo.reason)


class DetectedRegions:
    """Has a detector look at each photo when its regions are asked for; see `RegionReader`.

    The key of a photo's regions is where its bytes are.
    """

    def __init__(self, detector: Detector) -> None:
        """Look at nothing yet."""
        self._detector = detector

    @property
    def fingerprint(self) -> str:
        """The detector's id: the photos are part of the items."""
        return self._detector.id

    def read(self, key: str) -> RegionSet:
        """Find the regions of a photo.

        Raises:
            ImageError: its file is missing or damaged.
            InputError: the detector does not take it.
        """
        path, offset, length = json.loads(key)
        return self._detector.detect(read_image(PhotoFile(Path(path), offset, length)))


def open_detector(name: str, device: str) -> DetectedRegions:
    """Load the detector that --detector names; for a node that finds the regions of its photos.

    Raises:
        ConfigError: there is no such detector, or an option of it is impossible.
        CheckpointError: its weights cannot be loaded.
    """
    return DetectedRegions(load_detector(name, device))


def with_photo_keys(items: Iterable[ImageItem | SkippedItem]) -> Iterator[ImageItem | SkippedItem]:
    """Give each item the key by which `DetectedRegions` finds its regions."""
    for item in items:
        if isinstance(item, SkippedItem):
            yield item
            continue
        key = json.dumps([str(item.path), item.offset, item.length])
        yield dataclasses.replace(item, regions_key=key)
