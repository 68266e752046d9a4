"""Adds photos and texts to a live index; every item is checked, read and encoded the same way.

`ItemChanger` adds the items of one request in one step, all of them or none. `add_items` adds any
number of items in batches, each applied in one step, and skips the items that cannot be used.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from aladin_index.changes.writable import AddOutcome
from aladin_index.changes.writer import AddReport, DeleteReport, ItemWriter
from aladin_index.encode.item_encoders import (
    CUT,
    ImageReader,
    ItemEncoder,
    PhotoEncoder,
    StreamedItems,
    TextEncoder,
    item_encoder,
    warn_of_cut,
)
from aladin_index.encode.read_ahead import StageSeconds, batched, encoded_batches
from aladin_index.encode.region_sources import RegionSource
from aladin_index.encode.source_items import (
    ImageItem,
    Prepared,
    SourceItem,
    check_item,
    checked_items,
    place_of,
    with_file_state,
)
from aladin_index.format.skipped import SkippedItem
from aladin_index.settings import DEFAULT_METADATA_LIMITS, AddSettings, MetadataLimits
from aladin_network.errors import DuplicateItemError, InputError, TextTooLongError, brief
from aladin_network.inference import Network
from aladin_network.types import NullProgress, OnDuplicate, Progress, Target


@dataclass(kw_only=True)
class AddCounts:
    """Numbers of items added by all batches so far.

    Attributes:
        outcomes: Number of items by what became of them.
        skipped: Items that could not be used, with the reason.
    """

    outcomes: Counter[AddOutcome] = field(default_factory=Counter[AddOutcome])
    skipped: list[SkippedItem] = field(default_factory=list[SkippedItem])

    @property
    def added(self) -> int:
        """Number of items with new ids."""
        return self.outcomes["added"]

    @property
    def replaced(self) -> int:
        """Number of items that replaced others."""
        return self.outcomes["replaced"]

    @property
    def kept(self) -> int:
        """Number of items whose ids existed already."""
        return self.outcomes["kept"]


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
            PhotoEncoder(encoder=model.image.encoder, images=self._images, model=model)
            if target == "images"
            else TextEncoder(model)
        )
        # In the size that the network takes: the photo itself may have 64 million pixels.
        prepared = [self._prepared(encoder, target, item) for item in items]
        decoded_s = time.perf_counter()
        encoded = StreamedItems([*items], [*prepared], encoder.encode(prepared))
        encoded_s = time.perf_counter()
        new = encoded.stored()
        assert new is not None  # it was encoded
        report = self._writer.add(target, new, on_duplicate)
        return TimedAddReport(
            report=report,
            decode_ms=1000 * (decoded_s - started_s),
            encode_ms=1000 * (encoded_s - decoded_s),
            write_ms=1000 * (time.perf_counter() - encoded_s),
        )

    def _prepared(self, encoder: ItemEncoder, target: Target, item: SourceItem) -> Prepared:
        """Check and prepare an item; errors of a text name it, as those of a photo do."""
        check_item(item, target, self._metadata)
        num_chars, limit = len(item.text or ""), self._max_text_chars
        if limit is not None and num_chars > limit:
            raise TextTooLongError(num_chars, limit, f"characters (item {brief(item.id)})")
        photo = item if isinstance(item, ImageItem) else None
        # No file of this machine is read for a request.
        if photo is not None and photo.upload is None and photo.region_file is None:
            raise InputError(f"item {brief(item.id)}: expected an image among the images, got none")
        try:
            return encoder.decode(item, encoder.read(item))
        except InputError as error:
            if photo is not None:
                raise
            raise InputError(f"item {brief(item.id)}: {error}") from error

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
    usable = (
        item for item in _checked(items, target, settings) if not isinstance(item, SkippedItem)
    )
    for batch in batched(usable, 1000):
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
    counts, seconds, cut = AddCounts(), StageSeconds(), list[Mapping[str, Any]]()
    encoder = item_encoder(target, model, settings, regions)
    ahead = _new_batches(writer, target, items, settings, counts, progress)
    with closing(encoded_batches(encoder, ahead, settings, seconds, progress)) as batches:
        for batch in batches:
            counts.skipped += batch.skipped
            new = batch.stored()
            if new is not None:
                with seconds.measure("write"):
                    report = writer.add(target, new, settings.on_duplicate)
                counts.outcomes.update({each: len(ids) for each, ids in report.ids.items()})
                cut += [each.metadata for _, each in batch.usable if CUT in each.metadata]
    warn_of_cut(cut)
    return counts


def _new_batches(
    writer: ItemWriter,
    target: Target,
    items: Iterable[SourceItem | SkippedItem],
    settings: AddSettings,
    counts: AddCounts,
    progress: Progress,
) -> Iterator[list[SourceItem]]:
    """Yield the items that are to be encoded, and count the others."""

    def usable() -> Iterator[SourceItem]:
        for item in _checked(items, target, settings):
            if not isinstance(item, SkippedItem):
                yield item
                continue
            counts.skipped.append(item)
            progress.advance()

    for batch in batched(usable(), settings.batch_size):
        # An item that is put in the place of another one is encoded in any case.
        ids = [] if settings.on_duplicate == "replace" else [item.id for item in batch]
        known = writer.known(target, ids) if ids else set[str]()
        if known and settings.on_duplicate == "error":
            raise DuplicateItemError(target, min(known))
        new = [with_file_state(item) for item in batch if item.id not in known]
        counts.outcomes["kept"] += len(batch) - len(new)
        progress.advance(len(batch) - len(new))
        if new:
            yield new


def _checked(
    items: Iterable[SourceItem | SkippedItem], target: Target, settings: AddSettings
) -> Iterator[SourceItem | SkippedItem]:
    """Check items; an id that comes twice is a fault only where existing ids are errors."""
    if settings.on_duplicate != "error":
        return checked_items(items, target, settings)
    seen: dict[str, int] = {}

    def repeats(item: SourceItem, number: int) -> str | None:
        first = seen.setdefault(item.id, number)
        if first == number:
            return None
        again = place_of(item, number)
        return f"{target}: id {brief(item.id)} repeats, {again} after item {first + 1}"

    return checked_items(items, target, settings, repeats)
