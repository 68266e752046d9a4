"""Encodings of queries that may come again: the network need not run twice for the same words."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from aladin_network.scoring.scores import Encoding
from aladin_service.lru_cache import LruCache
from aladin_service.queries import PhotoQuery, RegionsQuery

# What an entry takes beside its numbers and its key: tensors, tuples and the table's own.
_ENTRY_BYTES = 1500


class CacheKey(NamedTuple):
    """What an encoding depends on.

    Attributes:
        model_id: of the network.
        content: the text as it came, or the sha256 of the bytes of a photo or its regions.
    """

    model_id: str
    content: str | bytes

    @classmethod
    def of(cls, model_id: str, content: str | bytes) -> CacheKey:
        """Return the key of a text, or of a file.

        Args:
            model_id: of the network.
            content: the text, or the bytes of the file.
        """
        is_photo = isinstance(content, bytes)
        return cls(model_id, hashlib.sha256(content).digest() if is_photo else content)


class CachedEncoding(NamedTuple):
    """The encoding of one query.

    Attributes:
        encoding: of the one item, without padding.
        size_px: width and height of a photo; None for a text.
        boxes: of a photo's regions, where they came with it.
    """

    encoding: Encoding
    size_px: tuple[int, int] | None
    boxes: npt.NDArray[np.float32] | None = None


class EncodingCache(LruCache[CacheKey, CachedEncoding]):
    """Keeps the encodings that were used last; see `LruCache`."""

    def entry_bytes(self, key: CacheKey, entry: CachedEncoding) -> int:
        """Return the memory that an entry takes, its key included."""
        # A text is at most four bytes a character in memory.
        content = key.content
        of_key = len(content) if isinstance(content, bytes) else 4 * len(content)
        boxes = 0 if entry.boxes is None else entry.boxes.nbytes
        return _ENTRY_BYTES + of_key + boxes + sum(part.nbytes for part in entry.encoding)


def content_of(query: PhotoQuery | RegionsQuery) -> bytes:
    """Return what an encoding is remembered under: no file may pass for one of the other kind."""
    if isinstance(query, PhotoQuery):
        return query.data
    # The photo that regions came with has its part, too: it says the size.
    files = (b"regions", query.data, query.photo or b"")
    return b"".join(hashlib.sha256(each).digest() for each in files)


def without_padding(encoding: Encoding, row: int) -> Encoding:
    """Copy one item, so that it does not keep its whole batch in memory."""
    tokens = encoding.item_tokens(row)
    return Encoding(
        embedding=encoding.embedding[row : row + 1].clone(),
        tokens=tokens.unsqueeze(0),
        mask=torch.ones(1, tokens.shape[0], dtype=torch.bool),
    )
