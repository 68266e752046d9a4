"""Adds photos and texts to a live index; every item is checked, read and encoded the same way.

`ItemChanger` adds the items of one request in one step, all of them or none. `add_items` adds any
number of items in batches, each applied in one step, and skips the items that cannot be used.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from aladin_index.changes.writer import AddReport, DeleteReport, ItemWriter, NewItems
from aladin_index.encode.item_encoders import (
    CUT,
    ImageReader,
    ItemEncoder,
    PhotoEncoder,
    Prepared,
    TextEncoder,
    item_encoder,
    warn_of_cut,
)
from aladin_index.encode.read_ahead import NumberedItem, StageSeconds, batched, encoded_batches
from aladin_index.encode.region_sources import RegionSource
from aladin_index.encode.source_items import (
    ImageItem,
    SourceItem,
    check_item,
    place_of,
    stored_form,
    with_file_state,
)
from aladin_index.format.skipped import SkippedItem
from aladin_index.settings import DEFAULT_METADATA_LIMITS, MetadataLimits
from aladin_network.errors import DuplicateItemError, InputError, TextTooLongError, brief
from aladin_network.inference import Network
from aladin_network.photos.decoding import DEFAULT_LIMITS, ImageLimits
from aladin_network.photos.files import printable
from aladin_network.scoring.encoding import Encoding
from aladin_network.types import NullProgress, OnDuplicate, Progress, Target


@dataclass(frozen=True, kw_only=True)
class AddSettings:
    """Options of adding items.

    Attributes:
        on_duplicate: What to do if an id exists already, see `ChangesWriter.add`.
        batch_size: Number of items that are encoded together and applied in one step.
        readers: Number of threads that read and decode photos.
        limits: Limits of a photo's size.
        metadata: Limits of an item's metadata.
        exif: Whether the metadata in photos are read.
        strict: Whether the first item that cannot be used ends the job.
    """

    on_duplicate: OnDuplicate = "error"
    batch_size: int = 64
    readers: int = 2
    limits: ImageLimits = DEFAULT_LIMITS
    metadata: MetadataLimits = DEFAULT_METADATA_LIMITS
    exif: bool = True
    strict: bool = False


@dataclass(kw_only=True)
class AddCounts:
    """Numbers of items added by all batches so far.

    Attributes:
        added: Number of items with new ids.
        replaced: Number of items that replaced others.
        kept: Number of items whose ids existed already.
        skipped: Items that could not be used, with the reason.
    """

    added: int = 0
    replaced: int = 0
    kept: int = 0
    skipped: list[SkippedItem] = field(default_factory=list[SkippedItem])

    def leave_out(self, item: SkippedItem, settings: AddSettings) -> None:
        """Count an item that could not be used, or raise the error about it."""
        if settings.strict:
            raise item.refused()
        self.skipped.append(item)


@dataclass(frozen=True, kw_only=True)
class TimedAddReport:
    """Result of `ItemChanger.add`, with the time of each stage.

    Attributes:
        report: Result of the writer.
        decode_ms: Time to check the items and to prepare them, detected regions included.
        encode_ms: Time in the network.
        write_ms: Time until everything was on the disk.
    """

    report: AddReport
    decode_ms: float
    encode_ms: float
    write_ms: float


class ItemChanger:
    """Adds and removes items, one request in one step; safe to use from any number of threads."""

    def __init__(
        self,
        writer: ItemWriter,
        model: Network,
        images: ImageReader,
        metadata: MetadataLimits = DEFAULT_METADATA_LIMITS,
        max_text_chars: int | None = None,
    ) -> None:
        """Change an index.

        Args:
            writer: Writer of the index, for the model; closed with this.
            model: The index's own model.
            images: Reads uploaded photos and regions.
            metadata: Limits of an item's metadata.
            max_text_chars: Maximum length of a text, or None for the network's limit alone.
        """
        self._writer = writer
        self._model = model
        self._images = images
        self._metadata = metadata
        self._max_text_chars = max_text_chars

    def add(
        self, target: Target, items: Sequence[SourceItem], on_duplicate: OnDuplicate
    ) -> TimedAddReport:
        """Add items in one step; uploaded photos are kept in the index.

        Args:
            target: Images or texts.
            items: Items with their content; images are uploads, no file of this machine is read.
            on_duplicate: See `ItemWriter.add`.

        Raises:
            ImageError: If a photo cannot be used; nothing is added.
            InputError: If regions cannot be used or are missing, a text is blank or too long, an
                item cannot be stored, or its metadata is over a limit; nothing is added.
            DuplicateItemError: If an id exists and that is an error; nothing is added.
            IndexMismatchError: If the live generation is of another model by now; nothing is added.
            SearchIndexError: If the index has no such collection, or cannot be written.
        """
        started_s, model = time.perf_counter(), self._model
        encoder: ItemEncoder = (
            PhotoEncoder(model, self._images) if target == "images" else TextEncoder(model)
        )
        prepared: list[Prepared] = []
        for row, item in enumerate(items):
            check_item(item, target, self._metadata)
            num_chars, limit = len(item.text or ""), self._max_text_chars
            if limit is not None and num_chars > limit:
                raise TextTooLongError(num_chars, limit, f"characters (item {brief(item.id)})")
            is_photo = isinstance(item, ImageItem)
            # No file of this machine is read for a request.
            if is_photo and item.upload is None and item.region_file is None:
                raise InputError(
                    f"item {brief(item.id)}: expected an image among the images, got none"
                )
            # In the size that the network takes: the photo itself may have 64 million pixels.
            prepared.append(_prepared(encoder, row, item))
        decoded_s = time.perf_counter()
        encoding = encoder.encode(prepared)
        encoded_s = time.perf_counter()
        new = new_items(items, prepared, encoding)
        report = self._writer.add(target, new, on_duplicate)
        return TimedAddReport(
            report=report,
            decode_ms=1000 * (decoded_s - started_s),
            encode_ms=1000 * (encoded_s - decoded_s),
            write_ms=1000 * (time.perf_counter() - encoded_s),
        )

    def delete(self, target: Target, item_id: str) -> DeleteReport:
        """Remove one item.

        Raises:
            UnknownItemError: If it does not exist.
            SearchIndexError: If the index has no such collection, or cannot be written.
        """
        return self._writer.delete(target, [item_id])

    def close(self) -> None:
        """Close the writer; no change may run any more."""
        self._writer.close()


def _prepared(encoder: ItemEncoder, row: int, item: SourceItem) -> Prepared:
    """Prepare an item for the network; errors of a text name it, as those of a photo do."""
    try:
        return encoder.decode(row, item, encoder.read(item))
    except InputError as error:
        if isinstance(item, ImageItem):
            raise
        raise InputError(f"item {brief(item.id)}: {error}") from error


def check_new(
    writer: ItemWriter,
    target: Target,
    items: Iterable[SourceItem | SkippedItem],
    settings: AddSettings,
) -> None:
    """Reject all items if one of them exists already, before the first is added.

    Args:
        writer: Writer of the index.
        target: Collection to add to.
        items: Items, read to their end; only their ids are kept.
        settings: Options of adding.

    Raises:
        DuplicateItemError: If an id is in the index already.
        InputError: If an item cannot be used, and the settings are strict.
    """
    for batch in batched(_usable(items, target, settings, AddCounts()), 1000):
        known = writer.known(target, [item.id for item in batch])
        if known:
            raise DuplicateItemError(target, min(known))


def add_items(
    writer: ItemWriter,
    model: Network,
    target: Target,
    items: Iterable[SourceItem | SkippedItem],
    settings: AddSettings,
    progress: Progress | None = None,
    regions: RegionSource | None = None,
) -> AddCounts:
    """Encode items and add them, batch by batch.

    A batch that was applied stays, whatever becomes of the next: what was cut short can be done
    again with "skip", which does not encode again what is there.

    Args:
        writer: Writer of the index.
        model: Model that the index was built with.
        target: Collection to add to.
        items: Items, read once and a few at a time, including those that the source skipped.
        settings: Options of adding.
        progress: Progress, advanced by the items that are done.
        regions: Regions of the images, for a network that reads regions.

    Raises:
        DuplicateItemError: If an id exists already, and that is an error; earlier batches stay.
        InputError: If the network and `regions` do not go together, or an item cannot be used, and
            the settings are strict; earlier batches stay.
        SearchIndexError: If the index has no such collection, or cannot be written.
    """
    progress = progress or NullProgress()
    progress.start(None, "photos" if target == "images" else "texts")
    counts, seconds = AddCounts(), StageSeconds()
    encoder = item_encoder(target, model, settings.limits, regions, exif=settings.exif)
    # Items of the batches that are being read; a few batches at a time.
    sources: dict[int, SourceItem] = {}
    cut: list[Mapping[str, Any]] = []
    ahead = _numbered(writer, target, items, settings, sources, counts, progress)
    for batch in encoded_batches(encoder, ahead, settings.readers, seconds, progress):
        usable = batch.usable
        for each in batch.skipped:
            counts.leave_out(each, settings)
        if batch.encoding is not None:
            with seconds.measure("write"):
                added = [sources[each.row] for each in usable]
                new = new_items(added, usable, batch.encoding)
                report = writer.add(target, new, settings.on_duplicate)
            counts.added += len(report.added)
            counts.replaced += len(report.replaced)
            counts.kept += len(report.kept)
            cut += [each.metadata for each in usable if CUT in each.metadata]
        for row in list(islice(sources, len(batch.items))):  # batches come in their order
            del sources[row]
    warn_of_cut(cut)
    return counts


def new_items(
    sources: Sequence[SourceItem], prepared: Sequence[Prepared], encoding: Encoding
) -> NewItems:
    """Join items with the network's output for them.

    Args:
        sources: The items; uploaded photos are kept in the index.
        prepared: The same items, in the same order, as the network took them.
        encoding: Encoding of the items, in the same order.
    """
    uploads = [item.upload for item in sources if isinstance(item, ImageItem) and item.upload]
    return NewItems(
        items=[
            stored_form(item, each.size_px, each.boxes, each.metadata)
            for item, each in zip(sources, prepared, strict=True)
        ],
        embeddings=encoding.embedding,
        tokens=encoding.tokens[encoding.mask],
        lengths=encoding.mask.sum(axis=1),
        photos=uploads,
    )


def _numbered(
    writer: ItemWriter,
    target: Target,
    items: Iterable[SourceItem | SkippedItem],
    settings: AddSettings,
    sources: dict[int, SourceItem],
    counts: AddCounts,
    progress: Progress,
) -> Iterator[list[NumberedItem]]:
    """Number the items, and skip those that need not be encoded."""
    number = 0
    usable = _usable(items, target, settings, counts, progress)
    for batch in batched(usable, settings.batch_size):
        if settings.on_duplicate != "replace":
            known = writer.known(target, [item.id for item in batch])
            if known and settings.on_duplicate == "error":
                raise DuplicateItemError(target, min(known))
            counts.kept += sum(item.id in known for item in batch)
            progress.advance(sum(item.id in known for item in batch))
            batch = [item for item in batch if item.id not in known]
        numbered = list(enumerate(map(with_file_state, batch), start=number))
        number += len(batch)
        sources.update(numbered)
        if numbered:
            yield numbered


def _usable(
    items: Iterable[SourceItem | SkippedItem],
    target: Target,
    settings: AddSettings,
    counts: AddCounts,
    progress: Progress | None = None,
) -> Iterator[SourceItem]:
    """Pass on the items that an index could hold; the others are counted."""
    seen: dict[str, int] = {}
    for item in items:
        if isinstance(item, SkippedItem):
            skipped = item
        else:
            try:
                check_item(item, target, settings.metadata)
                # With the other ways of `on_duplicate`, an id that comes twice is no fault.
                if settings.on_duplicate == "error" and item.id in seen:
                    again, first = place_of(item, len(seen)), seen[item.id] + 1
                    raise InputError(
                        f"{target}: id {brief(item.id)} repeats, {again} after item {first}"
                    )
            except InputError as error:
                skipped = SkippedItem(printable(item.id), str(error))
            else:
                if settings.on_duplicate == "error":
                    seen[item.id] = len(seen)
                yield item
                continue
        counts.leave_out(skipped, settings)
        if progress is not None:
            progress.advance()
