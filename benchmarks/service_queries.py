"""Queries for a service, taken from the index that it serves."""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from aladin.images import DEFAULT_LIMITS
from index.changes.uploaded_photos import photo_of
from index.reader import open_index
from index.settings import TARGETS, Target

_MOST_TEXTS, _MOST_PHOTOS, _MOST_IDS = 2000, 64, 500


@dataclass(frozen=True, kw_only=True)
class ServiceQueries:
    """What an index can be asked.

    Attributes:
        texts: captions of its photos, or its texts.
        photos: picture files of its images.
        ids: of its items, by side; a text's id finds images, an image's texts.
    """

    texts: list[str]
    photos: list[bytes]
    ids: dict[Target, list[str]]

    def new_texts(self, count: int, seed: int = 0) -> list[str]:
        """Make texts of the usual length that have not been asked before.

        Half of one caption is put before half of another: a remembered encoding helps none of
        them.
        """
        chance = random.Random(seed)
        texts: list[str] = []
        for _ in range(count):
            first, second = (chance.choice(self.texts).split() for _ in range(2))
            start, end = first[: -(-len(first) // 2)], second[len(second) // 2 :]
            texts.append(" ".join([*start, *end]))
        return texts


def read_queries(path: Path) -> ServiceQueries:
    """Read queries of an index of photos, and perhaps of texts.

    Raises:
        SearchIndexError: no such index, or a damaged one.
        SystemExit: it has no captions and no texts, or no picture file is there.
    """
    texts: list[str] = []
    photos: list[bytes] = []
    ids: dict[Target, list[str]] = {}
    with closing(open_index(path)) as index:
        for target in TARGETS:
            if target not in index.manifest.targets:
                continue
            side = index.side(target)
            items = side.items.by_rows(range(min(_MOST_TEXTS, side.entry.count)))
            texts += [item.text for item in items if item.text]
            ids[target] = [item.id for item in items[:_MOST_IDS]]
            for item in items if target == "images" else []:
                photo = photo_of(path, item)
                if photo is not None and len(photos) < _MOST_PHOTOS and photo.path.exists():
                    photos.append(photo.read(DEFAULT_LIMITS.max_bytes))
    if not texts or not photos:
        raise SystemExit(f"{path}: expected captions and picture files to ask with")
    return ServiceQueries(texts=texts, photos=photos, ids=ids)
