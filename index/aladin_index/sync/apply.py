"""Carries out a plan of `aladin_index.sync.plan`, in steps that are atomic and durable."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType

import numpy as np

from aladin_index.changes.writer import AddReport, ChangesWriter, Revision
from aladin_index.encode.encoded import AnyBatch, PackedBatch
from aladin_index.encode.item_encoders import StreamedItems, item_encoder
from aladin_index.encode.read_ahead import StageSeconds, batched, encoded_batches
from aladin_index.encode.source_items import ImageItem, checked_items, date_of_file
from aladin_index.format.skipped import SkippedItem
from aladin_index.generations.reader import SearchIndex
from aladin_index.items.tables import StoredItem
from aladin_index.search.file_collection import FileCollection
from aladin_index.settings import EncodeSettings
from aladin_index.sync.file_state import sha256_of
from aladin_index.sync.plan import ChangeKind, PhotoChange, SyncPlan
from aladin_index.tokens.codec import PackedTokens
from aladin_network.detectors.base import Detector
from aladin_network.errors import ImageError
from aladin_network.photos.decoding import DAMAGE, read_details
from aladin_network.photos.fields import Details, over
from aladin_network.types import Progress

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
        return {"added": self.added, "changed": self.changed, "moved": self.moved}[kind]


class PlanApplier:
    """Brings an index into the state of a plan, in steps that are applied whole or not at all.

    With each item the state of its file is recorded: whatever becomes of the next step, a later
    pass goes on from there.
    """

    def __init__(
        self,
        writer: ChangesWriter,
        index: SearchIndex,
        report: SyncReport,
        settings: EncodeSettings,
        *,
        detector: Detector | None = None,
        most_encoded: int | None = None,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._writer, self._index, self._report = writer, index, report
        self._settings, self._detector = settings, detector
        self._most_encoded, self._is_stopped = most_encoded, is_stopped

    def apply(self, plan: SyncPlan, live: FileCollection, progress: Progress) -> None:
        """Carry out a plan that was made for these images.

        Raises:
            OtherGenerationError: If another generation went live; the rest of the plan is void.
            InputError: If the detector and the network do not go together, or too many distinct
                metadata fields would have an index for filters.
        """
        changes = self._storable(plan.changes)
        encoded = [change for change in changes if change.source is None]
        self._report.remaining = len(encoded)
        if plan.recorded:
            self._revise(file_states={row: state.text for row, state in plan.recorded.items()})
        for gone in batched(plan.removed, _REMOVED_AT_A_TIME):
            self._revise(removed=[photo.row for photo in gone])
            self._report.deleted += [photo.id for photo in gone]
        copied = (change for change in changes if change.source is not None)
        steps = chain(self._copy(live, copied), self._encode(encoded, progress))
        while not self._is_stopped() and next(steps, None):
            pass

    def _storable(self, changes: Sequence[PhotoChange]) -> list[PhotoChange]:
        """Return the changes whose items an index could hold; the others are skipped."""
        items = (change.item for change in changes)
        pairs = list(zip(changes, checked_items(items, "images", self._settings), strict=True))
        self._report.skipped += [item for _, item in pairs if isinstance(item, SkippedItem)]
        return [change for change, item in pairs if not isinstance(item, SkippedItem)]

    def _copy(self, live: FileCollection, changes: Iterable[PhotoChange]) -> Iterator[bool]:
        """Give photos the encodings of items of the same content, step by step."""
        for some in batched(changes, _COPIED_AT_A_TIME):
            self._change(some, self._copies(live, some))
            yield True

    def _copies(self, live: FileCollection, changes: Sequence[PhotoChange]) -> PackedBatch:
        """Return photos with the encodings of items of the same content."""
        sources = [change.source for change in changes if change.source is not None]
        pairs = zip(live.items.by_rows(sources), changes, strict=True)
        tokens = [_tokens(live, row) for row in sources]
        return PackedBatch(
            items=[self._copy_of(item, change) for item, change in pairs],
            embeddings=live.embeddings(sources),
            tokens=PackedTokens.concatenate(tokens),
            lengths=np.array([each.count for each in tokens], dtype=np.int64),
        )

    def _copy_of(self, source: StoredItem, change: PhotoChange) -> StoredItem:
        """Return an item for a photo with the size and the regions of another one.

        What the photo tells of itself is read again: the other one's metadata are also from what
        its folder said.
        """
        item = change.item
        damage = {DAMAGE: source.metadata[DAMAGE]} if DAMAGE in source.metadata else {}
        return source._replace(
            id=item.id,
            uri=item.uri,
            path=str(item.path),
            text=item.text,
            metadata=over(item.metadata, {**self._told(item), **damage}),
            file_state=change.state.text,
        )

    def _told(self, item: ImageItem) -> Details:
        limits = self._settings.limits
        if not self._settings.exif:
            return {}
        try:
            own = read_details(item.photo.read(limits.max_bytes), item.photo.source, limits)
        except ImageError:  # it is gone again; a later pass removes it
            own = Details()
        return over(own, date_of_file(item))

    def _encode(self, changes: Sequence[PhotoChange], progress: Progress) -> Iterator[bool]:
        """Encode photos, one batch in a step."""
        if not changes:
            return
        progress.start(len(changes), "photos")
        settings, network = self._settings, self._index.checkpoint.model
        digests: dict[Path, str] = {}

        def digest(item: ImageItem, data: bytes) -> None:
            digests[item.path] = sha256_of(data)

        encoder = item_encoder("images", network, settings, self._detector, digest)
        # Nothing is encoded ahead that this pass leaves.
        limit, size = self._most_encoded, settings.batch_size
        most_batches = None if limit is None else math.ceil(limit / size)
        ahead = islice(batched((change.item for change in changes), size), most_batches)
        rest = iter(changes)
        for batch in encoded_batches(encoder, ahead, settings, StageSeconds(), progress):
            self._apply(list(islice(rest, len(batch.sources))), batch, digests)
            self._report.remaining -= len(batch.sources)
            yield True

    def _apply(
        self, changes: Sequence[PhotoChange], batch: StreamedItems, digests: dict[Path, str]
    ) -> None:
        """Apply the changes of one batch of encoded photos in one step."""
        report = self._report
        usable: list[PhotoChange] = []
        for change, found in zip(changes, batch.found, strict=True):
            if not isinstance(found, SkippedItem):
                usable.append(change)
                continue
            report.skipped.append(found)
            report.unusable.append((change, found))
            # A photo whose file was replaced by one that cannot be used is gone.
            report.deleted += [change.item.id] if change.removes else []
        new = batch.stored()
        if new is not None:
            states = [each.state._replace(sha256=digests.pop(each.item.path)) for each in usable]
            pairs = zip(new.items, states, strict=True)
            new = replace(
                new, items=[each._replace(file_state=state.text) for each, state in pairs]
            )
        self._change(changes, new)
        report.encoded += len(usable)

    def _change(self, changes: Sequence[PhotoChange], new: AnyBatch | None) -> None:
        """Replace what some changes remove by new items, and report those that were added."""
        removed = [row for change in changes for row in change.removes]
        if new is None and not removed:
            return
        done = self._revise(removed=removed, new=new)
        kinds: dict[str, ChangeKind] = {change.item.id: change.kind for change in changes}
        for item_id in done.ids.get("added", ()):
            self._report.of(kinds[item_id]).append(item_id)
        self._report.conflicts += done.ids.get("kept", ())

    def _revise(
        self,
        *,
        removed: Sequence[int] = (),
        new: AnyBatch | None = None,
        file_states: Mapping[int, str] = MappingProxyType({}),
    ) -> AddReport:
        generation = self._index.generation
        revision = Revision(
            generation=generation, removed=removed, new=new, file_states=file_states
        )
        return self._writer.revise("images", revision)


def _tokens(live: FileCollection, row: int) -> PackedTokens:
    """Read the tokens of a row in their stored form."""
    rows = np.array([row])
    if row < live.entry.count:
        return live.base.tokens.packed(rows)
    assert live.changes is not None  # only there does such a row come from
    return live.changes.tokens(rows).stored
