"""Uploaded photos: the index stores their bytes, named by the hash of their content."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from aladin_index.format.layout import PHOTOS
from aladin_index.items.tables import StoredItem
from aladin_network.files import atomic_file, make_folder
from aladin_network.photos.files import PhotoFile

_KEPT = re.compile(rf"{PHOTOS}/[0-9a-f]{{2}}/[0-9a-f]{{64}}")


@dataclass(frozen=True)
class UploadedPhoto:
    """Bytes of a photo that the index stores.

    Attributes:
        data: Content of the picture file, as received.
    """

    data: bytes

    @cached_property
    def path(self) -> str:
        """Path of the stored file relative to the index: photos/ab/abcd..., by the sha256."""
        digest = hashlib.sha256(self.data).hexdigest()
        return f"{PHOTOS}/{digest[:2]}/{digest}"

    def write(self, root: Path) -> None:
        """Write the photo to disk, unless it is stored already; durable on return.

        Raises:
            OSError: If the disk is full or cannot be written.
        """
        path = root / self.path
        if not path.exists():
            make_folder(path.parent)
            with atomic_file(path) as partial:
                partial.write_bytes(self.data)


def photo_of(root: Path, item: StoredItem) -> PhotoFile | None:
    """Find the bytes of an image: its own file, or the copy stored in the index.

    Args:
        root: Index folder, which may have been moved since the photo was uploaded.
        item: Item of the index.

    Returns:
        None for a text, and where the index, which may come from elsewhere, names as kept what it
        does not keep: another file, or a link that leads out of it.
    """
    photo = item.photo
    if photo is None or photo.path.is_absolute():
        return photo
    if not _KEPT.fullmatch(photo.path.as_posix()):
        return None
    path = root / photo.path
    if Path(os.path.realpath(path)) != Path(os.path.realpath(root), photo.path):
        return None
    return replace(photo, path=path)


def sweep_photos(root: Path, used: Collection[str]) -> int:
    """Remove uploaded photos that no item refers to, and partial files of killed processes."""
    count = 0
    for path in sorted((root / PHOTOS).glob("*/*")):
        name = path.relative_to(root).as_posix()
        known = re.fullmatch(rf"{PHOTOS}/[0-9a-f]{{2}}/([0-9a-f]{{64}}|\..*\.partial)", name)
        if known and name not in used:
            path.unlink()
            count += 1
    return count
