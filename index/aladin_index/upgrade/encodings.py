"""What the new model of an upgrade has encoded of one collection, and from what.

INDEX/.upgrade/0123456789abcdef/       of one model and detector
  images/000001/keys.npy               (items,) the key of each item that this pass began with
  images/000001/shard-00000/           finished items of the pass; `building.shards`

A key identifies an item and what it is encoded from: the text; or the place of the photo with the
size and time of its file. So an upgrade that was cut short goes on with all finished shards,
whichever generation is live by then, and encodes again only what has changed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.building.shards import ROWS, Shard, ShardFormat, ShardItems, read_shard
from aladin_index.encode.source_items import ImageItem, SourceItem, TextItem, file_state
from aladin_index.items.tables import StoredItem
from aladin_index.items.uploaded_photos import photo_of
from aladin_network.errors import IndexCorruptError
from aladin_network.files import atomic_folder
from aladin_network.types import Target

KEY_DTYPE = np.dtype("S32")
_KEYS = "keys.npy"


def lack_of(root: Path, item: StoredItem, target: Target) -> str | None:
    """Return why there is nothing that an item could be encoded from, or None if there is."""
    if target == "texts":
        return None if item.text is not None else "it came without a text (imported encodings)"
    photo = photo_of(root, item)
    if photo is None:
        return "it came without a photo (imported encodings, or regions alone)"
    return None if photo.path.is_file() else "the file of its photo is gone"


def source_of(root: Path, item: StoredItem, target: Target) -> SourceItem:
    """Return what an item is encoded from; it lacks nothing, see `lack_of`."""
    if target == "texts":
        return TextItem(id=item.id, text=item.text or "", image_id=item.image_id)
    photo = photo_of(root, item)
    assert photo is not None
    return ImageItem(
        id=item.id,
        uri=item.uri or item.id,
        path=photo.path,
        offset=photo.offset,
        length=photo.length,
    )


def key_of(root: Path, item: StoredItem) -> bytes:
    """Return the key of an item with a source, see the module."""
    if item.path is None:
        source: list[object] = [item.text]
    else:
        source = [item.path, item.offset, item.length, file_state(root / item.path)]
    text = json.dumps([item.id, *source])
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return digest[: KEY_DTYPE.itemsize].encode("ascii")


class _SortedKeys(NamedTuple):
    """Keys of a pass in ascending order, and the places of their items."""

    keys: NDArray[np.bytes_]
    places: NDArray[np.int64]


class Encodings:
    """Finished shards of one collection; an item's place is its number among all their items.

    Attributes:
        shards: Finished shards in their order.
    """

    def __init__(self, folder: Path, form: ShardFormat) -> None:
        self.form = form
        self.shards: list[Shard] = []
        self._folder = folder
        self._starts = [0]  # place of the first item of each shard, and their number
        self._passes: list[_SortedKeys] = []
        for leftover in list(folder.glob("**/.*.partial")):
            shutil.rmtree(leftover)
        for of_pass in sorted(folder.glob("[0-9]*")):
            self._take(of_pass)

    def begin(self, keys: NDArray[np.bytes_]) -> Path:
        """Make the folder of a pass over items with these keys, for its shards."""
        passes = sorted(self._folder.glob("[0-9]*"))
        number = 1 + int(passes[-1].name) if passes else 1
        with atomic_folder(self._folder / f"{number:06d}") as partial:
            np.save(partial / _KEYS, keys)
        return self._folder / f"{number:06d}"

    def finish(self, folder: Path) -> list[Shard]:
        """Take the shards of a pass in, and return them."""
        known = len(self.shards)
        self._take(folder)
        return self.shards[known:]

    def find(self, keys: NDArray[np.bytes_]) -> NDArray[np.int64]:
        """Return the place of each key, or -1 where it is not encoded."""
        found = np.full(len(keys), -1, dtype=np.int64)
        for each in self._passes:
            at = np.minimum(np.searchsorted(each.keys, keys), len(each.keys) - 1)
            found = np.where(each.keys[at] == keys, each.places[at], found)
        return found

    def read(
        self, places: NDArray[np.int64], most: int
    ) -> Iterator[tuple[slice, ShardItems, NDArray[np.int64]]]:
        """Find the items of ascending places, at most so many at a time.

        Where among `places` the items are, what reads their shard, and their places in it.
        """
        cuts = np.searchsorted(places, self._starts).tolist()
        for number, shard in enumerate(self.shards):
            if cuts[number] == cuts[number + 1]:
                continue
            read = ShardItems(shard)
            for start in range(cuts[number], cuts[number + 1], most):
                among = slice(start, min(start + most, cuts[number + 1]))
                yield among, read, places[among] - self._starts[number]

    def _take(self, folder: Path) -> None:
        """Add the shards of a pass."""
        first, found = self._starts[-1], [np.empty(0, dtype=KEY_DTYPE)]
        try:
            of_pass = np.load(folder / _KEYS, allow_pickle=False)
            for place in sorted(folder.glob("shard-*")):
                shard = read_shard(place, self.form)
                assert shard is not None  # it was listed
                found.append(of_pass[shard.array(ROWS)])
                self.shards.append(shard)
                self._starts.append(self._starts[-1] + len(found[-1]))
        except (OSError, ValueError, EOFError, IndexError) as error:
            raise IndexCorruptError(folder, f"cannot be read ({error})") from error
        keys = np.concatenate(found)
        if len(keys):
            order = np.argsort(keys)
            self._passes.append(_SortedKeys(keys[order], order + first))
