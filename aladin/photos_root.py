"""The folder outside of which no photo is taken into an index, and none is served."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

# Folders whose real path is remembered while a data set is read.
_FOLDERS = 1024


class PhotosRoot:
    """A folder that photos have to lie in after all links were followed."""

    def __init__(self, folder: Path) -> None:
        """Resolve the folder itself, which may be a link."""
        self.folder = Path(os.path.realpath(folder))
        self._prefix = os.path.join(self.folder, "")  # noqa: PTH118 - "/" stays "/"

    def holds(self, path: Path) -> bool:
        """Whether a photo's file lies in the folder; looks at the disk each time."""
        try:
            return os.path.realpath(path).startswith(self._prefix)
        except ValueError:  # a name with a zero byte is none
            return False


class ListedPhotos:
    """Asks a `PhotosRoot` about many photos: the folders that hold them are resolved once."""

    def __init__(self, root: PhotosRoot) -> None:
        """Remember nothing yet; an object serves one reading of a data set."""
        self._root = root
        self._holds_folder = lru_cache(_FOLDERS)(self._resolved)

    def holds(self, path: Path) -> bool:
        """Whether a photo's file lies in the root."""
        if ".." in path.parts or path.is_symlink():
            return self._root.holds(path)
        return self._holds_folder(path.parent)

    def _resolved(self, folder: Path) -> bool:
        # A file of that folder, so that the root itself counts as a place of photos.
        return self._root.holds(folder / "photo")
