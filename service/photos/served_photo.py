"""Which file is shown as the photo of an item of the index."""

from __future__ import annotations

import logging
from pathlib import Path

from aladin.photo_file import PhotoFile
from aladin.photos_root import PhotosRoot
from index.changes.uploaded_photos import photo_of
from index.items.tables import StoredItem

_LOG = logging.getLogger(__name__)


def served_photo(index: Path, item: StoredItem, root: PhotosRoot | None) -> PhotoFile | None:
    """Find the bytes of an item's photo, unless they lie where none may be shown from.

    Args:
        index: folder of the index; photos that it keeps itself are always shown.
        item: of the index.
        root: folder outside of which no photo is shown, or None to show photos from anywhere.

    Returns:
        Where the bytes are; None for a text, for a photo that the index has no file of, and for
        one outside of the root, which is logged.
    """
    photo = photo_of(index, item)
    if photo is None or root is None or item.photo is None or not item.photo.path.is_absolute():
        return photo
    if root.holds(photo.path):
        return photo
    _LOG.warning("photo of item %r lies outside of %s and is not shown", item.id, root.folder)
    return None
