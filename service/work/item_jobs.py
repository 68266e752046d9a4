"""Jobs on the items of the index."""

from __future__ import annotations

from dataclasses import dataclass

from index.changes.writer import DeleteReport
from index.items.tables import StoredItem
from service.item_changes import PhotoToAdd, TextToAdd, TimedAddReport
from service.queries import OnDuplicate, Target
from service.work.job import Job, JobLane
from service.work.worker import Worker


@dataclass(frozen=True)
class GetItem(Job[StoredItem]):
    """Look an item up."""

    target: Target
    item_id: str

    def run(self, worker: Worker) -> StoredItem:
        """Return what the index knows of it."""
        return worker.engine().item(self.target, self.item_id)


@dataclass(frozen=True)
class AddPhotos(Job[TimedAddReport]):
    """Add photos in one step."""

    photos: tuple[PhotoToAdd, ...]
    on_duplicate: OnDuplicate

    @property
    def lane(self) -> JobLane:
        """Changes of the index have a lane of their own."""
        return "write"

    def run(self, worker: Worker) -> TimedAddReport:
        """Return what became of them."""
        return worker.changer().add_photos(worker.engine().model, self.photos, self.on_duplicate)


@dataclass(frozen=True)
class AddTexts(Job[TimedAddReport]):
    """Add texts in one step."""

    texts: tuple[TextToAdd, ...]
    on_duplicate: OnDuplicate

    @property
    def lane(self) -> JobLane:
        """Changes of the index have a lane of their own."""
        return "write"

    def run(self, worker: Worker) -> TimedAddReport:
        """Return what became of them."""
        return worker.changer().add_texts(worker.engine().model, self.texts, self.on_duplicate)


@dataclass(frozen=True)
class DeleteItem(Job[DeleteReport]):
    """Delete one item."""

    target: Target
    item_id: str

    @property
    def lane(self) -> JobLane:
        """Changes of the index have a lane of their own."""
        return "write"

    def run(self, worker: Worker) -> DeleteReport:
        """Return what became of it."""
        return worker.changer().delete(self.target, self.item_id)
