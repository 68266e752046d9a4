"""From items to encodings: each is read and decoded by itself, then encoded in a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from aladin.decoding_memory import DecodingMemory
from aladin.encoders.base import RegionInput
from aladin.encoding import Encoding
from aladin.errors import InputError
from aladin.images import ImageLimits, decoded_image
from aladin.inference import encode_images, encode_texts, tokenize
from aladin.model import AladinModel
from aladin.regions.region_set import RegionSet
from index.building.source_items import ImageItem, TextItem
from index.settings import Target


class LeftOut(NamedTuple):
    """An item that cannot be used.

    Attributes:
        id: the user's own.
        reason: in words.
    """

    id: str
    reason: str


class Prepared(NamedTuple):
    """An item that is ready for the network.

    Attributes:
        row: of the item in the build's input.
        data: what the encoder's `encode` takes.
        size_px: width and height of an upright photo; None for a text, or not known.
        boxes: (regions, 4) of a photo's regions, in fractions of it; None: not known, or the
            network reads photos.
    """

    row: int
    data: Any
    size_px: tuple[int, int] | None
    boxes: NDArray[np.float32] | None = None


class ItemEncoder(Protocol):
    """Encodes the items of one side; `read` and `decode` are called by several threads at once."""

    def read(self, item: Any) -> Any:
        """Read what the item names.

        Raises:
            InputError: it cannot be used.
        """
        ...

    def decode(self, row: int, item: Any, data: Any) -> Prepared:
        """Bring what was read into the network's form.

        Raises:
            InputError: it cannot be used.
        """
        ...

    def encode(self, batch: Sequence[Prepared]) -> Encoding:
        """Encode items of this encoder's `decode`; the result is in the processor's memory."""
        ...


class RegionReader(Protocol):
    """Where the regions of photos come from; any number of threads may read."""

    @property
    def fingerprint(self) -> str:
        """Identify all regions that there are."""
        ...

    def read(self, key: str) -> RegionSet:
        """Return the regions of a photo.

        Raises:
            InputError: there are none, or they cannot be used.
        """
        ...


class PhotoEncoder:
    """Reads, decodes and encodes photos."""

    def __init__(self, model: AladinModel, limits: ImageLimits) -> None:
        """Encode with `model`; photos over the limits are refused."""
        self._model = model
        self._limits = limits
        self._memory = DecodingMemory()

    def read(self, item: ImageItem) -> bytes:
        """Read a photo's bytes."""
        return item.photo.read(self._limits.max_bytes)

    def decode(self, row: int, item: ImageItem, data: bytes) -> Prepared:
        """Bring a photo to the network's size; the photo itself is let go."""
        with decoded_image(data, self._memory, item.photo.source, self._limits) as photo:
            return Prepared(row, self._model.image.encoder.preprocess(photo), photo.size)

    def encode(self, batch: Sequence[Prepared]) -> Encoding:
        """Encode photos."""
        return encode_images(self._model, [prepared.data for prepared in batch]).to("cpu")


class RegionsEncoder:
    """Reads and encodes the regions of photos; the photos themselves are only shown."""

    def __init__(self, model: AladinModel, regions: RegionReader) -> None:
        """Encode with `model`."""
        self._model = model
        self._regions = regions

    def read(self, item: ImageItem) -> RegionSet:
        """Read the regions of a photo."""
        if item.regions_key is None:
            raise InputError("expected the key of its regions, got none")
        return self._regions.read(item.regions_key)

    def decode(self, row: int, item: ImageItem, data: RegionSet) -> Prepared:  # noqa: ARG002
        """Bring regions to the network's form."""
        value = self._model.image.encoder.preprocess(data)
        assert isinstance(value, RegionInput)  # this network's encoder reads regions
        boxes = None if data.boxes is None else data.boxes[: len(value.vectors)]
        return Prepared(row, value, data.size_px, boxes)

    def encode(self, batch: Sequence[Prepared]) -> Encoding:
        """Encode regions."""
        return encode_images(self._model, [prepared.data for prepared in batch]).to("cpu")


class SentenceEncoder:
    """Encodes texts."""

    def __init__(self, model: AladinModel) -> None:
        """Encode with `model`."""
        self._model = model

    def read(self, item: TextItem) -> str:
        """Return the text, which is there already."""
        return item.text

    def decode(self, row: int, item: TextItem, data: str) -> Prepared:  # noqa: ARG002
        """Refuse a text that is blank or too long for the network."""
        tokenize(self._model, [data])
        return Prepared(row, data, None)

    def encode(self, batch: Sequence[Prepared]) -> Encoding:
        """Encode texts."""
        return encode_texts(self._model, [prepared.data for prepared in batch]).to("cpu")


def encoder_of(
    target: Target, model: AladinModel, limits: ImageLimits, regions: RegionReader | None = None
) -> ItemEncoder:
    """Return the encoder of one side.

    Args:
        target: the side.
        model: that encodes it.
        limits: what a photo may cost.
        regions: of the photos, for a network that reads regions; None for one that reads photos.

    Raises:
        InputError: the regions are missing, or the network reads none.
    """
    if target == "texts":
        return SentenceEncoder(model)
    check_regions(model, regions)
    return PhotoEncoder(model, limits) if regions is None else RegionsEncoder(model, regions)


def check_regions(model: AladinModel, regions: RegionReader | None) -> None:
    """Refuse regions for a network of photos, and a network of regions without any.

    Raises:
        InputError: the two do not go together.
    """
    reads = model.image.encoder.reads
    if (reads == "regions") != (regions is not None):
        expected, found = ("regions", "none") if regions is None else ("photos", "regions")
        raise InputError(f"images: this network reads {expected}, got {found}")
