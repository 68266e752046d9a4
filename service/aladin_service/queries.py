"""What can be asked of an index, by whichever front door."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class TextQuery:
    """Words, as the user typed them."""

    text: str


@dataclass(frozen=True)
class PhotoQuery:
    """A picture file that is not part of the index.

    Attributes:
        data: the undecoded, untrusted bytes.
        source: names the picture in errors.
    """

    data: bytes
    source: str = "image"


@dataclass(frozen=True)
class RegionsQuery:
    """The regions of a photo that is not part of the index, as a detector found them.

    Attributes:
        data: an npz file, undecoded, untrusted.
        photo: the picture file itself, undecoded, for a drawing of the evidence; None: not given.
        source: names the regions in errors.
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
    """A given embedding: it has no words or regions to align, the first stage decides alone.

    Attributes:
        values: as many as the index's embeddings have; only their direction counts.
    """

    values: tuple[float, ...]


Query = TextQuery | PhotoQuery | RegionsQuery | ItemQuery | EmbeddingQuery


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How to search.

    Attributes:
        k: hits wanted, at least 1.
        offset: hits to skip, for the next page.
        candidates: size of the first stage's result; None takes the index's own value.
        rerank: order the candidates by the second stage.
        fusion: weight of the alignment score in [0, 1]; None takes the fitted one.
        explain: add the evidence to the hits.
        filter: metadata that a hit must have.
        min_probability: leaves out hits that are less likely to belong to the query, in [0, 1];
            None leaves out none.
        timeout_ms: time for the whole answer; the second stage is left out where it does not fit
            in. None: it may take as long as it takes.
    """

    k: int = 10
    offset: int = 0
    candidates: int | None = None
    rerank: bool = True
    fusion: float | None = None
    explain: bool = False
    filter: dict[str, Any] = field(default_factory=dict)
    timeout_ms: float | None = None
    min_probability: float | None = None
