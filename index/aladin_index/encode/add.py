"""Adds photos and texts of any number to an index: encoded in batches, a transaction each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from aladin_index.changes.writer import ItemWriter, NewItems
from aladin_index.encode.item_encoders import (
    NumberedItem,
    Prepared,
    RegionReader,
    StageSeconds,
    encoder_of,
    prepared_batches,
)
from aladin_index.encode.source_items import SourceItem, check_item, stored_form
from aladin_index.format.records import SkippedItem
from aladin_index.items.tables import StoredItem
from aladin_index.items.uploaded_photos import UploadedPhoto
from aladin_index.settings import DEFAULT_METADATA_LIMITS, MetadataLimits
from aladin_network.errors import DuplicateItemError, InputError
from aladin_network.model import AladinModel
from aladin_network.photos.decoding import DEFAULT_LIMITS, ImageLimits
from aladin_network.scoring.scores import Encoding
from aladin_network.types import NullProgress, OnDuplicate, Progress, Target


@dataclass(frozen=True, kw_only=True)
class AddSettings:
    """How items are added.

    Attributes:
        on_duplicate: what to do where an id is there already, see `ChangesWriter.add`.
        batch_size: items that are encoded together and applied in one step.
        readers: threads that read and decode photos.
        limits: what a photo may cost.
        metadata: limits of an item's metadata.
    """

    on_duplicate: OnDuplicate = "error"
    batch_size: int = 64
    readers: int = 2
    limits: ImageLimits = DEFAULT_LIMITS
    metadata: MetadataLimits = DEFAULT_METADATA_LIMITS


@dataclass(kw_only=True)
class AddCounts:
    """What was added by all batches so far.

    Attributes:
        added: items with new ids.
        replaced: items in the place of others.
        skipped: items whose ids were there.
        left_out: items that could not be used, with the reason.
    """

    added: int = 0
    replaced: int = 0
    skipped: int = 0
    left_out: list[SkippedItem] = field(default_factory=list[SkippedItem])


def check_new(
    writer: ItemWriter,
    target: Target,
    items: Iterable[SourceItem | SkippedItem],
    metadata: MetadataLimits = DEFAULT_METADATA_LIMITS,
) -> None:
    """Refuse items of which one cannot be added, before the first is.

    Args:
        writer: of the index.
        target: the side to add to.
        items: read to their end; only their ids are kept. What the source left out is passed
            over.
        metadata: limits of an item's metadata.

    Raises:
        DuplicateItemError: an id is in the index, or comes twice.
        InputError: an item that no index could hold, or whose metadata is over a limit.
    """
    seen: set[str] = set()
    for batch in _batches((item for item in items if not isinstance(item, SkippedItem)), 1000):
        for item in batch:
            check_item(item, target, metadata)
            if item.id in seen:
                raise InputError(f"{target}: id {item.id!r} comes twice")
            seen.add(item.id)
        known = writer.known(target, [item.id for item in batch])
        if known:
            raise DuplicateItemError(target, min(known))


def add_items(
    writer: ItemWriter,
    model: AladinModel,
    target: Target,
    items: Iterable[SourceItem | SkippedItem],
    settings: AddSettings,
    progress: Progress | None = None,
    regions: RegionReader | None = None,
) -> AddCounts:
    """Encode items and add them, batch by batch.

    A batch that was applied stays, whatever becomes of the next: what was cut short can be done
    again with "skip", which does not encode again what is there.

    Args:
        writer: of the index.
        model: that the index was built with.
        target: the side to add to.
        items: read once, a few at a time in memory; with those that the source left out.
        settings: options.
        progress: advanced with the items that are done.
        regions: of the images, for a network that reads regions.

    Raises:
        DuplicateItemError: an id is there, and that is an error; earlier batches stay.
        InputError: the network and `regions` do not go together, an item that no index could
            hold, or metadata over a limit; earlier batches stay.
        SearchIndexError: the index has no such side, or cannot be written.
    """
    progress = progress or NullProgress()
    progress.start(None, "photos" if target == "images" else "texts")
    counts, seconds = AddCounts(), StageSeconds()
    encoder = encoder_of(target, model, settings.limits, regions)
    # The items of the batches that are being read; there are a few at a time.
    sources: dict[int, SourceItem] = {}
    ahead = _numbered(writer, target, items, settings, sources, counts, progress)
    for batch in prepared_batches(encoder, ahead, settings.readers, seconds):
        usable = [each for each in batch if isinstance(each, Prepared)]
        counts.left_out += [each for each in batch if isinstance(each, SkippedItem)]
        if usable:
            with seconds.measure("encode"):
                encoding = encoder.encode(usable)
            with seconds.measure("write"):
                stored = [
                    stored_form(sources[each.row], each.size_px, each.boxes) for each in usable
                ]
                report = writer.add(target, new_items(stored, encoding), settings.on_duplicate)
            counts.added += len(report.added)
            counts.replaced += len(report.replaced)
            counts.skipped += len(report.skipped)
        for row in list(islice(sources, len(batch))):  # batches come in their order
            del sources[row]
        progress.advance(len(batch))
        progress.note(**seconds.notes())
    return counts


def new_items(
    items: Sequence[StoredItem], encoding: Encoding, photos: Sequence[UploadedPhoto] = ()
) -> NewItems:
    """Join items with what the network made of them.

    Args:
        items: as they are stored.
        encoding: of the items, in the same order.
        photos: that the index is to keep.
    """
    encoding = encoding.to("cpu")
    return NewItems(
        items=items,
        embeddings=encoding.embedding.float().numpy(),
        tokens=encoding.tokens[encoding.mask].float().numpy(),
        lengths=encoding.mask.sum(dim=1).numpy().astype(np.int64),
        photos=photos,
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
    """Number the items, and leave out what would be encoded for nothing."""
    number = 0
    for batch in _batches(_usable(items, counts, progress), settings.batch_size):
        for item in batch:
            check_item(item, target, settings.metadata)
        if settings.on_duplicate != "replace":
            known = writer.known(target, [item.id for item in batch])
            if known and settings.on_duplicate == "error":
                raise DuplicateItemError(target, min(known))
            counts.skipped += sum(item.id in known for item in batch)
            progress.advance(sum(item.id in known for item in batch))
            batch = [item for item in batch if item.id not in known]
        numbered = list(enumerate(batch, start=number))
        number += len(batch)
        sources.update(numbered)
        if numbered:
            yield numbered


def _usable(
    items: Iterable[SourceItem | SkippedItem], counts: AddCounts, progress: Progress
) -> Iterator[SourceItem]:
    """Pass the items on; what the source left out is counted."""
    for item in items:
        if isinstance(item, SkippedItem):
            counts.left_out.append(item)
            progress.advance()
        else:
            yield item


def _batches(items: Iterable[SourceItem], size: int) -> Iterator[list[SourceItem]]:
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch
