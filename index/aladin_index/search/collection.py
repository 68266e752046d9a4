"""Interface of an index for searchers and services, independent of its storage.

`aladin_index.generations.reader.SearchIndex` is FAISS and files, in the process that searches;
`aladin_index.engines.engine_index.EngineIndex` is an engine on other machines. Both have the
checkpoint here, for queries are encoded where they are answered.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from aladin_index.format.manifest import CollectionEntry, Manifest
from aladin_index.items.field_tables import FieldValues
from aladin_index.items.filters import Filter
from aladin_index.items.stacks import Stacks
from aladin_index.items.tables import StoredItem
from aladin_index.items.words import FoundWords
from aladin_index.search.results import Stack
from aladin_index.search.word_filters import KnownValues
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.errors import InputError
from aladin_network.scoring.fusion import DirectionFusion
from aladin_network.types import Modality, Target


class SecondStageQuery(NamedTuple):
    """What the items that a first stage finds will be aligned with.

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
    """What a collection orders its first items by.

    Attributes:
        embedding: (d_match,) float32, L2-normalised.
        wanted: Number of items wanted; fewer are found only if there are no more.
        candidates: Number of candidates of the first stage.
        second_stage: What the items will be aligned with, or None if they will not be. One call of
            the vector database then returns all that this needs.
        hubs: Share of the hub correction that applies: 1 for a query of the other modality, 0
            for one of the items' own.
    """

    embedding: NDArray[np.float32]
    wanted: int
    candidates: int
    second_stage: SecondStageQuery | None = None
    hubs: float = 1.0


class ExhaustiveQuery(NamedTuple):
    """What every item is a candidate of.

    Attributes:
        first: The query; of all items the `wanted` best by the fused score have to be found, and
            the `candidates` nearest. Without a `second_stage`, the total has other parts, too.
        fusion: Constants of the fusion of both stages' scores.
        weight: Weight of the alignment score in the fusion.
        without: Rows that must not be found.
    """

    first: FirstStageQuery
    fusion: DirectionFusion
    weight: float
    without: Sequence[int] = ()


class Ordered(NamedTuple):
    """Items of the first stage, best first, those of equal score in ascending order of their rows.

    Attributes:
        rows: (found,) int64.
        match: (found,) float32, their cosines, corrected.
        candidates: Number of candidates of the first stage: the requested number, or all items if
            there are fewer.
        upper: (found,) float32, upper bounds of their alignment scores, infinity where none is
            known; None if the items are scored as soon without them.
        nearer: Counts the candidates that are nearer to the query than the items at some places,
            where some candidates are not among the items; else None.
    """

    rows: NDArray[np.int64]
    match: NDArray[np.float32]
    candidates: int
    upper: NDArray[np.float32] | None = None
    nearer: Callable[[NDArray[np.int64]], NDArray[np.int64]] | None = None

    def without(self, rows: Sequence[int]) -> Ordered:
        """Return the items but for some rows."""
        others = ~np.isin(self.rows, rows)
        upper = None if self.upper is None else self.upper[others]
        return Ordered(self.rows[others], self.match[others], self.candidates, upper)


class RawScores(NamedTuple):
    """Scores without the hub correction, as each stage compares a pair by itself.

    Attributes:
        match: (items,) float32, cosines of the embeddings.
        align: (items,) float32, sums of the cosines of tokens; None if they were not aligned.
    """

    match: NDArray[np.float32]
    align: NDArray[np.float32] | None


class NotListableError(InputError):
    """The index is in a vector database, which finds items but does not sort them."""


class ListOrder(NamedTuple):
    """How items are sorted.

    Attributes:
        field: Metadata field to sort by, or None for the order of addition. Items without a value
            in it come last, in the order of their addition. An item with several values counts by
            the one that comes first.
        descending: Whether the largest value, or the latest addition, comes first.
        stack: Whether of each stack only the first item is listed.
    """

    field: str | None = None
    descending: bool = True
    stack: bool = False


class ListedPage(NamedTuple):
    """A page of items.

    Attributes:
        items: Items in the order.
        total: Number of items that pass the filter, on all pages.
        is_last: Whether no item follows.
        stacks: For each item its stack of several, if only the first of each is listed, or None.
    """

    items: list[StoredItem]
    total: int
    is_last: bool
    stacks: Sequence[Stack | None]


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
    """A snapshot of the images or the texts, restricted by a filter.

    Items are named by their rows: numbers that mean an item to this object alone. An item looked
    up by its id need not pass the filter. If the index has a hub correction, `order`, `everything`,
    `match` and `align` return corrected scores, and `raw_scores` undoes it. A method that reads a
    vector database raises an `EngineUnavailableError` if it does not respond.
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
    def scans_all(self) -> bool:
        """Whether all items can be candidates however many there are, since a GPU scores them."""
        ...

    @property
    def has_tokens(self) -> bool:
        """Whether the collection has tokens for re-ranking."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether any number of searches may use the snapshot at once, in any thread."""
        ...

    @property
    def items(self) -> Items:
        """Ids, texts and metadata."""
        ...

    def order(self, query: FirstStageQuery) -> Ordered:
        """Order the first items; a longer order always begins with a shorter one.

        Raises:
            InputError: If more items are wanted than a vector database can find, or it cannot apply
                the filter.
        """
        ...

    def order_all(self, queries: Sequence[FirstStageQuery]) -> list[Ordered]:
        """Do what `order` does for several queries, in one call where the storage allows it."""
        ...

    def everything(self, queries: Sequence[ExhaustiveQuery]) -> list[Ordered]:
        """Return for each query all items that it may find, by ascending row.

        They are bounded if its `second_stage` says by what. Where a GPU has scored all of them,
        only those are returned that can be wanted.

        Raises:
            InputError: If the index is in a vector database, which does not return all items.
        """
        ...

    def match(
        self,
        embeddings: Float[np.ndarray, "queries d_match"],
        hubs: Sequence[float],
        rows: NDArray[np.int64],
    ) -> Float[np.ndarray, "queries rows"]:
        """Return the cosines of queries and some items; see `FirstStageQuery` for `hubs`."""
        ...

    def align(
        self,
        query: Float[np.ndarray, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> NDArray[np.float32]:
        """Score items by late interaction, see
        `aladin_index.tokens.maxsim.alignment_with_candidates`."""
        ...

    def align_all(
        self,
        queries: Sequence[Float[np.ndarray, "query_tokens dim"]],
        modality: Modality,
        rows: Sequence[NDArray[np.int64]],
    ) -> list[NDArray[np.float32]]:
        """Do what `align` does for several queries, in one call where the storage allows it."""
        ...

    def raw_scores(
        self,
        query: SecondStageQuery,
        rows: NDArray[np.int64],
        match: NDArray[np.float32],
        align: NDArray[np.float32] | None,
        hubs: float = 1.0,
    ) -> RawScores:
        """Undo the hub correction of what `match` and `align` returned for some items."""
        ...

    def similarities(
        self,
        query: Float[np.ndarray, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> list[NDArray[np.float32]]:
        """Compare tokens, see `aladin_index.tokens.maxsim.SecondStage`."""
        ...

    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of tokens of some items."""
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

    def find_words(self, text: str) -> FoundWords | None:
        """Find the items that pass the filter and have rare words of a text, or None without words.

        Raises:
            IndexCorruptError: If the items cannot be read.
        """
        ...

    def stacks(self) -> Stacks | None:
        """Return the stacks of the photos that pass the filter, or None if they are not known.

        Raises:
            IndexCorruptError: If the items cannot be read.
        """
        ...

    def list_items(self, order: ListOrder, after_id: str | None, count: int) -> ListedPage:
        """List at most `count` items after the one with an id, which may be deleted by now.

        Raises:
            UnknownItemError: If no item has or had the id.
            NotListableError: If the index is in a vector database.
            InputError: If the field is not indexed for filters.
            IndexCorruptError: If the items cannot be read.
        """
        ...

    def list_fields(self) -> dict[str, list[FieldValues]]:
        """Describe the metadata fields that are indexed for filters, by name and kind of value.

        Values are counted among the items that pass the filter, but for its conditions on the
        field itself; one may be the value of none of them.

        Raises:
            NotListableError: If the index is in a vector database.
            IndexCorruptError: If the items cannot be read.
        """
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

    @property
    def follows_folders(self) -> bool:
        """Whether it is kept in step with folders of photos, as a library is."""
        ...

    def collection(self, target: Target, filter: Filter | None = None) -> Collection:
        """Return a snapshot of one collection, restricted by a filter.

        Raises:
            NoSuchTargetError: If the index was built without this collection.
        """
        ...

    def known_values(self, target: Target) -> KnownValues:
        """Return what the words of a query may name in a collection; nothing without fields.

        Raises:
            IndexCorruptError: If the items cannot be read.
        """
        ...

    def check_health(self) -> None:
        """Raise an `EngineUnavailableError` if the vector database, if any, does not respond."""
        ...

    def warm(self) -> None:
        """Start reading the data of searches into memory, without waiting."""
        ...

    def close(self) -> None:
        """Release all resources; no search may run afterwards."""
        ...
