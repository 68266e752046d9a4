"""What a searcher and a service need of an index, wherever it is kept.

`aladin_index.generations.reader.SearchIndex` is FAISS and files, in the process that searches;
`aladin_index.engines.engine_index.EngineIndex` is an engine on other machines. Both have the
checkpoint here, for queries are encoded where they are answered.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from aladin_index.format.manifest import CollectionEntry, Manifest
from aladin_index.items.filters import Filter
from aladin_index.items.tables import StoredItem
from aladin_network.checkpoint import Checkpoint
from aladin_network.types import Modality, Target


class Ordered(NamedTuple):
    """What the first stage found.

    Attributes:
        rows: (found,) int64, best first, those of equal score in ascending order.
        match: (found,) float32, their cosines.
        candidates: how many the first stage took for candidates: as many as were asked for, or
            all that there are.
    """

    rows: NDArray[np.int64]
    match: NDArray[np.float32]
    candidates: int


class SecondStageQuery(NamedTuple):
    """What `SearchSide.align` will be asked of the items that a first stage finds.

    Attributes:
        tokens: (query_tokens, d_align) float32, of the query.
        modality: of the query.
    """

    tokens: Float[Tensor, "query_tokens dim"]
    modality: Modality


class Items(Protocol):
    """What the user said of the items of a side."""

    def by_rows(self, rows: Sequence[int]) -> list[StoredItem]:
        """Return the items at some rows, in the order asked for."""
        ...

    def by_id(self, item_id: str) -> StoredItem | None:
        """Return the item with this id, or None where there is none."""
        ...

    def by_ids(self, ids: Sequence[str]) -> list[StoredItem | None]:
        """Return what `by_id` does for each of some ids; an engine is asked for all of them."""
        ...


class Collection(Protocol):
    """The images or the texts at one moment, narrowed to what passes a filter; for one search.

    Items are named by their rows: numbers that mean an item to this object alone. An item looked
    up by its id need not pass the filter.
    """

    @property
    def target(self) -> Target:
        """Which of the two sides."""
        ...

    @property
    def entry(self) -> CollectionEntry:
        """What the manifest says of it."""
        ...

    @property
    def count(self) -> int:
        """Number of items that a search without a filter may find."""
        ...

    @property
    def has_tokens(self) -> bool:
        """Whether there is anything to re-rank by."""
        ...

    @property
    def items(self) -> Items:
        """Ids, texts and metadata."""
        ...

    def order(
        self,
        query: NDArray[np.float32],
        count: int,
        num_candidates: int,
        second_stage: SecondStageQuery | None = None,
    ) -> Ordered:
        """Order the first `count` items; a longer order always begins with a shorter one.

        Args:
            query: (d_match,), L2-normalised.
            count: items wanted; fewer are found only where there are no more.
            num_candidates: of the first stage.
            second_stage: that what is found will be scored by, so that one call of an engine
                brings all that this takes: the tokens, or the scores of an engine that can score
                images by the words of a text. None: it will not be.

        Raises:
            InputError: more items are wanted than an engine can find, or by a filter that it
                cannot apply.
            EngineUnavailableError: the engine does not answer.
        """
        ...

    def align(
        self,
        query: Float[Tensor, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> NDArray[np.float32]:
        """Score items by late interaction, see
        `aladin_index.tokens.alignment.alignment_with_candidates`.

        Raises:
            EngineUnavailableError: the tokens cannot be had now.
        """
        ...

    def similarities(
        self,
        query: Float[Tensor, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> list[NDArray[np.float32]]:
        """Compare tokens, see `aladin_index.tokens.alignment.SecondStage`.

        Raises:
            EngineUnavailableError: the tokens cannot be had now.
        """
        ...

    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of tokens of some items.

        Raises:
            EngineUnavailableError: the tokens cannot be had now.
        """
        ...

    def tokens(self, row: int) -> Float[Tensor, "tokens dim"]:
        """Read the tokens of one item, in float32."""
        ...

    def embedding(self, row: int) -> Float[Tensor, " dim"]:
        """Read the embedding of one item."""
        ...

    def embeddings(self, rows: Sequence[int]) -> Float[Tensor, "rows dim"]:
        """Read the embeddings of some items, at least one; an engine is asked for all of them."""
        ...


class SearchBackend(Protocol):
    """One open generation of an index; safe to use from any number of threads."""

    @property
    def path(self) -> Path:
        """The index's folder: its model, and photos that were uploaded."""
        ...

    @property
    def manifest(self) -> Manifest:
        """Of the generation."""
        ...

    @property
    def checkpoint(self) -> Checkpoint:
        """The model that the index was built with."""
        ...

    @property
    def generation(self) -> int:
        """Number of the generation."""
        ...

    @property
    def place(self) -> Hashable:
        """What tells the files of this generation from a copy of them; None: it has none."""
        ...

    def side(self, target: Target, filter: Filter | None = None) -> Collection:
        """Return one side as it is now, narrowed to what passes a filter.

        Raises:
            NoSuchTargetError: the index was built without it.
        """
        ...

    def check_health(self) -> None:
        """Return where searches can be answered now; asks an engine, if there is one.

        Raises:
            EngineUnavailableError: the engine does not answer.
        """
        ...

    def warm(self) -> None:
        """Have what searches read brought into memory, without waiting for it."""
        ...

    def close(self) -> None:
        """Let go of what it holds; no search may run any more."""
        ...
