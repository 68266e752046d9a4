"""The photos and the concurrent searches of `benchmarks.index.live_updates`.

Groups of synthetic photos are added, replaced and deleted, and the index is searched continuously
while its writers are killed.
"""

from __future__ import annotations

import json
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from aladin_index.encode.encoded import AnyBatch, PackedBatch
from aladin_index.format.layout import live_generation
from aladin_index.generations.collection_writer import CollectionSource
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.generations.writer import NewGeneration, write_generation
from aladin_index.items.tables import StoredItem
from aladin_index.items.uploaded_photos import UploadedPhoto, photo_of
from aladin_index.search.options import SearchOptions
from aladin_index.search.query import Term
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.settings import BuildSettings
from aladin_index.tokens.codec import TokenCodec
from aladin_network.scoring.encoding import Encoding
from benchmarks.lib.processes import forked
from benchmarks.lib.small_collection import (
    new_index,
    photo_row,
    small_model,
    text_encoding,
    unit_rows,
)

# Every call changes a whole group: a reader that sees a part of a group sees half a call.
GROUP_ITEMS = 3
# Number of groups in an index at a time.
MOST_GROUPS = 80
_EMBEDDING_DIM, _TOKEN_DIM, _TOKENS = 16, 8, 4
# Between two searches: leaves the writers a share of the processors.
_PAUSE_S = 0.01
_CODEC = TokenCodec("float16", _TOKEN_DIM)

# Current version of each group, by its number.
Groups = dict[int, int]
# Group and version of an item, or None if its content does not match them.
Content = tuple[int, int] | None


class Made(NamedTuple):
    """One version of a group, determined by its two numbers."""

    items: list[StoredItem]
    embeddings: np.ndarray
    tokens: np.ndarray
    photos: list[UploadedPhoto]


def make_group(group: int, version: int) -> Made:
    """Make the items of a group: the same at every call, different for every version."""
    random = np.random.default_rng([group, version])
    embeddings = unit_rows(random.standard_normal((GROUP_ITEMS, _EMBEDDING_DIM)))
    tokens = unit_rows(random.standard_normal((GROUP_ITEMS * _TOKENS, _TOKEN_DIM)))
    photos = [UploadedPhoto(random.bytes(200)) for _ in range(GROUP_ITEMS)]
    items = [
        photo_row(place, item_id, {"group": group, "version": version}, path=photo.path)
        for place, (item_id, photo) in enumerate(zip(group_ids(group), photos, strict=True))
    ]
    return Made(items, embeddings, tokens, photos)


def group_ids(group: int) -> list[str]:
    """Return the IDs of a group, the same in every version."""
    return [f"{group}-{place}" for place in range(GROUP_ITEMS)]


def new_group(group: int, version: int) -> AnyBatch:
    """Return a group in the form in which it is added."""
    made = make_group(group, version)
    lengths = np.full(GROUP_ITEMS, _TOKENS, dtype=np.int64)
    return AnyBatch(
        items=made.items,
        embeddings=made.embeddings,
        tokens=made.tokens,
        lengths=lengths,
        photos=made.photos,
    )


def build_groups(root: Path, groups: Mapping[int, int]) -> None:
    """Build an index of groups, images only.

    Args:
        root: Folder of the index; new.
        groups: Groups with their versions.
    """
    with new_index(root, small_model(_EMBEDDING_DIM, _TOKEN_DIM)) as model:
        for group, version in groups.items():
            for photo in make_group(group, version).photos:
                photo.write(root)
        collection = CollectionSource(
            embedding_dim=_EMBEDDING_DIM, codec=_CODEC, parts=_parts(groups)
        )
        write_generation(
            root,
            NewGeneration(
                collections={"images": collection},
                model=model,
                settings=BuildSettings(),
                fingerprint="live updates",
            ),
        )


def read_groups(index: SearchIndex) -> dict[str, Content]:
    """Read all items of an index and compare them with their expected content.

    Returns:
        By id, the group and the version; None where the embedding, the tokens or the photo is
        that of another item.
    """
    collection = index.collection("images")
    rows = dict(collection.items.ids())
    found: dict[str, Content] = {}
    for item in collection.items.by_rows(list(rows.values())):
        group, version = item.metadata["group"], item.metadata["version"]
        place = group_ids(group).index(item.id)
        made = make_group(group, version)
        tokens = made.tokens[place * _TOKENS : (place + 1) * _TOKENS].astype(np.float16)
        photo = photo_of(index.path, item)
        right = (
            np.array_equal(collection.embedding(item.row), made.embeddings[place])
            and np.array_equal(collection.tokens(item.row), tokens.astype(np.float32))
            and photo is not None
            and photo.path.exists()
            and photo.read() == made.photos[place].data
        )
        found[item.id] = (group, version) if right else None
    return found


def some_query(random: np.random.Generator) -> Encoding:
    """Make a random text encoding."""
    embedding = unit_rows(random.standard_normal(_EMBEDDING_DIM))
    return text_encoding(embedding, unit_rows(random.standard_normal((3, _TOKEN_DIM))))


def _parts(groups: Mapping[int, int]) -> Iterator[PackedBatch]:
    for group, version in groups.items():
        made = make_group(group, version)
        lengths = np.full(GROUP_ITEMS, _TOKENS, dtype=np.int64)
        yield PackedBatch(made.items, made.embeddings, _CODEC.pack(made.tokens), lengths)


class GroupSearcher:
    """A process that searches all items of the index repeatedly."""

    def __init__(self, root: Path, seed: int) -> None:
        """Start the process.

        Args:
            root: Folder of the index.
            seed: Seed of the random queries.
        """
        self._child, self._lines = forked(lambda say: _search(root, seed, say))
        next(self._lines)  # it has begun

    def stop(self) -> tuple[int, int]:
        """Stop the process; return the numbers of searches and of broken searches."""
        os.kill(self._child, signal.SIGTERM)
        counts = json.loads(list(self._lines)[-1])
        os.waitpid(self._child, 0)
        return counts[0], counts[1]


def _search(root: Path, seed: int, say: Callable[[str], None]) -> None:
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    say("begun")
    chance = np.random.default_rng(seed)
    searches = broken = 0
    index: SearchIndex | None = None
    parent = os.getppid()
    while not stopped and os.getppid() == parent:  # it does not outlive a benchmark that failed
        try:
            if index is None or index.generation != live_generation(root):
                if index is not None:
                    index.close()
                index = open_index(root)
            broken += not _sees_whole_groups(index, chance)
        except Exception:
            traceback.print_exc()
            broken += 1
        searches += 1
        time.sleep(_PAUSE_S)
    say(json.dumps([searches, broken]))


def _sees_whole_groups(index: SearchIndex, chance: np.random.Generator) -> bool:
    everything = GROUP_ITEMS * 4 * MOST_GROUPS
    hits = (
        TwoStageSearcher(index)
        .search(
            Term(some_query(chance), "text"),
            "images",
            SearchOptions(k=everything, candidates=everything),
        )
        .hits
    )
    versions: dict[int, list[int]] = {}
    for hit in hits:
        versions.setdefault(hit.metadata["group"], []).append(hit.metadata["version"])
    whole = all(len(each) == GROUP_ITEMS and len(set(each)) == 1 for each in versions.values())
    return whole and len({hit.id for hit in hits}) == len(hits) > 0
