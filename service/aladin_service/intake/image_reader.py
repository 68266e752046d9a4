"""From untrusted bytes to what an image encoder takes: a photo, or the regions found in it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from aladin_network.detectors.base import Detector
from aladin_network.encoders.base import ImageEncoder, ImageInput, RegionInput
from aladin_network.errors import ConfigError, InputError
from aladin_network.photos.decoding import decoded_image
from aladin_network.photos.region_files import read_region_npz
from aladin_network.photos.regions import RegionSet
from aladin_service.settings import QueryLimits


class RegionsNeededError(InputError):
    """The model reads regions, and nothing here can find those that it knows in a photo."""


class PreparedImage(NamedTuple):
    """A photo, or its regions, ready for the network.

    Attributes:
        value: what the image encoder's `preprocess` returned.
        size_px: width and height of the photo; None: not known.
        boxes: (regions, 4) of the regions that the network takes, in fractions of the photo; None:
            not known, or the encoder knows them by the photo's size.
    """

    value: ImageInput
    size_px: tuple[int, int] | None
    boxes: npt.NDArray[np.float32] | None = None


class ImageReader:
    """Reads what was uploaded; safe to use from any number of threads."""

    def __init__(self, limits: QueryLimits, detector: Detector | None = None) -> None:
        """Read nothing yet.

        Args:
            limits: what a photo and its regions may cost.
            detector: finds the regions of photos for models that read regions; None: none does.
        """
        self._limits = limits
        self._detector = detector

    def read_photo(self, encoder: ImageEncoder, data: bytes, source: str) -> PreparedImage:
        """Read a picture file.

        Args:
            encoder: of the index that is searched or added to.
            data: undecoded.
            source: names the photo in errors.

        Raises:
            ImageError: it cannot be used.
            OverloadedError: the memory to decode it did not become free in time.
            RegionsNeededError: the model reads regions, and there is no detector or another one.
        """
        if encoder.reads == "regions":
            detector = self._detector_for(encoder)
            with self._decoded(data, source) as photo:
                return _read_regions(encoder, detector.detect(photo), photo.size)
        with self._decoded(data, source) as photo:
            return PreparedImage(encoder.preprocess(photo), photo.size)

    def read_regions(
        self, encoder: ImageEncoder, data: bytes, photo: bytes | None, source: str
    ) -> PreparedImage:
        """Read ready-made regions.

        Args:
            encoder: of the index that is searched or added to.
            data: an npz file.
            photo: the picture file that they are of, undecoded; None: not given.
            source: names the regions in errors.

        Raises:
            RegionsTooLargeError: they have too many bytes.
            RegionError: they cannot be used, or come from another detector than the model's.
            ImageError: the photo cannot be used.
            OverloadedError: the memory to decode the photo did not become free in time.
            InputError: the model reads photos.
        """
        if encoder.reads == "photo":
            raise InputError(f"{source}: this index's model reads photos; send the photo instead")
        regions = read_region_npz(data, source, self._limits.regions)
        if photo is None:
            return _read_regions(encoder, regions, regions.size_px)
        with self._decoded(photo, "image") as decoded:
            return _read_regions(encoder, regions, decoded.size)

    def _decoded(self, data: bytes, source: str) -> AbstractContextManager[Image.Image]:
        return decoded_image(data, self._limits.memory, source, self._limits.image)

    def _detector_for(self, encoder: ImageEncoder) -> Detector:
        needed = encoder.config.detector
        send = "send the regions of the photo instead (an npz file in `regions`)"
        if self._detector is None:
            of = "" if needed is None else f" of the detector {needed}"
            raise RegionsNeededError(
                f"image: this index's model reads regions{of}; no detector is set up here; {send}"
            )
        if needed is not None and needed != self._detector.id:
            raise RegionsNeededError(
                f"image: this index's model reads regions of the detector {needed}, the one that "
                f"is set up here is {self._detector.id}; {send}"
            )
        return self._detector


def _read_regions(
    encoder: ImageEncoder, regions: RegionSet, size_px: tuple[int, int] | None
) -> PreparedImage:
    value = encoder.preprocess(regions)
    assert isinstance(value, RegionInput)  # of an encoder that reads regions
    boxes = None if regions.boxes is None else regions.boxes[: len(value.vectors)]
    return PreparedImage(value, size_px, boxes)


def check_detector(encoder: ImageEncoder, detector: Detector | None) -> None:
    """Refuse a detector that is of no use for an index.

    Args:
        encoder: of the index.
        detector: None is never refused: ready-made regions may be sent.

    Raises:
        ConfigError: the model reads photos, or regions of another detector.
    """
    if detector is None:
        return
    if encoder.reads == "photo":
        raise ConfigError("detector: this index's model reads photos, it has no use for one")
    needed = encoder.config.detector
    if needed is not None and needed != detector.id:
        raise ConfigError(
            f"detector: expected {needed}, as the model was trained, got {detector.id}"
        )
