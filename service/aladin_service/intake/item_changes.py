"""Adding items to an index and removing them, by whichever front door: from bytes to the disk."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aladin_index.changes.writer import AddReport, DeleteReport, ItemWriter
from aladin_index.encode.add import new_items
from aladin_index.encode.source_items import ImageItem, TextItem, check_item, stored_form
from aladin_index.items.tables import StoredItem
from aladin_index.items.uploaded_photos import UploadedPhoto
from aladin_network.detectors.base import Detector
from aladin_network.encoders.base import ImageInput
from aladin_network.errors import InputError, TextTooLongError
from aladin_network.inference import encode_images, encode_texts, tokenize
from aladin_network.model import AladinModel
from aladin_network.scoring.scores import Encoding
from aladin_network.types import OnDuplicate, Target
from aladin_service.intake.image_reader import ImageReader, PreparedImage
from aladin_service.settings import QueryLimits


@dataclass(frozen=True, kw_only=True)
class PhotoToAdd:
    """A picture file, its regions, or both, that are to become an item.

    Attributes:
        id: of the new item.
        data: the undecoded, untrusted bytes, which the index keeps; None: it will show no photo.
        regions: an npz file of a photo's regions, untrusted; None: the photo itself is looked at.
        uri: what is shown with it; None: its id.
        text: a caption that is shown with it; it takes no part in the search.
        metadata: JSON values by field name.
    """

    id: str
    data: bytes | None
    regions: bytes | None = None
    uri: str | None = None
    text: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, kw_only=True)
class TextToAdd:
    """A text that is to become an item.

    Attributes:
        id: of the new item.
        text: the text itself.
        metadata: JSON values by field name.
    """

    id: str
    text: str
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, kw_only=True)
class TimedAddReport:
    """What was added, and where the time went.

    Attributes:
        report: what the index says.
        decode_ms: time to turn bytes into pixels, and those into regions where the network
            reads regions.
        encode_ms: time in the network.
        write_ms: time until all was on the disk.
    """

    report: AddReport
    decode_ms: float
    encode_ms: float
    write_ms: float


class ItemChanger:
    """Adds items to an index and removes them; safe to use from any number of threads."""

    def __init__(
        self, writer: ItemWriter, limits: QueryLimits, detector: Detector | None = None
    ) -> None:
        """Change an index.

        Args:
            writer: of the index, for the model that `add_photos` and `add_texts` will be given;
                closed with this.
            limits: what an item may cost.
            detector: finds the regions of photos, for a model that reads regions; None: none does.
        """
        self._writer = writer
        self._limits = limits
        self._images = ImageReader(limits, detector)

    def add_photos(
        self, model: AladinModel, photos: Sequence[PhotoToAdd], on_duplicate: OnDuplicate
    ) -> TimedAddReport:
        """Add photos in one step; their bytes are kept in the index.

        Raises:
            ImageError: a picture cannot be used; nothing is added.
            InputError: regions that cannot be used or are missing, an item that no index could
                hold, or metadata over a limit; nothing is added.
            DuplicateItemError: an id is there, and that is an error; nothing is added.
            SearchIndexError: the index has no images, or cannot be written.
        """
        started = time.perf_counter()
        uploads = [None if photo.data is None else UploadedPhoto(photo.data) for photo in photos]
        items: list[StoredItem] = []
        inputs: list[ImageInput] = []
        for photo, upload in zip(photos, uploads, strict=True):
            source = ImageItem(
                id=photo.id,
                path=Path(upload.path) if upload else Path(),
                uri=photo.id if photo.uri is None else photo.uri,
                text=photo.text,
                metadata=photo.metadata,
            )
            check_item(source, "images", self._limits.metadata)
            self._check_length(photo.id, photo.text or "")
            read = self._read(model, photo)
            stored = stored_form(source, read.size_px, read.boxes)
            items.append(stored if upload else stored._replace(path=None))
            # Of the size that the network takes: the photo itself may have 64 million pixels.
            inputs.append(read.value)
        decoded_at = time.perf_counter()
        encoding = encode_images(model, inputs)
        return self._add("images", items, encoding, uploads, on_duplicate, started, decoded_at)

    def add_texts(
        self, model: AladinModel, texts: Sequence[TextToAdd], on_duplicate: OnDuplicate
    ) -> TimedAddReport:
        """Add texts in one step.

        Raises:
            InputError: a text is blank, too long, or no index could hold it, or metadata over a
                limit; nothing is added.
            DuplicateItemError: an id is there, and that is an error; nothing is added.
            SearchIndexError: the index has no texts, or cannot be written.
        """
        started = time.perf_counter()
        items: list[StoredItem] = []
        for text in texts:
            source = TextItem(id=text.id, text=text.text, metadata=text.metadata)
            check_item(source, "texts", self._limits.metadata)
            self._check_length(text.id, text.text)
            _check_words(model, text)
            items.append(stored_form(source, None))
        encoding = encode_texts(model, [text.text for text in texts])
        return self._add("texts", items, encoding, (), on_duplicate, started, started)

    def delete(self, target: Target, item_id: str) -> DeleteReport:
        """Remove one item.

        Raises:
            UnknownItemError: it is not there.
            SearchIndexError: the index has no such side, or cannot be written.
        """
        return self._writer.delete(target, [item_id])

    def close(self) -> None:
        """Close the writer; no change may run any more."""
        self._writer.close()

    def _add(
        self,
        target: Target,
        items: Sequence[StoredItem],
        encoding: Encoding,
        uploads: Sequence[UploadedPhoto | None],
        on_duplicate: OnDuplicate,
        started_s: float,
        decoded_s: float,
    ) -> TimedAddReport:
        encoded_s = time.perf_counter()
        report = self._writer.add(
            target,
            new_items(items, encoding, [upload for upload in uploads if upload]),
            on_duplicate,
        )
        return TimedAddReport(
            report=report,
            decode_ms=1000 * (decoded_s - started_s),
            encode_ms=1000 * (encoded_s - decoded_s),
            write_ms=1000 * (time.perf_counter() - encoded_s),
        )

    def _read(self, model: AladinModel, photo: PhotoToAdd) -> PreparedImage:
        encoder, of = model.image.encoder, f"of item {photo.id!r}"
        if photo.regions is not None:
            return self._images.read_regions(encoder, photo.regions, photo.data, f"regions {of}")
        if photo.data is None:
            raise InputError(f"item {photo.id!r}: expected an image among the images, got none")
        return self._images.read_photo(encoder, photo.data, f"image {of}")

    def _check_length(self, item_id: str, text: str) -> None:
        limit = self._limits.max_text_chars
        if len(text) > limit:
            raise TextTooLongError(len(text), limit, f"characters (item {item_id!r})")


def _check_words(model: AladinModel, text: TextToAdd) -> None:
    try:
        tokenize(model, [text.text])
    except TextTooLongError as error:
        raise TextTooLongError(error.length, error.limit, f"tokens (item {text.id!r})") from error
    except InputError as error:
        raise InputError(f"item {text.id!r}: {error}") from error
