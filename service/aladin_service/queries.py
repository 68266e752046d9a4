"""Queries that an index can be searched with, for all interfaces."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TextQuery:
    """Words, as the user typed them."""

    text: str


@dataclass(frozen=True)
class PhotoQuery:
    """A picture file that is not part of the index.

    Attributes:
        data: The undecoded, untrusted bytes.
        source: Name of the picture in errors.
    """

    data: bytes
    source: str = "image"


@dataclass(frozen=True)
class RegionsQuery:
    """The regions of a photo that is not part of the index, as a detector found them.

    Attributes:
        data: An npz file, undecoded and untrusted.
        photo: The undecoded picture file itself, for a drawing of the evidence, or None if not
            given.
        source: Name of the regions in errors.
    """

    data: bytes
    photo: bytes | None = None
    source: str = "regions"


@dataclass(frozen=True)
class ItemQuery:
    """An item of the index, an image or a text.

    Attributes:
        item_id: Id of the item.
        include_itself: Whether the item may be among its own hits, where items of its kind are
            searched.
    """

    item_id: str
    include_itself: bool = False


@dataclass(frozen=True)
class EmbeddingQuery:
    """A given embedding: it has no words or regions to align, so the first stage alone ranks.

    Attributes:
        values: Embedding of the same dimension as the index's embeddings; only its direction
            matters.
    """

    values: tuple[float, ...]


Query = TextQuery | PhotoQuery | RegionsQuery | ItemQuery | EmbeddingQuery
