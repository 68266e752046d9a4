"""An item as an engine keeps it, and as a search gets it back.

What is asked of an engine: the seam at which one takes the place of another.

What the collections of an index are called in an engine.

For each generation there are NAME_000001_images and NAME_000001_texts and, for its record,
NAME_000001_record. NAME itself is an alias of the record of the live generation, so that both sides
change at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from aladin_index.items.filters import Filter
from aladin_index.items.tables import StoredItem
from aladin_index.tokens.codec import PackedTokens, TokenCodec
from aladin_network.types import TARGETS, Target


class EngineItem(NamedTuple):
    """All that is kept of an item; its id is the engine's key.

    Attributes:
        item: its row orders items whose scores are equal: those of the generation have the rows
            that they had in the index of files, later ones have larger ones.
        embedding: (d_match,) float32, L2-normalised; None where it was not asked for.
        tokens: in the stored form of the side; None where they were not asked for.
    """

    item: StoredItem
    embedding: NDArray[np.float32] | None
    tokens: PackedTokens | None


class FoundItem(NamedTuple):
    """An item that a search found.

    Attributes:
        entry: what is kept of it.
        match: cosine with the query.
        align: alignment score, where the engine was given words and scores them itself.
    """

    entry: EngineItem
    match: float
    align: float | None = None


@dataclass(frozen=True, kw_only=True)
class CollectionSchema:
    """What an engine has to know of a side before it takes its items.

    Attributes:
        embedding_dim: size of an embedding.
        codec: of the tokens; there may be none, then items have 0 tokens.
        max_tokens: the most that an item of the generation has; later ones may have more.
        count: items that are to come.
    """

    embedding_dim: int
    codec: TokenCodec
    max_tokens: int
    count: int


class EngineFirstStage(NamedTuple):
    """How an engine finds what is near in a side.

    Attributes:
        kind: by the engine's own name, such as "hnsw"; "flat" compares with every item.
        widths: how far a search may look, ascending: candidates of a graph, or lists. One, where
            it was chosen by hand; none, where there is nothing to choose.
    """

    kind: str
    widths: tuple[int, ...]


class EngineClient(Protocol):
    """An engine under one name; safe to use from any number of threads.

    The name stands for numbered generations, of which one is live. A generation has a record
    (small named pieces of bytes: the manifest, codebooks) and a collection for each side. Calls
    are tried again within their time where that is safe.

    Every method raises EngineUnavailableError where the engine does not answer in time, and
    EngineError where it refuses.
    """

    @property
    def kind(self) -> str:
        """Which engine: "milvus", "qdrant"."""
        ...

    @property
    def max_results(self) -> int:
        """The most that one search may ask for."""
        ...

    def generations(self) -> list[int]:
        """List the generations that are there, whole or not, ascending."""
        ...

    def live_generation(self) -> int | None:
        """Return the generation that the name stands for; None: none yet."""
        ...

    def make_live(self, generation: int) -> None:
        """Let the name stand for a generation from now on, in one step."""
        ...

    def drop_generation(self, generation: int) -> None:
        """Remove a generation that is not live; one that is not there is no error."""
        ...

    def write_record(self, generation: int, record: Mapping[str, bytes]) -> None:
        """Keep a generation's record in the place of the one before."""
        ...

    def read_record(self, generation: int) -> dict[str, bytes] | None:
        """Return a generation's record; None where it has none."""
        ...

    def create_side(self, generation: int, target: Target, schema: CollectionSchema) -> None:
        """Make an empty collection, unless it is there."""
        ...

    def open_side(self, generation: int, target: Target) -> None:
        """Index what is in a collection and make it searchable; returns when it is."""
        ...

    def upsert(self, generation: int, target: Target, entries: Sequence[EngineItem]) -> None:
        """Put items in, in the place of those with the same ids; kept when it returns.

        Entries have embeddings and tokens. They are sent in batches of a size that the engine
        takes; where a later batch fails, earlier ones stay.
        """
        ...

    def delete(self, generation: int, target: Target, ids: Sequence[str]) -> None:
        """Remove items; ids that are not there are no error."""
        ...

    def count(self, generation: int, target: Target) -> int:
        """Return the number of items, all changes that were acknowledged included."""
        ...

    def first_stage(self, generation: int, target: Target) -> EngineFirstStage:
        """Say how a side is searched."""
        ...

    def search(
        self,
        generation: int,
        target: Target,
        query: NDArray[np.float32],
        count: int,
        filter: Filter | None,
        *,
        width: int | None = None,
        with_tokens: bool = False,
        words: NDArray[np.float32] | None = None,
    ) -> list[FoundItem]:
        """Find the items that are nearest to a query, best first.

        Args:
            generation: to search.
            target: the side.
            query: (d_match,), L2-normalised.
            count: items wanted, at most `max_results`.
            filter: to pass; None: none.
            width: how far to look, of `first_stage`; a search with a filter, or for more items,
                may look further. None: as far as any.
            with_tokens: return the tokens too.
            words: (words, d_align) of a text: score each image that is found by the sum over
                words of the best region, if the engine can; it then leaves the tokens out.

        Raises:
            InputError: the engine cannot apply the filter.
        """
        ...

    def fetch(
        self,
        generation: int,
        target: Target,
        ids: Sequence[str],
        *,
        with_embeddings: bool = False,
        with_tokens: bool = False,
    ) -> list[EngineItem]:
        """Return the items with some ids, in any order; those that are not there are left out."""
        ...

    def check_health(self) -> None:
        """Return where the engine answers."""
        ...

    def close(self) -> None:
        """Close its connections."""
        ...


Part = Target | Literal["record"]
# The record first: what has none is no whole generation, should a removal be cut short.
PARTS: tuple[Part, ...] = ("record", *TARGETS)


@dataclass(frozen=True)
class CollectionNames:
    """The collections of one index.

    Attributes:
        name: of the index, see `aladin_index.format.engine_location`.
    """

    name: str

    def of(self, generation: int, part: Part) -> str:
        """Return what a part of a generation is called."""
        return f"{self.name}_{generation:06d}_{part}"

    def generation_of(self, collection: str) -> int | None:
        """Return the generation that a collection is of; None: it is not of this index."""
        found = re.fullmatch(
            rf"{re.escape(self.name)}_(\d{{6,}})_(?:{'|'.join(PARTS)})", collection
        )
        return None if found is None else int(found[1])

    def generations_of(self, collections: Iterable[str]) -> list[int]:
        """List the generations that some collections are of, ascending."""
        numbers = {self.generation_of(collection) for collection in collections}
        return sorted(number for number in numbers if number is not None)
