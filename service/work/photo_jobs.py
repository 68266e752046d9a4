"""Jobs on the photos of the index's items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from aladin.images import DEFAULT_LIMITS
from aladin.photo_file import PhotoFile
from service.photos.photo_bytes import (
    PhotoBytes,
    PhotoGoneError,
    cut_photo,
    photo_version,
    resized_photo,
    rewritten_photo,
)
from service.work.job import Job, JobLane
from service.work.worker import Worker


class PhotoRead(NamedTuple):
    """An item's photo.

    Attributes:
        version: another one as soon as the photo is another.
        photo: None for a client that has this version.
    """

    version: str
    photo: PhotoBytes | None


@dataclass(frozen=True)
class ReadPhoto(Job[PhotoRead]):
    """Read an item's photo.

    Attributes:
        item_id: of the images.
        size_px: longest side; None: as large as it is.
        known: versions that the client has.
    """

    item_id: str
    size_px: int | None
    known: frozenset[str] = frozenset()

    @property
    def lane(self) -> JobLane:
        """Photos of full size may take long, and do not hold up smaller ones."""
        return "original" if self.size_px is None else "picture"

    def run(self, worker: Worker) -> PhotoRead:
        """Return its bytes."""
        file = worker.engine().photo(self.item_id)
        if file is None:
            raise PhotoGoneError(self.item_id)
        version = photo_version(file, self.item_id, self.size_px)
        if version in self.known:
            return PhotoRead(version, None)
        # The index's own: what its building could decode, it can hand out.
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
