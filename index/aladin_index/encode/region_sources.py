"""Where a network that reads regions of photos takes them from: files, or a detector."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from aladin_network.detectors.base import Detector
from aladin_network.encoders.readers import PhotoReader
from aladin_network.errors import ConfigError, InputError
from aladin_network.inference import Network
from aladin_network.photos.regions import RegionSet


@runtime_checkable
class RegionReader(Protocol):
    """Ready-made regions of photos; safe to use from any number of threads."""

    @property
    def fingerprint(self) -> str:
        """Identifies the regions of all photos."""
        ...

    def read(self, key: str) -> RegionSet: ...


RegionSource = RegionReader | Detector  # where a network that reads regions takes them from


def check_detector(encoder: PhotoReader, detector: Detector | None) -> None:
    """Refuse a detector that is of no use for an index.

    Args:
        encoder: Image encoder of the index.
        detector: None is never refused: ready-made regions may be sent.

    Raises:
        ConfigError: If the model does not read regions, or those of another detector.
    """
    if detector is None:
        return
    if encoder.reads != "regions":
        raise ConfigError(f"detector: this index's model reads no regions, but {encoder.reads}s")
    needed = encoder.config.detector
    if needed is not None and needed != detector.id:
        raise ConfigError(
            f"detector: expected {needed}, as the model was trained, got {detector.id}"
        )


def check_regions(model: Network, regions: RegionSource | None) -> None:
    """Refuse regions for a network that reads photos, and the reverse."""
    reads = model.image.encoder.reads
    if (reads == "regions") != (regions is not None):
        expected, found = ("regions", "none") if regions is None else ("photos", "regions")
        raise InputError(f"images: this network reads {expected}, got {found}")
