"""What a detector offers, and how one is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from PIL import Image

from aladin.regions.region_set import RegionSet


@runtime_checkable
class Detector(Protocol):
    """Finds the regions of photos; safe to use from any number of threads.

    Attributes:
        id: what the vectors depend on, the same on every machine: the kind of detector, its
            weights and its options. A network is only good for the detector of its training.
        dim: numbers of each vector, geometry included.
    """

    id: str
    dim: int

    def detect(self, photo: Image.Image) -> RegionSet:
        """Find the regions of an upright RGB photo.

        Returns:
            At least one region, with its box; `detector` is this one's id.

        Raises:
            InputError: the photo cannot be used.
        """
        ...


@runtime_checkable
class BatchDetector(Detector, Protocol):
    """A detector that is faster with several photos at once."""

    def detect_batch(self, photos: Sequence[Image.Image]) -> list[RegionSet]:
        """Find the regions of each photo, the same as `detect` finds up to rounding."""
        ...


@runtime_checkable
class DetectorFactory(Protocol):
    """Makes a detector from what the user wrote; see `aladin.detectors.loading`."""

    def __call__(self, source: str | None, options: Mapping[str, str], device: str) -> Detector:
        """Make it.

        Args:
            source: folder or hub name of weights; None: the user gave none.
            options: as they were written.
            device: where to run, as torch names it.

        Raises:
            ConfigError: an option is unknown or impossible.
            CheckpointError: the weights cannot be loaded.
        """
        ...


def detect_all(detector: Detector, photos: Sequence[Image.Image]) -> list[RegionSet]:
    """Find the regions of several photos, together where the detector can do so."""
    if isinstance(detector, BatchDetector):
        return detector.detect_batch(photos)
    return [detector.detect(photo) for photo in photos]
