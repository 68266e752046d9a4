"""Index in a vector database: backend of a searcher, and facts about its content."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from aladin_index.devices.search_device import SearchDevice
from aladin_index.engines.milvus import (
    EngineClient,
    EngineQuery,
    FoundItem,
    read_generation,
    require_live,
)
from aladin_index.engines.record import GenerationRecord
from aladin_index.engines.rows import EngineItem, is_unicode
from aladin_index.format.layout import EngineLocation
from aladin_index.format.manifest import CollectionEntry, Manifest, check_lengths, model_folder
from aladin_index.generations.info import LocalFacts, describe_manifest
from aladin_index.generations.reader import load_model
from aladin_index.items.field_tables import FieldValues
from aladin_index.items.filters import Filter
from aladin_index.items.tables import StoredItem
from aladin_index.items.words import FoundWords
from aladin_index.search.collection import (
    ExhaustiveQuery,
    FirstStageQuery,
    ListedPage,
    ListOrder,
    NotListableError,
    Ordered,
    RawScores,
    SecondStageQuery,
)
from aladin_index.search.word_filters import KnownValues
from aladin_index.tokens.codec import PackedTokens, TokenCodec
from aladin_index.tokens.maxsim import alignment_with_candidates, token_similarities
from aladin_index.tokens.store import TokenStore
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.errors import (
    IndexMismatchError,
    InputError,
    NoSuchTargetError,
)
from aladin_network.types import COMPARED_AS, Modality, Target

# Items without tokens: a few megabytes with 768 dimensions, which every vector database returns at
# once.
_FETCHED_TOGETHER = 1000


class _Found(NamedTuple):
    """An item found by a search: its id, its row in this search and its cosine."""

    item_id: str
    row: int
    match: float


class EngineCollection:
    """Images or texts of a generation in a vector database; for one search in one thread.

    Items are kept for the rest of the search as the engine first returned them, so that the page
    and its evidence show the same items as the ranking, whatever changes meanwhile. Tokens come
    with the found items; those that the engine omits are fetched by id. An item that was removed
    or replaced by then has no tokens: it scores 0, like one without words or regions.
    """

    def __init__(
        self,
        client: EngineClient,
        generation: int,
        target: Target,
        entry: CollectionEntry,
        codec: TokenCodec,
        filter: Filter | None = None,
    ) -> None:
        self.target: Target = target
        self.entry = entry
        self._client = client
        self._generation = generation
        self._codec = codec
        self._filter = filter
        self._entries: dict[int, EngineItem] = {}

    @property
    def count(self) -> int:
        """Number of items that a search without a filter can find, counted by the database."""
        return self._client.count(self._generation, self.target)

    @property
    def scans_all(self) -> bool:
        return False

    @property
    def has_tokens(self) -> bool:
        """Whether there are tokens to re-rank by; imported embeddings come without tokens."""
        return self.entry.token_count > 0

    @property
    def items(self) -> EngineCollectionItems:
        """Ids, texts and metadata."""
        return EngineCollectionItems(self)

    @property
    def is_shared(self) -> bool:
        return False

    def order(self, query: FirstStageQuery) -> Ordered:
        """Order the first items, see `aladin_index.search.collection.Collection`.

        The engine is asked for the candidates, then for twice as many, and so on. Further
        items of a wider search are appended to those of the narrower ones, so that a longer order
        starts with a shorter one even if the engine's search is approximate.
        """
        most, count, asked = self._client.max_results, query.wanted, query.candidates
        if asked > most:
            raise self._too_many("candidates", asked)
        search = partial(self._search, query.embedding, with_tokens=query.second_stage is not None)
        ordered = search(asked)
        candidates = found = len(ordered)
        seen = {each.item_id for each in ordered}
        while len(ordered) < count and found == asked:
            if asked == most:
                raise self._too_many("hits, skipped ones included", count)
            asked = min(2 * asked, most)
            wider = search(asked)
            found = len(wider)
            ordered += [each for each in wider if each.item_id not in seen]
            seen.update(each.item_id for each in wider)
        rows = np.array([each.row for each in ordered[:count]], dtype=np.int64)
        match = np.array([each.match for each in ordered[:count]], dtype=np.float32)
        return Ordered(rows, match, candidates)

    def order_all(self, queries: Sequence[FirstStageQuery]) -> list[Ordered]:
        return [self.order(query) for query in queries]

    def everything(self, queries: Sequence[ExhaustiveQuery]) -> list[Ordered]:
        """Raise an `InputError`: a vector database does not return all items."""
        del queries
        raise InputError("candidates: expected a number for an index in a database, got exhaustive")

    def match(
        self,
        embeddings: Float[np.ndarray, "queries d_match"],
        hubs: Sequence[float],
        rows: NDArray[np.int64],
    ) -> Float[np.ndarray, "queries rows"]:
        del hubs  # an index with a correction is not pushed
        return embeddings @ self.embeddings(rows.tolist()).T

    def align(
        self,
        query: Float[np.ndarray, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> NDArray[np.float32]:
        store, asked = self._token_store(rows), COMPARED_AS[modality, self.target]
        return alignment_with_candidates(query, asked, store, np.arange(store.count))

    def align_all(
        self,
        queries: Sequence[Float[np.ndarray, "query_tokens dim"]],
        modality: Modality,
        rows: Sequence[NDArray[np.int64]],
    ) -> list[NDArray[np.float32]]:
        return [self.align(query, modality, of) for query, of in zip(queries, rows, strict=True)]

    def raw_scores(
        self,
        query: SecondStageQuery,
        rows: NDArray[np.int64],
        match: NDArray[np.float32],
        align: NDArray[np.float32] | None,
        hubs: float = 1.0,
    ) -> RawScores:
        del query, rows, hubs
        return RawScores(match, align)

    def similarities(
        self,
        query: Float[np.ndarray, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> list[NDArray[np.float32]]:
        store, asked = self._token_store(rows), COMPARED_AS[modality, self.target]
        return token_similarities(query, asked, store, np.arange(store.count, dtype=np.int64))

    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of tokens of some items."""
        return np.array([tokens.count for tokens in self._packed(rows)], dtype=np.int64)

    def tokens(self, row: int) -> Float[np.ndarray, "tokens dim"]:
        """Read the tokens of one item, in float32."""
        store = self._token_store(np.array([row], dtype=np.int64))
        return store.read(np.array([0], dtype=np.int64)).values

    def embedding(self, row: int) -> Float[np.ndarray, " dim"]:
        """Read the embedding of one item, as `embeddings` does."""
        return self.embeddings([row])[0]

    def embeddings(self, rows: Sequence[int]) -> Float[np.ndarray, "rows dim"]:
        """Read the embeddings of some items; zeros for items removed meanwhile."""
        entries = [self._entries[row] for row in rows]
        unknown = [entry.item.id for entry in entries if entry.embedding is None]
        found = {
            (entry.item.id, entry.item.row): entry.embedding
            for entry in self._fetch(unknown, with_embeddings=True)
        }
        embeddings = np.zeros((len(rows), self.entry.embedding_dim), dtype=np.float32)
        for place, entry in enumerate(entries):
            embedding = entry.embedding
            if embedding is None:
                embedding = found.get((entry.item.id, entry.item.row))
            if embedding is not None:
                embeddings[place] = embedding
        return embeddings

    def find_words(self, text: str) -> FoundWords | None:
        """Return None: a vector database has no words."""
        del text

    def stacks(self) -> None:
        """Return None: a vector database compares no photos with all others."""

    def list_items(self, order: ListOrder, after_id: str | None, count: int) -> ListedPage:
        del order, after_id, count
        raise _not_listable()

    def list_fields(self) -> dict[str, list[FieldValues]]:
        raise _not_listable()

    def stored_item(self, row: int) -> StoredItem:
        """Return an item that this search has found or fetched."""
        return self._entries[row].item._replace(row=row)

    def fetch_item(self, item_id: str) -> StoredItem | None:
        """Fetch the item with this id, or None if there is none.

        All of it comes at once, and so of one moment: such an item mostly becomes a query.
        """
        wanted = filter(is_unicode, [item_id])
        found = list(self._fetch(wanted, with_embeddings=True, with_tokens=True))
        return self.stored_item(self._remember(found[0])) if found else None

    def fetch_items(self, ids: Sequence[str]) -> list[StoredItem | None]:
        """Fetch the items with some ids; None for a missing one.

        Of these come neither embeddings nor tokens: they may be many.
        """
        found = {entry.item.id: entry for entry in self._fetch(filter(is_unicode, ids))}
        return [
            self.stored_item(self._remember(found[item_id])) if item_id in found else None
            for item_id in ids
        ]

    def _fetch(
        self, ids: Iterable[str], *, with_embeddings: bool = False, with_tokens: bool = False
    ) -> Iterator[EngineItem]:
        wanted = list(dict.fromkeys(ids))
        for start in range(0, len(wanted), _FETCHED_TOGETHER):
            part = wanted[start : start + _FETCHED_TOGETHER]
            yield from self._client.fetch(
                self._generation,
                self.target,
                part,
                with_embeddings=with_embeddings,
                with_tokens=with_tokens,
            )

    def _search(self, query: NDArray[np.float32], count: int, *, with_tokens: bool) -> list[_Found]:
        """Search once; best first, ties in the order of their rows."""
        found = self._client.search(
            EngineQuery(
                generation=self._generation,
                target=self.target,
                embedding=query,
                count=count,
                filter=self._filter,
                width=self.entry.ann.search_width,
                with_tokens=with_tokens,
            )
        )
        return [
            _Found(each.entry.item.id, self._remember(each.entry), each.match)
            for each in sorted(found, key=_best_first)
        ]

    def _remember(self, entry: EngineItem) -> int:
        """Store an item, and return its row in this search.

        Items added by two machines at the same moment may have the same row; the second one then
        gets the next free row.
        """
        row = entry.item.row
        while row in self._entries and self._entries[row].item.id != entry.item.id:
            row += 1
        if row not in self._entries or self._entries[row].tokens is None:
            self._entries[row] = entry
        return row

    def _packed(self, rows: NDArray[np.int64]) -> list[PackedTokens]:
        """Return the tokens of some items; fetches those not known yet."""
        wanted = rows.tolist()
        unknown = [row for row in dict.fromkeys(wanted) if self._entries[row].tokens is None]
        if unknown:
            ids = list(dict.fromkeys(self._entries[row].item.id for row in unknown))
            found = self._fetch(ids, with_tokens=True)
            tokens_of = {(each.item.id, each.item.row): each.tokens for each in found}
            nothing = self._no_tokens()
            for row in unknown:
                entry = self._entries[row]
                tokens = tokens_of.get((entry.item.id, entry.item.row))
                self._entries[row] = entry._replace(tokens=nothing if tokens is None else tokens)
        return [tokens for row in wanted if (tokens := self._entries[row].tokens) is not None]

    def _token_store(self, rows: NDArray[np.int64]) -> TokenStore:
        parts = self._packed(rows)
        # Arrays of the right shape even if there are no parts.
        packed = PackedTokens.concatenate([self._no_tokens(), *parts])
        return TokenStore.from_arrays(self._codec, packed, [part.count for part in parts])

    def _no_tokens(self) -> PackedTokens:
        return self._codec.pack(np.empty((0, self._codec.dim), dtype=np.float32))

    def _too_many(self, what: str, wanted: int) -> InputError:
        return InputError(
            f"expected at most {self._client.max_results} {what}, as Milvus finds no "
            f"more in one search, got {wanted}"
        )


class EngineCollectionItems:
    """Ids, texts and metadata of the items of an `EngineCollection`."""

    def __init__(self, collection: EngineCollection) -> None:
        self._collection = collection

    def by_rows(self, rows: Sequence[int]) -> list[StoredItem]:
        """Return items that this search has found or fetched, in the order of `rows`."""
        return [self._collection.stored_item(row) for row in rows]

    def by_id(self, item_id: str) -> StoredItem | None:
        return self._collection.fetch_item(item_id)

    def by_ids(self, ids: Sequence[str]) -> list[StoredItem | None]:
        """Return the items with some ids, in the given order; None for a missing one."""
        return self._collection.fetch_items(ids)


def _not_listable() -> NotListableError:
    return NotListableError(
        "expected an index in files, got one in a vector database, whose items cannot be"
        " listed; they can be searched"
    )


def _best_first(found: FoundItem) -> tuple[float, int, str]:
    return -found.match, found.entry.item.row, found.entry.item.id


@dataclass(frozen=True, kw_only=True)
class EngineIndex:
    """One generation in a vector database; a `SearchBackend`.

    Attributes:
        path: Folder with the location of the index and its model.
        checkpoint: Model that the index was built with.
        client: Client of the vector database; closed together with this object.
        record: Record of the generation.
    """

    path: Path
    checkpoint: Checkpoint
    client: EngineClient
    record: GenerationRecord

    @property
    def manifest(self) -> Manifest:
        """Manifest of the generation, as it was pushed."""
        return self.record.manifest

    @property
    def generation(self) -> int:
        return self.manifest.generation

    @property
    def follows_folders(self) -> bool:
        return False

    @property
    def place(self) -> None:
        """None, because the vector database has no files that a copy could replace."""
        return

    def collection(self, target: Target, filter: Filter | None = None) -> EngineCollection:
        """Return one collection for one search; no request is sent yet."""
        entry = self.manifest.collection(target)
        if entry is None:
            raise NoSuchTargetError(target, " and ".join(self.manifest.targets))
        codec = self.record.codecs[target]
        return EngineCollection(self.client, self.generation, target, entry, codec, filter)

    def known_values(self, target: Target) -> KnownValues:
        del target
        return KnownValues(range(0), {})

    def check_health(self) -> None:
        """Check that the vector database responds."""
        self.client.check_health()

    def warm(self) -> None:
        """Do nothing: what searches read is in the memory of the vector database."""

    def close(self) -> None:
        """Close the client; no search may be running or follow."""
        self.client.close()

    def __enter__(self) -> EngineIndex:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_engine_index(
    path: Path,
    client: EngineClient,
    *,
    checkpoint: Checkpoint | None = None,
    device: SearchDevice | None = None,
    generation: int | None = None,
) -> EngineIndex:
    """Open the live generation of an index in a vector database.

    Args:
        path: Folder with the model.
        client: Client of the vector database; closed with the index, and if this function raises.
        checkpoint: Loaded checkpoint to use instead of the copy in the folder.
        device: Device of the network, or None for the CPU.
        generation: Generation to open instead of the live one.

    Raises:
        IndexNotReadyError: If nothing is live, or there is no such generation.
        IndexMismatchError: If the schema version differs, or the index was pushed with another
            model.
        IndexCorruptError: If the record is damaged or a file of the model is missing.
    """
    try:
        if generation is None:
            generation = require_live(client, path)
        record = read_generation(client, generation)
        model = record.manifest.model
        if checkpoint is None:
            folder = model_folder(path, model.id)
            check_lengths(folder, model.files)
            checkpoint = load_model(folder, "cpu" if device is None else device.device)
        if checkpoint.model_id != model.id:
            raise IndexMismatchError(f"{path}: model", model.id, checkpoint.model_id)
    except BaseException:
        client.close()
        raise
    return EngineIndex(path=path, checkpoint=checkpoint, client=client, record=record)


def describe_engine_index(path: Path, location: EngineLocation, client: EngineClient) -> LocalFacts:
    """Query a vector database for the facts about an index; the client is not closed.

    Raises:
        IndexNotReadyError: If nothing is live.
        IndexMismatchError: If the schema version differs.
        IndexCorruptError: If the record of the index is damaged.
    """
    generation = require_live(client, path)
    record = read_generation(client, generation)
    counts: dict[Target, int] = {
        target: client.count(generation, target) for target in record.manifest.targets
    }
    return replace(
        describe_manifest(path, record.manifest, counts, in_engine=True),
        engine=location,
        generations=client.generations(),
        changed=record.changed,
    )
