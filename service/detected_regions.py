"""Regions that are found in the photos themselves while an index is built or added to."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from aladin.detectors.base import Detector
from aladin.detectors.loading import load_detector
from aladin.images import read_image
from aladin.photo_file import PhotoFile
from aladin.regions.region_set import RegionSet
from index.building.item_encoders import LeftOut
from index.building.source_items import ImageItem


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


def with_photo_keys(items: Iterable[ImageItem | LeftOut]) -> Iterator[ImageItem | LeftOut]:
    """Give each item the key by which `DetectedRegions` finds its regions."""
    for item in items:
        if isinstance(item, LeftOut):
            yield item
            continue
        key = json.dumps([str(item.path), item.offset, item.length])
        yield dataclasses.replace(item, regions_key=key)
