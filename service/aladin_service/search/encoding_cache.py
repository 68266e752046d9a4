"""A cache of query encodings: repeated queries need no second pass through the network."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from aladin_network.scoring.scores import Encoding
from aladin_service.lru_cache import LruCache
from aladin_service.queries import PhotoQuery, RegionsQuery

# Overhead of an entry besides its numbers and its key: tensors, tuples and the table itself.
_ENTRY_BYTES = 1500


class CacheKey(NamedTuple):
    """Key that determines an encoding.

    Attributes:
        model_id: ID of the network's model.
        content: the text as it came, or the sha256 of the bytes of a photo or its regions.
    """

    model_id: str
    content: str | bytes

    @classmethod
    def of(cls, model_id: str, content: str | bytes) -> CacheKey:
        """Return the key of a text or of a file.

        Args:
            model_id: ID of the network's model.
            content: the text, or the bytes of the file.
        """
        is_photo = isinstance(content, bytes)
        return cls(model_id, hashlib.sha256(content).digest() if is_photo else content)


class CachedEncoding(NamedTuple):
    """The encoding of one query.

    Attributes:
        encoding: Encoding of a single item, without padding.
        size_px: width and height of a photo; None for a text.
        boxes: Boxes of a photo's regions, if they were given.
    """

    encoding: Encoding
    size_px: tuple[int, int] | None
    boxes: npt.NDArray[np.float32] | None = None


class EncodingCache(LruCache[CacheKey, CachedEncoding]):
    """Keeps the most recently used encodings; see `LruCache`."""

    def entry_bytes(self, key: CacheKey, entry: CachedEncoding) -> int:
        """Return the memory that an entry takes, its key included."""
        # A text takes at most four bytes per character in memory.
        content = key.content
        of_key = len(content) if isinstance(content, bytes) else 4 * len(content)
        boxes = 0 if entry.boxes is None else entry.boxes.nbytes
        return _ENTRY_BYTES + of_key + boxes + sum(part.nbytes for part in entry.encoding)


def content_of(query: PhotoQuery | RegionsQuery) -> bytes:
    """Return the cache key's content, which differs for files of different kinds."""
    if isinstance(query, PhotoQuery):
        return query.data
    # The photo given with regions is part of the content, too, because it determines the size.
    files = (b"regions", query.data, query.photo or b"")
    return b"".join(hashlib.sha256(each).digest() for each in files)


def without_padding(encoding: Encoding, row: int) -> Encoding:
    """Copy one item, so that it does not keep the whole batch in memory."""
    tokens = encoding.item_tokens(row)
    return Encoding(
        embedding=encoding.embedding[row : row + 1].clone(),
        tokens=tokens.unsqueeze(0),
        mask=torch.ones(1, tokens.shape[0], dtype=torch.bool),
    )
