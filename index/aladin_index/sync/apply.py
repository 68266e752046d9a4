"""Carries out a plan of `aladin_index.sync.plan`, in steps that are atomic and durable."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from aladin_index.changes.writer import ChangesWriter, NewItems, Revision
from aladin_index.encode.item_changer import AddSettings, new_items
from aladin_index.encode.item_encoders import ItemEncoder, Prepared, item_encoder
from aladin_index.encode.read_ahead import EncodedItems, StageSeconds, batched, encoded_batches
from aladin_index.encode.region_sources import RegionSource
from aladin_index.encode.source_items import ImageItem, check_item
from aladin_index.format.skipped import SkippedItem
from aladin_index.generations.reader import SearchIndex
from aladin_index.items.tables import StoredItem
from aladin_index.search.file_collection import FileCollection
from aladin_index.sync.file_state import sha256_of
from aladin_index.sync.plan import ChangeKind, PhotoChange, SyncPlan
from aladin_index.tokens.codec import PackedTokens
from aladin_network.errors import InputError
from aladin_network.photos.decoding import DAMAGE
from aladin_network.photos.exif import EXIF_FIELDS
from aladin_network.scoring.encoding import Encoding
from aladin_network.types import Progress

T = TypeVar("T")

_REMOVED_AT_A_TIME = 1000
_COPIED_AT_A_TIME = 256


@dataclass(kw_only=True)
class SyncReport:
    """What a pass over folders has changed in an index.

    Attributes:
        added: Ids of new photos.
        changed: Ids of photos whose file, caption or metadata are others now.
        moved: Ids, as they are now, of photos that were renamed or moved.
        deleted: Ids of photos that are gone.
        encoded: Number of photos that went through the network.
        unchanged: Number of photos that stay as they were.
        waiting: Number of photos left for a later pass, as their files may still be growing.
        remaining: Number of photos left for a later pass, as this one has encoded enough or was
            stopped.
        skipped: Files that cannot be used, with the reason.
        unusable: Those among them that were read in this pass and are no photos.
        other_files: Number of files of the folders that are no photos, by kind.
        conflicts: Ids that others took during the pass; a further pass is needed.
    """

    added: list[str] = field(default_factory=list[str])
    changed: list[str] = field(default_factory=list[str])
    moved: list[str] = field(default_factory=list[str])
    deleted: list[str] = field(default_factory=list[str])
    encoded: int = 0
    unchanged: int = 0
    waiting: int = 0
    remaining: int = 0
    skipped: list[SkippedItem] = field(default_factory=list[SkippedItem])
    unusable: list[tuple[PhotoChange, SkippedItem]] = field(
        default_factory=list[tuple[PhotoChange, SkippedItem]]
    )
    other_files: dict[str, int] = field(default_factory=dict[str, int])
    conflicts: list[str] = field(default_factory=list[str])

    @property
    def has_changes(self) -> bool:
        """Whether any item of the index was added, replaced or removed."""
        return bool(self.added or self.changed or self.moved or self.deleted)

    @property
    def indexed(self) -> int:
        """Number of photos that were added or replaced."""
        return len(self.added) + len(self.changed) + len(self.moved)

    def keep_applied(self, live: set[str], planned: set[str]) -> None:
        """Drop what is no longer so.

        Args:
            live: Ids that the index has now.
            planned: Ids of photos that are to be added or replaced, again perhaps.
        """
        for ids in (self.added, self.changed, self.moved):
            ids[:] = [each for each in ids if each in live and each not in planned]
        self.deleted = [each for each in self.deleted if each not in live]

    def of(self, kind: ChangeKind) -> list[str]:
        """Return the ids of one kind of change."""
        return {"added": self.added, "changed": self.changed, "moved": self.moved}[kind]


def apply_plan(
    writer: ChangesWriter,
    index: SearchIndex,
    live: FileCollection,
    plan: SyncPlan,
    report: SyncReport,
    settings: AddSettings,
    progress: Progress,
    *,
    regions: RegionSource | None = None,
    most_encoded: int | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Bring an index into the state of a plan.

    Each step is applied whole or not at all, and with each item the state of its file. Whatever
    becomes of the next step, a later pass goes on from there.

    Args:
        writer: Writer of the index.
        index: The generation that the plan was made for.
        live: Its images, as they were when the plan was made.
        plan: Plan to carry out.
        report: Report to which each step is added once it is applied.
        settings: How photos are read and encoded.
        progress: Progress, advanced by the photos that are encoded.
        regions: Detector, for a network that reads regions.
        most_encoded: Number of photos after which the rest is left for a later pass, or None.
        is_stopped: Whether to leave the rest of the plan, asked between the steps.

    Raises:
        OtherGenerationError: If another generation went live; the rest of the plan is void.
        InputError: If `regions` and the network do not go together, or too many distinct metadata
            fields would have an index for filters.
        SearchIndexError: If the index cannot be written.
    """
    generation = index.generation
    storable: list[PhotoChange] = []
    for change in plan.changes:
        try:
            check_item(change.item, "images", settings.metadata)
            storable.append(change)
        except InputError as error:
            report.skipped.append(SkippedItem(change.item.id, str(error)))
    if plan.recorded:
        states = {row: state.text for row, state in plan.recorded.items()}
        writer.revise("images", Revision(generation=generation, file_states=states))
    for gone in batched(plan.removed, _REMOVED_AT_A_TIME):
        rows = [photo.row for photo in gone]
        writer.revise("images", Revision(generation=generation, removed=rows))
        report.deleted += [photo.id for photo in gone]
    copied = [change for change in storable if change.source is not None]
    for changes in batched(copied, _COPIED_AT_A_TIME):
        if is_stopped():
            return
        revision = _copies(generation, live, changes, exif=settings.exif)
        _note(report, changes, writer.revise("images", revision))
    encoded = [change for change in storable if change.source is None]
    report.remaining = len(encoded)
    if encoded and not is_stopped():
        progress.start(len(encoded), "photos")
        network, size = index.checkpoint.model, settings.batch_size
        encoder = _Digesting(
            item_encoder("images", network, settings.limits, regions, exif=settings.exif)
        )
        seconds = StageSeconds()
        numbered = enumerate(change.item for change in encoded)
        # Nothing is encoded ahead that this pass leaves.
        most_batches = None if most_encoded is None else math.ceil(most_encoded / size)
        ahead = islice(batched(numbered, size), most_batches)
        rest = iter(encoded)
        for batch in encoded_batches(encoder, ahead, settings.readers, seconds, progress):
            changes = list(islice(rest, len(batch.items)))
            _apply(writer, generation, encoder.digests, changes, batch, report)
            report.remaining -= len(batch.items)
            if is_stopped():
                return


def _apply(
    writer: ChangesWriter,
    generation: int,
    digests: dict[Path, str],
    changes: Sequence[PhotoChange],
    batch: EncodedItems,
    report: SyncReport,
) -> None:
    """Apply the changes of one batch of encoded photos in one step."""
    pairs = list(zip(changes, batch.items, strict=True))
    usable = [(change, each) for change, each in pairs if isinstance(each, Prepared)]
    unusable = [(change, each) for change, each in pairs if isinstance(each, SkippedItem)]
    report.skipped += [each for _, each in unusable]
    report.unusable += unusable
    # A photo whose file was replaced by one that cannot be used is gone.
    removed = [row for change in changes for row in change.removes]
    new = None
    if batch.encoding is not None:
        new = new_items([change.item for change, _ in usable], batch.usable, batch.encoding)
        states = (
            change.state._replace(sha256=digests.pop(change.item.path)) for change, _ in usable
        )
        stored = zip(new.items, states, strict=True)
        items = [item._replace(file_state=state.text) for item, state in stored]
        new = NewItems(
            items=items, embeddings=new.embeddings, tokens=new.tokens, lengths=new.lengths
        )
    if usable or removed:
        revision = Revision(generation=generation, removed=removed, new=new)
        taken = writer.revise("images", revision)
        _note(report, [change for change, _ in usable], taken)
    report.encoded += len(usable)
    report.deleted += [change.item.id for change, _ in unusable if change.removes]


def _note(report: SyncReport, changes: Sequence[PhotoChange], taken: Sequence[str]) -> None:
    """Add changes that were applied to the report, other than those of ids that others have."""
    for change in changes:
        if change.item.id not in taken:
            report.of(change.kind).append(change.item.id)
    report.conflicts += taken


def _copies(
    generation: int, live: FileCollection, changes: Sequence[PhotoChange], *, exif: bool
) -> Revision:
    """Return photos with the encodings of items of the same content."""
    sources = [change.source for change in changes if change.source is not None]
    items = [
        _copy_of(item, change, exif=exif)
        for item, change in zip(live.items.by_rows(sources), changes, strict=True)
    ]
    tokens = [_tokens(live, row) for row in sources]
    new = NewItems(
        items=items,
        embeddings=live.embeddings(sources),
        tokens=np.zeros((0, 0), dtype=np.float32),
        lengths=np.array([each.count for each in tokens], dtype=np.int64),
    )
    removed = [row for change in changes for row in change.removes]
    packed = PackedTokens.concatenate(tokens)
    return Revision(generation=generation, removed=removed, new=new, packed=packed)


def _copy_of(source: StoredItem, change: PhotoChange, *, exif: bool) -> StoredItem:
    """Return an item for a photo with the size, the regions and what another one tells itself."""
    item = change.item
    fields = (*(EXIF_FIELDS if exif else ()), DAMAGE)
    told = {name: source.metadata[name] for name in fields if name in source.metadata}
    return source._replace(
        id=item.id,
        uri=item.uri,
        path=str(item.path),
        text=item.text,
        metadata={**told, **item.metadata},
        file_state=change.state.text,
    )


def _tokens(live: FileCollection, row: int) -> PackedTokens:
    """Read the tokens of a row in their stored form."""
    rows = np.array([row])
    if row < live.entry.count:
        return live.base.tokens.packed(rows)
    assert live.changes is not None  # only there does such a row come from
    return live.changes.tokens(rows).stored


class _Digesting:
    """An encoder of photos that remembers the digests of the files that it has read.

    Attributes:
        digests: Digest of the content by path.
        callers: See `ItemEncoder`.
        items_a_call: See `ItemEncoder`.
    """

    def __init__(self, encoder: ItemEncoder) -> None:
        self.digests: dict[Path, str] = {}
        self.callers, self.items_a_call = encoder.callers, encoder.items_a_call
        self._encoder = encoder

    def read(self, item: ImageItem) -> Any:
        """Read a photo."""
        data = self._encoder.read(item)
        if not isinstance(data, bytes):
            raise InputError("expected the photo itself, got regions")
        self.digests[item.path] = sha256_of(data)
        return data

    def decode(self, row: int, item: ImageItem, data: Any) -> Prepared:
        """Convert a photo to the network's input."""
        return self._encoder.decode(row, item, data)

    def encode(self, batch: Sequence[Prepared]) -> Encoding:
        """Encode photos."""
        return self._encoder.encode(batch)
