"""What image encoders look at, by row: photos on disk, in several views."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

from PIL import Image

from aladin.errors import ImageError
from aladin.feature_cache import FeatureCache, content_digest
from aladin.images import decode_image
from aladin.photo_file import PhotoFile
from aladin.progress import Progress
from aladin.regions.region_set import RegionSet
from training.views import apply_view

logger = logging.getLogger(__name__)

THREADS = min(8, os.cpu_count() or 1)  # decoding releases the interpreter lock
# Of photos that are only to be decoded for a test: a decoder may leave pixels out.
_ANY_SIZE_PX = 1
_READ_AHEAD = 64  # files in memory at a time

S = TypeVar("S")
T = TypeVar("T")


class ImageItems(Protocol):
    """Photos, or their regions, by row; any number of threads may read them."""

    @property
    def views(self) -> int:
        """Number of views of each; view 0 is the photo itself."""
        ...

    def __len__(self) -> int:
        """Return the number of photos."""
        ...

    def key(self, row: int, view: int) -> str:
        """Return the digest of a photo's content in a view: its key in a `FeatureCache`."""
        ...

    def load(self, row: int, views: Sequence[int]) -> list[Image.Image | RegionSet]:
        """Read a photo once and return some of its views, as encoders preprocess them."""
        ...


@dataclass(frozen=True)
class PhotoItems:
    """Photos on disk.

    Attributes:
        files: where their bytes are.
        names: of the views, see `training.views.view_names`.
        keys: ``keys[view][row]``.
    """

    files: list[PhotoFile]
    names: list[str]
    keys: list[list[str]]

    @property
    def views(self) -> int:
        """Number of views of each photo."""
        return len(self.names)

    def __len__(self) -> int:
        """Return the number of photos."""
        return len(self.files)

    def key(self, row: int, view: int) -> str:
        """Return the digest of a photo's bytes and of the view's name."""
        return self.keys[view][row]

    def load(self, row: int, views: Sequence[int]) -> list[Image.Image | RegionSet]:
        """Decode a photo and return some of its views.

        Raises:
            ImageError: the file has been damaged since `usable_photos` looked at it.
        """
        content = self.files[row].read()
        photo = decode_image(content, self.files[row].source)
        digest = content_digest(content)
        return [apply_view(photo, self.names[view], digest) for view in views]


def usable_photos(
    files: Sequence[PhotoFile],
    names: Sequence[str],
    cache: FeatureCache | None,
    progress: Progress,
) -> tuple[PhotoItems, list[int]]:
    """Find out which photos can be decoded; a damaged one is left out with a warning.

    Args:
        files: where their bytes are.
        names: of the views.
        cache: of an encoder; what it holds has been decoded before.
        progress: told of photos.

    Returns:
        The usable photos, and their rows among `files`.

    Raises:
        ImageError: a photo file cannot be read.
    """

    def look(file: PhotoFile) -> list[str] | None:
        content = file.read()
        keys = [content_digest(content, name) for name in names]
        known = cache is not None and keys[0] in cache
        return keys if known or _is_sound(content, file) else None

    progress.start(len(files), "photos")
    keys: list[list[str]] = [[] for _ in names]
    usable: list[int] = []
    for row, found in enumerate(in_threads(files, look)):
        progress.advance()
        if found is not None:
            usable.append(row)
            for of_view, key in zip(keys, found, strict=True):
                of_view.append(key)
    return PhotoItems([files[row] for row in usable], list(names), keys), usable


def in_threads(items: Sequence[S], work: Callable[[S], T]) -> Iterator[T]:
    """Map over items in a few threads, in order, with bounded look-ahead."""
    with ThreadPoolExecutor(THREADS) as pool:
        for start in range(0, len(items), _READ_AHEAD):
            yield from pool.map(work, items[start : start + _READ_AHEAD])


def _is_sound(content: bytes, file: PhotoFile) -> bool:
    try:
        decode_image(content, file.source, at_least_px=_ANY_SIZE_PX)
    except ImageError as error:
        logger.warning("left out: %s", error)
        return False
    return True
