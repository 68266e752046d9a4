"""Items with their encodings: the one form in which all writers of an index take them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from aladin_index.format.manifest import CollectionEntry
from aladin_index.items.tables import StoredItem
from aladin_index.items.uploaded_photos import UploadedPhoto
from aladin_index.tokens.codec import PackedTokens
from aladin_network.errors import ShapeError

TokensT = TypeVar("TokensT", bound="NDArray[np.float32] | PackedTokens", covariant=True)


@dataclass(frozen=True)
class ItemBatch(Generic[TokensT]):
    """Some items with their encodings.

    Attributes:
        items: Items; the writer numbers their rows, regardless of the rows given.
        embeddings: (items, d_match) float32, L2-normalised; or, for a generation, the vectors of a
            corrected collection, see `aladin_index.ann.hub_correction`.
        tokens: Tokens of all items, one item's after the other's: (tokens, d_align) float32 as the
            network gave them, or packed by the collection's codec.
        lengths: (items,) int64, number of tokens of each item.
        photos: Uploaded photos that the items' paths name; written before the items are.
    """

    items: Sequence[StoredItem]
    embeddings: NDArray[np.float32]
    tokens: TokensT
    lengths: NDArray[np.int64]
    photos: Sequence[UploadedPhoto] = ()

    def each(self) -> Iterator[tuple[StoredItem, NDArray[np.float32], TokensT]]:
        """Yield each item with its embedding and its tokens."""
        ends = np.cumsum(self.lengths).tolist()
        starts = [0, *ends][: len(ends)]
        tokens: Any = self.tokens
        is_packed = isinstance(self.tokens, PackedTokens)
        cut: Callable[[slice], Any] = tokens.take if is_packed else tokens.__getitem__
        lines = zip(self.items, self.embeddings, starts, ends, strict=True)
        for item, embedding, start, end in lines:
            yield item, embedding, cut(slice(start, end))

    def take(self, kept: NDArray[np.bool_]) -> ItemBatch[TokensT]:
        """Return the items of a mask (items,) with their encodings."""
        marked = zip(self.items, kept.tolist(), strict=True)
        places, tokens = np.flatnonzero(np.repeat(kept, self.lengths)), cast(Any, self.tokens)
        return replace(
            self,
            items=[item for item, is_kept in marked if is_kept],
            embeddings=self.embeddings[kept],
            tokens=tokens.take(places) if isinstance(tokens, PackedTokens) else tokens[places],
            lengths=self.lengths[kept],
        )

    def check_fits(self, entry: CollectionEntry) -> None:
        """Refuse encodings whose shapes do not fit a collection by a `ShapeError`."""
        count, total = len(self.items), int(self.lengths.sum())
        if self.embeddings.shape != (count, entry.embedding_dim):
            raise ShapeError(f"embeddings ({count}, {entry.embedding_dim})", self.embeddings.shape)
        if isinstance(self.tokens, PackedTokens):
            found, expected = (self.tokens.count,), (total,)
        else:
            found, expected = self.tokens.shape, (total, entry.token_dim)
        if len(self.lengths) != count or found != expected:
            raise ShapeError(f"tokens {expected} of {count} items", found)


PackedBatch = ItemBatch[PackedTokens]
AnyBatch = ItemBatch["NDArray[np.float32] | PackedTokens"]
