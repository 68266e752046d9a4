"""Where the photos of a source lie: none is taken from outside of a root, if there is one."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Literal

from aladin.photos_root import ListedPhotos, PhotosRoot

_Way = Literal["by an absolute path", "by '..'", "by a link"]
_EXAMPLES = 3
OUTSIDE = "the photo's file lies outside of the folder of --photos-root"


class PhotoPlaces:
    """Looks at the place of each photo while a source is read once."""

    def __init__(self, source: Path, root: Path | None = None) -> None:
        """See nothing yet.

        Args:
            source: folder of the data set; photos outside of it are counted where there is no
                root.
            root: folder outside of which no photo is taken, or None to take photos from anywhere.
        """
        self._has_root = root is not None
        self._source = source
        self._places = ListedPhotos(PhotosRoot(source if root is None else root))
        self._counts: dict[_Way, int] = {}
        self._examples: list[str] = []

    def fault(self, path: Path, uri: str) -> str | None:
        """Return why a photo is not taken.

        Args:
            path: absolute path of the photo's file.
            uri: the photo as the source names it.

        Returns:
            The reason, without a path, or None if the photo is taken.
        """
        if self._places.holds(path):
            return None
        if self._has_root:
            return OUTSIDE
        way = _way_out(uri)
        self._counts[way] = self._counts.get(way, 0) + 1
        if len(self._examples) < _EXAMPLES:
            self._examples.append(uri)
        return None

    @property
    def warning(self) -> str | None:
        """What to say of photos that lie outside of the source, or None if there are none."""
        total = sum(self._counts.values())
        if total == 0:
            return None
        ways = ", ".join(f"{count} {way}" for way, count in self._counts.items())
        names = ", ".join(map(repr, self._examples)) + (", ..." if total > _EXAMPLES else "")
        return (
            f"photos outside of {self._source}: {total} ({ways}): {names}; whoever may search the "
            "index can see them, --photos-root DIR takes only photos inside of DIR"
        )


def _way_out(uri: str) -> _Way:
    path = PurePosixPath(uri)
    if path.is_absolute():
        return "by an absolute path"
    return "by '..'" if ".." in path.parts else "by a link"
