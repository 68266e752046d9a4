"""Items that both models have encoded: what bridges are fitted to, and scales are compared by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aladin_index.items.tables import StoredItem
from aladin_index.search.evidence import region_boxes
from aladin_index.search.live_collection import LiveCollection
from aladin_index.search.results import Box
from aladin_index.tokens.codec import PackedTokens, TokenCodec
from aladin_index.tokens.store import TokenStore
from aladin_index.upgrade.parts import EncodedRows
from aladin_network.inference import Network


@dataclass(frozen=True, eq=False)
class ItemVectors:
    """Encodings of some items by one model.

    Attributes:
        embeddings: (items, d_match) float32.
        tokens: Tokens of the items.
        biases: (items, 2) what a hubness correction subtracts from the cosines and, for each word
            of a text, from the alignment scores; None without a correction.
    """

    embeddings: NDArray[np.float32]
    tokens: TokenStore
    biases: NDArray[np.float32] | None = None

    def take(self, places: NDArray[np.int64]) -> ItemVectors:
        """Return some of the items, in this order."""
        packed, lengths = self.tokens.packed(places), self.tokens.lengths(places)
        return ItemVectors(
            self.embeddings[places],
            TokenStore.from_arrays(self.tokens.codec, packed, lengths),
            None if self.biases is None else self.biases[places],
        )

    def each(self) -> list[NDArray[np.float32]]:
        """Return the tokens of each item, float32."""
        block = self.tokens.read(np.arange(self.tokens.count))
        return np.split(block.values, np.cumsum(block.lengths)[:-1])


@dataclass(frozen=True, eq=False)
class PairedItems:
    """Live items that both models have encoded.

    Attributes:
        items: The items.
        old: Their encodings by the old model.
        new: Their encodings by the new model.
    """

    items: Sequence[StoredItem]
    old: ItemVectors
    new: ItemVectors

    def __len__(self) -> int:
        """Number of items."""
        return len(self.items)

    def take(self, places: NDArray[np.int64]) -> PairedItems:
        """Return some of the items, in this order."""
        items = [self.items[place] for place in places.tolist()]
        return PairedItems(items, self.old.take(places), self.new.take(places))

    def boxes(self, old: Network, new: Network) -> list[tuple[Sequence[Box], Sequence[Box]]]:
        """Return the boxes of each photo's regions by both models, empty where unknown.

        Args:
            old: The old model.
            new: The new model.
        """
        found: list[tuple[Sequence[Box], Sequence[Box]]] = []
        rows = np.arange(len(self.items), dtype=np.int64)
        counts = zip(self.old.tokens.lengths(rows), self.new.tokens.lengths(rows), strict=True)
        for item, (before, after) in zip(self.items, counts, strict=True):
            own = region_boxes(old, int(before), item.size_px, item.region_boxes)
            found.append((own, region_boxes(new, int(after), item.size_px)))
        return found


def paired_items(
    live: LiveCollection, encoded: EncodedRows, rows: NDArray[np.int64]
) -> PairedItems:
    """Read items that both models have encoded.

    Args:
        live: The live collection, which the old model has encoded.
        encoded: What the new model has encoded.
        rows: Rows that are live and encoded.
    """
    tokens = encoded.tokens(rows)
    form = TokenCodec("float16", tokens.values.shape[1])
    new = ItemVectors(
        encoded.embeddings(rows), TokenStore.from_arrays(form, tokens, encoded.lengths(rows))
    )
    return PairedItems(live.items.by_rows(rows.tolist()), live_vectors(live, rows), new)


def live_vectors(live: LiveCollection, rows: NDArray[np.int64]) -> ItemVectors:
    """Read items as the model of the live generation has encoded them.

    Args:
        live: The live collection.
        rows: Rows that are live; those of changes come last.
    """
    packed: list[PackedTokens] = []
    built = rows[rows < live.entry.count]
    if len(built):
        packed.append(live.base.tokens.packed(built))
    if len(built) < len(rows):
        assert live.changes is not None  # only there are such rows
        packed.append(live.changes.tokens(rows[len(built) :]).stored)
    biases = None
    if live.entry.corrected:
        no_words = np.empty((1, live.entry.token_dim), dtype=np.float32)
        biases = live.biases(no_words, "image", rows)
    codec, lengths = live.base.tokens.codec, live.lengths(rows)
    return ItemVectors(
        live.embeddings(rows.tolist())[:, : live.entry.embedding_dim],
        TokenStore.from_arrays(codec, PackedTokens.concatenate(packed), lengths),
        biases,
    )
