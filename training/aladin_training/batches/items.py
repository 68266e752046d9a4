"""What image encoders read, by row: photos on disk in several views, or ready-made regions.

The views of a photo are the photo itself, its mirror image and random crops.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from PIL import Image, ImageOps

from aladin_network.config import ModelConfig
from aladin_network.encoders.readers import PhotoReader
from aladin_network.errors import DataError, ImageError, InputError
from aladin_network.photos.decoding import decode_image
from aladin_network.photos.files import PhotoFile
from aladin_network.photos.regions import RegionSet
from aladin_network.types import Progress
from aladin_training.batches.feature_cache import FeatureCache, content_digest
from aladin_training.data import Record
from aladin_training.data.records import SkipLog, unusable
from aladin_training.data.regions import RegionStore, region_keys

# Share of each side that a crop keeps: large enough that the captions stay true.
_CROP_SIDE = (0.65, 0.95)

PLAIN = ""

THREADS = min(8, os.cpu_count() or 1)  # decoding releases the interpreter lock
# For photos that are decoded only as a check: the decoder may skip pixels.
_ANY_SIZE_PX = 1
_READ_AHEAD = 64  # files in memory at a time
# So many that a photo is hardly ever shown in the same one twice.
_NEW_CROPS = 2**31

S = TypeVar("S")
T = TypeVar("T")


def view_names(mirror: bool, crops: int) -> list[str]:
    """Return the names of a photo's views; the first is the photo itself."""
    return [PLAIN, *(["mirrored"] if mirror else []), *(f"crop-{n}" for n in range(1, crops + 1))]


def view_name(names: Sequence[str], view: int) -> str:
    """Return the name of a view; numbers from ``len(names)`` on are new crops."""
    return names[view] if view < len(names) else f"crop-{view}"


def draw_view(views: int, new_crops: float, generator: random.Random) -> int:
    """Draw the view of a photo, from `views` on a new crop; without such, one number is drawn."""
    if new_crops and generator.random() < new_crops:
        return views + generator.randrange(_NEW_CROPS)
    return generator.randrange(views)


def apply_view(photo: Image.Image, view: str, photo_digest: str) -> Image.Image:
    """Return one view of a photo, whose digest determines the crop, with the view's name."""
    if view == PLAIN:
        return photo
    if view == "mirrored":
        return ImageOps.mirror(photo)
    generator = random.Random(f"{view}:{photo_digest}")
    side = generator.uniform(*_CROP_SIDE)
    left, top = (generator.uniform(0, 1 - side) for _ in range(2))
    box = (
        left * photo.width,
        top * photo.height,
        (left + side) * photo.width,
        (top + side) * photo.height,
    )
    crop = photo.resize(photo.size, Image.Resampling.BICUBIC, box=box)
    return ImageOps.mirror(crop) if generator.random() < 0.5 else crop


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
        """Return the digest of a photo's content in one of its views, its key in a cache."""
        ...

    def load(self, row: int, views: Sequence[int]) -> Sequence[Image.Image | RegionSet]:
        """Read a photo once and return some of its views, as encoders preprocess them."""
        ...


@dataclass(frozen=True)
class PhotoItems:
    """Photos on disk, in named views, with digests as ``keys[view][row]``."""

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
        """Decode a photo and return some of its views."""
        content = self.files[row].read()
        photo = decode_image(content, self.files[row].source)
        digest = content_digest(content)
        return [apply_view(photo, view_name(self.names, view), digest) for view in views]


def usable_photos(
    files: Sequence[PhotoFile],
    names: Sequence[str],
    cache: FeatureCache | None,
    progress: Progress,
) -> tuple[PhotoItems, list[int]]:
    """Return the photos that can be decoded, and their rows; others are skipped with a warning."""

    def look(file: PhotoFile) -> list[str] | ImageError:
        try:
            content = file.read()
            keys = [content_digest(content, name) for name in names]
            if cache is None or keys[0] not in cache:
                decode_image(content, file.source, at_least_px=_ANY_SIZE_PX)
        except ImageError as error:
            return error
        return keys

    progress.start(len(files), "photos")
    keys: list[list[str]] = [[] for _ in names]
    usable: list[int] = []
    log = SkipLog(files[0].path.parent)
    for row, found in enumerate(map_in_threads(files, look)):
        progress.advance()
        if isinstance(found, ImageError):
            log(unusable(DataError(found.source, None, found.reason)))
            continue
        usable.append(row)
        for of_view, key in zip(keys, found, strict=True):
            of_view.append(key)
    log.end(len(usable))
    return PhotoItems([files[row] for row in usable], list(names), keys), usable


def map_in_threads(items: Sequence[S], work: Callable[[S], T]) -> Iterator[T]:
    """Map over items in a few threads, in order, reading a bounded number ahead."""
    with ThreadPoolExecutor(THREADS) as pool:
        for start in range(0, len(items), _READ_AHEAD):
            yield from pool.map(work, items[start : start + _READ_AHEAD])


@dataclass(frozen=True)
class RegionItems:
    """Ready-made regions of photos, read on demand; see `ImageItems`."""

    store: RegionStore
    keys: list[str]

    @property
    def views(self) -> int:
        """Number of views: 1, since there is no photo to mirror or to crop."""
        return 1

    def __len__(self) -> int:
        """Return the number of photos."""
        return len(self.keys)

    def key(self, row: int, view: int) -> str:
        """Return the key of a photo's regions in a `FeatureCache`; nothing is read for it."""
        return content_digest(f"{self.store.fingerprint}:{self.keys[row]}".encode(), str(view))

    def load(self, row: int, views: Sequence[int]) -> list[Image.Image | RegionSet]:
        """Read a photo's regions."""
        regions = self.store.read(self.keys[row])
        return [regions for _ in views]


def region_items(
    records: Sequence[Record], encoder: PhotoReader, store: RegionStore
) -> RegionItems:
    """Find the regions of all photos, and check that the network can read them."""
    items = RegionItems(store, region_keys(records, store))
    encoder.preprocess(store.read(items.keys[0]))
    return items


def with_detector(config: ModelConfig, store: RegionStore) -> ModelConfig:
    """Add to a network's configuration which detector made the regions, if the store records it."""
    encoder = config.image_encoder
    if encoder.detector is not None:
        return config
    detector = store.read(next(iter(store.keys()))).detector
    return replace(config, image_encoder=replace(encoder, detector=detector))


def check_regions(encoder: PhotoReader, store: RegionStore | None) -> None:
    """Refuse photos for a network that reads regions, and regions for one that reads photos."""
    if encoder.reads == "regions" and store is None:
        raise InputError(
            "this network reads regions, not photos: expected ready-made ones, by "
            "`aladin index build --regions` or as regions in a recipe's [data]"
        )
    if encoder.reads == "photo" and store is not None:
        raise InputError(f"this network reads photos, not regions; it cannot use {store.path}")
