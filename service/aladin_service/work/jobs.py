"""Jobs of workers: reports of the index, its items and photos, and drawings of evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from aladin_index.changes.writer import DeleteReport
from aladin_index.encode.item_changer import TimedAddReport
from aladin_index.encode.source_items import SourceItem
from aladin_index.engines.engine_index import EngineIndex
from aladin_index.format.manifest import Manifest
from aladin_index.format.skipped import SkippedSummary, read_skipped_summary
from aladin_index.generations.history import changed_at_s
from aladin_index.items.tables import StoredItem
from aladin_index.search.collection import SearchBackend
from aladin_network.errors import (
    UnknownItemError,
)
from aladin_network.heads.trained import untrained_reason
from aladin_network.photos.decoding import DEFAULT_LIMITS
from aladin_network.photos.files import PhotoFile
from aladin_network.types import OnDuplicate, Target
from aladin_service.evidence.explained import draw_pair
from aladin_service.evidence.pairs import PairQuery, drawing_version, find_pair
from aladin_service.photos.photo_bytes import (
    PhotoBytes,
    PhotoGoneError,
    cut_photo,
    photo_version,
    resized_photo,
    rewritten_photo,
    served_photo,
)
from aladin_service.work.worker import Job, JobQueueName, Worker


class IndexState(NamedTuple):
    """The current state of the live generation.

    Attributes:
        manifest: Manifest of the generation as it was built.
        counts: Number of searchable items of each collection, including added ones.
        alignment_trained: Whether the alignment of its model was trained.
        in_engine: Whether a vector database stores it.
        skipped: What the index lacks of its sources, or None if a vector database stores it.
        untrained: Why the order of hits is random, or None.
        changed_at_s: Time of the last change in seconds since 1970, or None if a vector database
            stores it.
    """

    manifest: Manifest
    counts: Mapping[Target, int]
    alignment_trained: bool
    in_engine: bool = False
    skipped: SkippedSummary | None = None
    untrained: str | None = None
    changed_at_s: float | None = None


@dataclass(frozen=True)
class DescribeIndex(Job[IndexState]):
    """Describe the live generation, with what was added and deleted since it was built."""

    def run(self, worker: Worker) -> IndexState:
        """Return the manifest and the counts."""
        index = worker.searcher().index
        targets = index.manifest.targets
        counts: dict[Target, int] = {target: index.collection(target).count for target in targets}
        checkpoint = index.checkpoint
        in_engine = isinstance(index, EngineIndex)
        skipped = None if in_engine else read_skipped_summary(index.path, index.manifest)
        provenance = checkpoint.provenance
        return IndexState(
            index.manifest,
            counts,
            checkpoint.alignment_trained,
            in_engine,
            skipped,
            untrained_reason(provenance.recipe, provenance.stage),
            None if in_engine else changed_at_s(index.path, index.manifest),
        )


@dataclass(frozen=True)
class GetItem(Job[StoredItem]):
    """Look up an item."""

    target: Target
    item_id: str

    def run(self, worker: Worker) -> StoredItem:
        """Return the stored item."""
        return _item(worker.searcher().index, self.target, self.item_id)


@dataclass(frozen=True)
class AddItems(Job[TimedAddReport]):
    """Add items in one step."""

    target: Target
    items: tuple[SourceItem, ...]
    on_duplicate: OnDuplicate

    @property
    def queue(self) -> JobQueueName:
        """Queue for changes of the index."""
        return "write"

    def run(self, worker: Worker) -> TimedAddReport:
        """Return the ids that were added, replaced and skipped."""
        return worker.change(lambda each: each.add(self.target, self.items, self.on_duplicate))


@dataclass(frozen=True)
class DeleteItem(Job[DeleteReport]):
    """Delete one item."""

    target: Target
    item_id: str

    @property
    def queue(self) -> JobQueueName:
        """Queue for changes of the index."""
        return "write"

    def run(self, worker: Worker) -> DeleteReport:
        """Return a report of the deletion."""
        return worker.change(lambda each: each.delete(self.target, self.item_id))


class PhotoRead(NamedTuple):
    """An item's photo.

    Attributes:
        version: Version of the photo, which changes with the photo.
        photo: Bytes of the photo, or None for a client that holds this version.
    """

    version: str
    photo: PhotoBytes | None


@dataclass(frozen=True)
class ReadPhoto(Job[PhotoRead]):
    """Read an item's photo.

    Attributes:
        item_id: ID of an image.
        size_px: Longest side, or None for the original size.
        known: Versions that the client holds.
    """

    item_id: str
    size_px: int | None
    known: frozenset[str] = frozenset()

    @property
    def queue(self) -> JobQueueName:
        """Queue by size: photos of full size may take long, and must not delay smaller ones."""
        return "original" if self.size_px is None else "picture"

    def run(self, worker: Worker) -> PhotoRead:
        """Return the bytes of the photo."""
        index = worker.searcher().index
        item = _item(index, "images", self.item_id)
        file = served_photo(index.path, item, worker.live.photos_root)
        if file is None:
            raise PhotoGoneError(self.item_id)
        version = photo_version(file, self.item_id, self.size_px)
        if version in self.known:
            return PhotoRead(version, None)
        # Uses the index's own limits: a photo that the build could decode can also be delivered.
        if self.size_px is None:
            return PhotoRead(version, self._original(worker, file, version))
        photo = worker.thumbnails.get(version)
        if photo is None:
            photo = resized_photo(file, self.item_id, self.size_px, DEFAULT_LIMITS, worker.memory)
            worker.thumbnails.put(version, photo)
        return PhotoRead(version, photo)

    def _original(self, worker: Worker, file: PhotoFile, version: str) -> PhotoBytes:
        photo = worker.originals.get(version)
        if photo is None:
            photo = cut_photo(file, self.item_id, DEFAULT_LIMITS)
        if photo is None:
            photo = rewritten_photo(file, self.item_id, DEFAULT_LIMITS, worker.memory)
            worker.originals.put(version, photo)
        return photo


class DrawnEvidence(NamedTuple):
    """A drawing of evidence.

    Attributes:
        version: Version of the drawing, which changes with the drawing.
        png: PNG file, or None for a client that holds this version.
    """

    version: str
    png: bytes | None


@dataclass(frozen=True)
class DrawEvidence(Job[DrawnEvidence]):
    """Draw the evidence for a text and a photo.

    Attributes:
        query: Text or photo that asks.
        item_id: Id of the indexed photo or text that it is compared with.
        known: Versions that the client holds.
    """

    query: PairQuery
    item_id: str
    known: frozenset[str] = frozenset()

    @property
    def queue(self) -> JobQueueName:
        """Drawings share the queue of the smaller photos."""
        return "picture"

    def run(self, worker: Worker) -> DrawnEvidence:
        """Return the drawing as a PNG file."""
        searcher = worker.searcher()
        pair = find_pair(searcher, self.query, self.item_id, worker.live.photos_root)
        version = drawing_version(searcher, pair)
        if version in self.known:
            return DrawnEvidence(version, None)
        encoded = worker.encode(searcher, pair.query)
        return DrawnEvidence(version, draw_pair(searcher, pair, encoded, worker.memory))


def _item(index: SearchBackend, target: Target, item_id: str) -> StoredItem:
    """Look up an item.

    Raises:
        UnknownItemError: If no item of the collection has this id.
        NoSuchTargetError: If the index has no such collection.
    """
    item = index.collection(target).items.by_id(item_id)
    if item is None:
        raise UnknownItemError(target, item_id)
    return item
