"""Jobs on the photos of the index's items."""

from __future__ import annotations

from dataclasses import dataclass

from aladin.images import ImageLimits
from service.photos import PhotoBytes, PhotoGoneError, original_photo, resized_photo
from service.work.job import Job
from service.work.worker import Worker


@dataclass(frozen=True)
class ReadPhoto(Job[PhotoBytes]):
    """Read an item's photo.

    Attributes:
        item_id: of the images.
        size_px: longest side; None: the file itself.
        limits: what it may cost to make it smaller.
    """

    item_id: str
    size_px: int | None
    limits: ImageLimits

    def run(self, worker: Worker) -> PhotoBytes:
        """Return its bytes."""
        photo = worker.engine().photo(self.item_id)
        if photo is None:
            raise PhotoGoneError(self.item_id)
        if self.size_px is None:
            return original_photo(photo, self.item_id)
        return resized_photo(photo, self.item_id, self.size_px, self.limits)
