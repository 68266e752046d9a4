"""From items to encodings: each item is read and decoded by itself, then encoded in a batch.

This is the only way for a photo to the network, whether a build, ``aladin index add``, a request
or a query brings it: `ImageReader` applies the limits of bytes, pixels, formats and memory.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from aladin_index.encode.encoded import ItemBatch
from aladin_index.encode.region_sources import RegionReader, RegionSource, check_regions
from aladin_index.encode.source_items import (
    ImageItem,
    Prepared,
    SourceItem,
    TextItem,
    date_of_file,
    stored_form,
)
from aladin_index.format.skipped import SkippedItem
from aladin_index.settings import EncodeSettings
from aladin_network.detectors.base import Detector
from aladin_network.encoders.readers import PhotoReader
from aladin_network.errors import InputError, brief
from aladin_network.inference import (
    PHOTOS_AT_A_TIME,
    Network,
    encode_documents,
    encode_images,
    is_cut,
)
from aladin_network.photos.decoding import (
    DEFAULT_LIMITS,
    ImageLimits,
    decoded_image,
)
from aladin_network.photos.fields import over
from aladin_network.photos.fingerprint import fingerprint
from aladin_network.photos.memory import (
    DecodingMemory,
    MemoryBudget,
    SharedDecodingMemory,
    bytes_for_pixels,
)
from aladin_network.photos.region_files import RegionLimits, read_region_npz
from aladin_network.photos.regions import RegionSet
from aladin_network.scoring.encoding import Encoding
from aladin_network.types import Target

logger = logging.getLogger(__name__)

# Fewer threads do not wait for each other.
_LEAST_PROCESSES = 4

# Field of the metadata of a text that is longer than the network reads: how many tokens it reads.
CUT = "cut_to_tokens"


def warn_of_cut(metadata: Iterable[Mapping[str, Any]]) -> None:
    """Log how many texts are longer than the network reads, by what `Prepared.metadata` says."""
    count = sum(CUT in each for each in metadata)
    if count:
        logger.warning(
            "%d texts are longer than the network reads: their ends are not searched, and %s in "
            "their metadata says what is",
            count,
            CUT,
        )


class RegionsNeededError(InputError):
    """The model reads regions, and nothing here can find those that it knows in a photo."""


class ImageReader:
    """Reads photos and files of regions; safe to use from any number of threads.

    Attributes:
        limits: Limits of the bytes and pixels of a photo.
        exif: Whether what a photo tells of itself is read.
    """

    def __init__(
        self,
        limits: ImageLimits = DEFAULT_LIMITS,
        *,
        memory: MemoryBudget | None = None,
        regions: RegionLimits | None = None,
        detector: Detector | None = None,
        exif: bool = True,
    ) -> None:
        self.limits = limits
        self._memory = memory or DecodingMemory.for_pixels(limits.max_pixels)
        self.exif = exif
        self._region_limits = regions or RegionLimits()
        self._detector = detector

    def read_photo(self, encoder: PhotoReader, data: bytes, source: str) -> Prepared:
        """Read a picture file.

        Args:
            encoder: Image encoder of the index that is searched or extended.
            data: Undecoded bytes of the photo.
            source: Name of the photo in error messages.

        Raises:
            ImageError: If the photo cannot be used.
            OverloadedError: If the memory to decode the photo did not become free in time.
            RegionsNeededError: If the model reads regions, and there is no detector or another one.
        """
        detector = self._detector_for(encoder) if encoder.reads == "regions" else None
        with decoded_image(data, self._memory, source, self.limits) as photo:
            if detector is None:
                image = Prepared(encoder.preprocess(photo.picture), photo.size_px)
            else:
                image = prepare_regions(encoder, detector.detect(photo.picture), photo.size_px)
            told = photo.details(exif=self.exif)
            return image._replace(metadata=told, fingerprint=fingerprint(photo.picture))

    def read_regions(
        self, encoder: PhotoReader, data: bytes, photo: bytes | None, source: str
    ) -> Prepared:
        """Read ready-made regions.

        Args:
            encoder: Image encoder of the index that is searched or extended.
            data: Content of an npz file.
            photo: Undecoded picture file that the regions belong to, or None if not given.
            source: Name of the regions in error messages.

        Raises:
            RegionsTooLargeError: If the regions have too many bytes.
            RegionError: If the regions cannot be used, or come from another detector than the
                model's.
            ImageError: If the photo cannot be used.
            OverloadedError: If the memory to decode the photo did not become free in time.
            InputError: If the model reads photos.
        """
        if encoder.reads == "photo":
            raise InputError(f"{source}: this index's model reads photos; send the photo instead")
        regions = read_region_npz(data, source, self._region_limits)
        if photo is None:
            return prepare_regions(encoder, regions, regions.size_px)
        with decoded_image(photo, self._memory, "image", self.limits) as decoded:
            image = prepare_regions(encoder, regions, decoded.size_px)
            told = decoded.details(exif=self.exif)
            return image._replace(metadata=told, fingerprint=fingerprint(decoded.picture))

    def _detector_for(self, encoder: PhotoReader) -> Detector:
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


def prepare_regions(
    encoder: PhotoReader, regions: RegionSet, size_px: tuple[int, int] | None
) -> Prepared:
    """Bring the regions of a photo into the network's form."""
    value = encoder.preprocess(regions)
    boxes = None if regions.boxes is None else regions.boxes[: len(value.vectors)]
    return Prepared(value, size_px, boxes)


class StreamedItems(NamedTuple):
    """Items of one batch, encoded.

    Attributes:
        sources: Items in order.
        found: What became of each: how it was prepared, without the input of the network, or why
            it cannot be used.
        encoding: Encoding of the usable items in their order, or None if there are none.
    """

    sources: list[SourceItem]
    found: list[Prepared | SkippedItem]
    encoding: Encoding | None

    @property
    def usable(self) -> list[tuple[SourceItem, Prepared]]:
        """Items that were encoded, in order."""
        pairs = zip(self.sources, self.found, strict=True)
        return [(source, each) for source, each in pairs if isinstance(each, Prepared)]

    @property
    def skipped(self) -> list[SkippedItem]:
        """Items that cannot be used, in order."""
        return [each for each in self.found if isinstance(each, SkippedItem)]

    def stored(self) -> ItemBatch[NDArray[np.float32]] | None:
        """Return the usable items in the form that an index stores, or None if there are none."""
        if self.encoding is None:
            return None
        found = zip(self.sources, self.found, strict=True)
        pairs = [(source, each) for source, each in found if isinstance(each, Prepared)]
        return ItemBatch(
            items=[stored_form(*pair) for pair in pairs],
            embeddings=self.encoding.embedding,
            tokens=self.encoding.tokens[self.encoding.mask],
            lengths=self.encoding.mask.sum(axis=1),
            photos=[
                item.upload for item, _ in pairs if isinstance(item, ImageItem) and item.upload
            ],
        )


class ItemDecoder(Protocol):
    """Reads and decodes items, in any number of threads or in other processes."""

    def read(self, item: Any) -> Any: ...

    def decode(self, item: Any, data: Any) -> Prepared:
        """Convert the data of an item to the network's input."""
        ...


class ItemEncoder(ItemDecoder, Protocol):
    """Encodes items; several threads call `read` and `decode` at once, `callers` call `encode`."""

    @property
    def callers(self) -> int:
        """Number of threads that call `encode` at the same time."""
        ...

    @property
    def items_a_call(self) -> int | None:
        """Number of items that are decoded and encoded together, or None for a whole batch."""
        ...

    @property
    def elsewhere(self) -> ItemDecoder | None:
        """What other processes read and decode with in place of threads here, or None."""
        ...

    def encode(self, batch: Sequence[Prepared]) -> Encoding:
        """Encode items prepared by `decode`; the result is in CPU memory."""
        ...


@dataclass(frozen=True, kw_only=True)
class PhotoDecoder:
    """Reads and decodes photos, or their regions for a network that reads regions.

    Attributes:
        encoder: Image encoder of the network, or what prepares photos as it does.
        images: Reads photos and files of regions, and detects regions.
        regions: Ready-made regions of all photos, which are then not read, or None.
        on_read: Called with the undecoded bytes of each photo, by any thread, or None.
    """

    encoder: PhotoReader
    images: ImageReader
    regions: RegionReader | None = None
    on_read: Callable[[ImageItem, bytes], None] | None = None

    def read(self, item: ImageItem) -> RegionSet | bytes | None:
        """Read the photo's bytes or its ready-made regions; None if only uploaded regions exist."""
        if self.regions is not None:
            if item.regions_key is None:
                raise InputError("expected the key of its regions, got none")
            return self.regions.read(item.regions_key)
        if item.upload is not None:
            return item.upload.data
        if item.region_file is not None:
            return None
        data = item.photo.read(self.images.limits.max_bytes)
        if self.on_read is not None:
            self.on_read(item, data)
        return data

    def decode(self, item: ImageItem, data: RegionSet | bytes | None) -> Prepared:
        """Bring a photo, or its regions, into the network's form; a decoded photo is released."""
        encoder = self.encoder
        if isinstance(data, RegionSet):
            return prepare_regions(encoder, data, data.size_px)
        if item.region_file is not None:
            source = f"regions of item {brief(item.id)}"
            return self.images.read_regions(encoder, item.region_file, data, source)
        if data is None:
            raise InputError(f"item {brief(item.id)}: expected an image among the images, got none")
        source = f"image of item {brief(item.id)}" if item.upload else item.photo.source
        prepared = self.images.read_photo(encoder, data, source)
        if not (self.images.exif and item.of_folder):
            return prepared
        return prepared._replace(metadata=over(prepared.metadata, date_of_file(item)))


@dataclass(frozen=True, kw_only=True)
class PhotoEncoder(PhotoDecoder):
    """Reads, decodes and encodes photos; for attributes see `PhotoDecoder` and `ItemEncoder`."""

    model: Network
    callers: int = 1
    items_a_call: int = PHOTOS_AT_A_TIME
    elsewhere: PhotoDecoder | None = None

    def encode(self, batch: Sequence[Prepared]) -> Encoding:
        encoding = encode_images(self.model, [each.value for each in batch], self.items_a_call)
        return encoding if self.model.has_tokens else encoding.without_tokens()


@dataclass(frozen=True)
class TextEncoder:
    """Encodes texts."""

    model: Network
    callers: int = 1

    @property
    def items_a_call(self) -> None:
        """A whole batch, in which texts of similar length are found."""

    @property
    def elsewhere(self) -> None:
        """Nothing: texts need no decoding."""

    def read(self, item: TextItem) -> str:
        """Return the text, which needs no reading."""
        return item.text

    def decode(self, item: TextItem, data: str) -> Prepared:  # noqa: ARG002
        """Check that a text can be encoded, and note in its metadata if its end is not read."""
        if not is_cut(self.model, data):
            return Prepared(data, None)
        return Prepared(data, None, metadata={CUT: self.model.text.encoder.config.max_tokens})

    def encode(self, batch: Sequence[Prepared]) -> Encoding:
        encoding = encode_documents(self.model, [each.value for each in batch])
        return encoding if self.model.has_tokens else encoding.without_tokens()


def item_encoder(
    target: Target,
    model: Network,
    settings: EncodeSettings,
    regions: RegionSource | None = None,
    on_read: Callable[[ImageItem, bytes], None] | None = None,
) -> ItemEncoder:
    """Return an encoder of many images or texts, which has all processors to itself."""
    best = model.throughput()
    if target == "texts":
        return TextEncoder(best.network, best.callers)
    check_regions(model, regions)
    ready = regions if isinstance(regions, RegionReader) else None
    detector = None if isinstance(regions, RegionReader) else regions
    images = ImageReader(settings.limits, detector=detector, exif=settings.exif)
    apart = None
    # What is read elsewhere cannot be told here.
    is_many = settings.readers >= _LEAST_PROCESSES and sys.platform == "linux"
    if best.reader is not None and is_many and on_read is None:
        memory = SharedDecodingMemory(bytes_for_pixels(settings.limits.max_pixels))
        alike = ImageReader(settings.limits, memory=memory, exif=settings.exif)
        apart = PhotoDecoder(encoder=best.reader, images=alike)
    return PhotoEncoder(
        encoder=best.network.image.encoder,
        images=images,
        regions=ready,
        on_read=on_read,
        model=best.network,
        callers=best.callers,
        items_a_call=best.photos_a_call,
        elsewhere=apart,
    )
