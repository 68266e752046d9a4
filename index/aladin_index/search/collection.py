"""Interface of an index for searchers and services, independent of its storage.

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

from aladin_index.format.manifest import CollectionEntry, Manifest
from aladin_index.items.filters import Filter
from aladin_index.items.tables import StoredItem
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.types import Modality, Target


class Ordered(NamedTuple):
    """Result of the first stage.

    Attributes:
        rows: (found,) int64, best first, those of equal score in ascending order.
        match: (found,) float32, their cosines.
        candidates: Number of candidates of the first stage: the requested number, or all items if
            there are fewer.
        upper: (found,) float32, upper bounds of their alignment scores; None if they are not known,
            or if the items are scored as soon without them.
    """

    rows: NDArray[np.int64]
    match: NDArray[np.float32]
    candidates: int
    upper: NDArray[np.float32] | None = None


class Everything(NamedTuple):
    """All items that a search may find.

    Attributes:
        rows: (items,) int64, ascending.
        match: (items,) float32, their cosines.
        upper: (items,) float32, upper bounds of their alignment scores; infinity where none is
            known.
    """

    rows: NDArray[np.int64]
    match: NDArray[np.float32]
    upper: NDArray[np.float32]


class SecondStageQuery(NamedTuple):
    """Arguments of the later `Collection.align` call on the items that a first stage finds.

    Attributes:
        tokens: (query_tokens, d_align) float32, of the query.
        modality: Modality of the query.
        ranks: Whether the alignment has a weight in the order of the hits, so that bounds of it are
            of use.
    """

    tokens: Float[np.ndarray, "query_tokens dim"]
    modality: Modality
    ranks: bool = False


class FirstStageQuery(NamedTuple):
    """Arguments of `Collection.order`, of one of the searches whose items are ordered together."""

    query: NDArray[np.float32]
    wanted: int
    num_candidates: int
    second_stage: SecondStageQuery | None = None


class Items(Protocol):
    """User-provided data of the items of a collection."""

    def by_rows(self, rows: Sequence[int]) -> list[StoredItem]:
        """Return the items at some rows, in the requested order."""
        ...

    def by_id(self, item_id: str) -> StoredItem | None:
        """Return the item with this id, or None if there is none."""
        ...

    def by_ids(self, ids: Sequence[str]) -> list[StoredItem | None]:
        """Return the result of `by_id` for each id; one query of a vector database for all."""
        ...


class Collection(Protocol):
    """A snapshot of the images or the texts, restricted by a filter, for one search.

    Items are named by their rows: numbers that mean an item to this object alone. An item looked
    up by its id need not pass the filter.
    """

    @property
    def target(self) -> Target:
        """Target of the collection: images or texts."""
        ...

    @property
    def entry(self) -> CollectionEntry:
        """Manifest entry of the collection."""
        ...

    @property
    def count(self) -> int:
        """Number of items that a search without a filter may find."""
        ...

    @property
    def has_tokens(self) -> bool:
        """Whether the collection has tokens for re-ranking."""
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

        The candidates are the best by the cosines, or by a first stage that was fitted to the
        alignment, if there is one and `second_stage` has a weight; in either case they come in
        the order of the cosines.

        Args:
            query: (d_match,), L2-normalised.
            count: Number of items wanted; fewer are found only if there are no more.
            num_candidates: Number of candidates of the first stage.
            second_stage: Query that the results will be scored by, or None if they will not be
                scored. One call of the vector database then returns all that scoring needs: the
                tokens, or the scores if it can score images by the words of a text.

        Raises:
            InputError: If more items are wanted than a vector database can find, or it cannot apply
                the filter.
            EngineUnavailableError: If the vector database does not respond.
        """
        ...

    def everything(self, query: NDArray[np.float32], second_stage: SecondStageQuery) -> Everything:
        """Return all items that a search may find, with bounds of what `align` returns for them.

        Args:
            query: (d_match,), L2-normalised.
            second_stage: Query that the items will be scored by.

        Raises:
            InputError: If the index is in a vector database, which does not return all items.
        """
        ...

    def align(
        self,
        query: Float[np.ndarray, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> NDArray[np.float32]:
        """Score items by late interaction, less the biases of a hubness correction, see
        `aladin_index.tokens.maxsim.alignment_with_candidates`.

        Raises:
            EngineUnavailableError: If the tokens are currently unavailable.
        """
        ...

    def similarities(
        self,
        query: Float[np.ndarray, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> list[NDArray[np.float32]]:
        """Compare tokens, see `aladin_index.tokens.maxsim.SecondStage`.

        Raises:
            EngineUnavailableError: If the tokens are currently unavailable.
        """
        ...

    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of tokens of some items.

        Raises:
            EngineUnavailableError: If the tokens are currently unavailable.
        """
        ...

    def tokens(self, row: int) -> Float[np.ndarray, "tokens dim"]:
        """Read the tokens of one item, in float32."""
        ...

    def embedding(self, row: int) -> Float[np.ndarray, " dim"]:
        """Read the embedding of one item."""
        ...

    def embeddings(self, rows: Sequence[int]) -> Float[np.ndarray, "rows dim"]:
        """Read the embeddings of at least one item; one query of a vector database for all."""
        ...


class SearchBackend(Protocol):
    """One open generation of an index; safe to use from any number of threads."""

    @property
    def path(self) -> Path:
        """The index folder, with its model and uploaded photos."""
        ...

    @property
    def manifest(self) -> Manifest:
        """Manifest of the generation."""
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
        """Key that tells the files of this generation from a copy, or None without files."""
        ...

    def collection(self, target: Target, filter: Filter | None = None) -> Collection:
        """Return a snapshot of one collection, restricted by a filter.

        Raises:
            NoSuchTargetError: If the index was built without this collection.
        """
        ...

    def check_health(self) -> None:
        """Raise an error if searches cannot be answered now; checks the vector database, if any.

        Raises:
            EngineUnavailableError: If the vector database does not respond.
        """
        ...

    def warm(self) -> None:
        """Start reading the data of searches into memory, without waiting."""
        ...

    def close(self) -> None:
        """Release all resources; no search may run afterwards."""
        ...
