"""Client of Qdrant: the collections of one index, on a server or in a folder of this process.

The record collection of a generation has one point for the record, and one point per collection
with the codec of its tokens, without which items cannot be read or written.

Qdrant permits one client at a time per folder. A service has one client for searches and one for
writes, possibly of the same folder: they share its store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from aladin_index.engines.client import (
    PARTS,
    CollectionNames,
    CollectionSchema,
    EngineFirstStage,
    EngineItem,
    EngineOptions,
    EngineQuery,
    FormCache,
    FoundItem,
    Part,
)
from aladin_index.engines.qdrant.points import (
    ITEM,
    PACKED,
    VALUES,
    CollectionForm,
    entry_of,
    found_entry_of,
    key_of,
    number_paths,
    point_of,
)
from aladin_index.engines.qdrant.store import (
    OPEN_FOLDERS,
    CollectionShape,
    Point,
    PointStore,
    QdrantSettings,
    TokenVectors,
)
from aladin_index.engines.record import piece_texts, pieces_of_texts
from aladin_index.format.layout import EngineLocation
from aladin_index.items.tables import StoredItem
from aladin_network.errors import ConfigError, EngineError, missing_package
from aladin_network.types import Target

# A server accepts requests of any size, but holds the whole response in memory.
_MAX_RESULTS = 10_000
_PIECES = "pieces"


class QdrantEngine:
    """An `EngineClient` for the collections of Qdrant."""

    def __init__(
        self,
        kind: str,
        store: PointStore,
        name: str,
        token_vectors: TokenVectors,
        close: Callable[[], None],
    ) -> None:
        """Prepare a client for `name`; nothing is asked of the engine yet.

        Args:
            kind: Name of the vector database in messages and locations.
            store: Store that holds the points.
            name: Name of the index.
            token_vectors: How tokens are stored for MaxSim in collections that are created from now
                on.
            close: Function that releases the store; called once.
        """
        self._kind = kind
        self._store = store
        self._names = CollectionNames(name)
        self._token_vectors: TokenVectors = token_vectors
        self._close: Callable[[], None] | None = close
        self._lock = threading.Lock()
        self._forms = FormCache[CollectionForm]()

    @property
    def kind(self) -> str:
        """Name of the engine."""
        return self._kind

    @property
    def max_results(self) -> int:
        """Largest `EngineQuery.count`."""
        return _MAX_RESULTS

    def generations(self) -> list[int]:
        """List the generations in the engine, complete or not, in ascending order."""
        return self._names.generations_of(self._store.collections())

    def live_generation(self) -> int | None:
        """Return the live generation, or None if nothing was published yet."""
        collection = self._store.alias(self._names.name)
        return None if collection is None else self._names.generation_of(collection)

    def make_live(self, generation: int) -> None:
        """Make a generation the live one, atomically."""
        self._store.set_alias(self._names.name, self._names.of(generation, "record"))

    def drop_generation(self, generation: int) -> None:
        """Remove a generation that is not live; a missing one is not an error."""
        if self.live_generation() == generation:
            raise EngineError(
                self._kind, f"generation {generation} of {self._names.name!r} is live"
            )
        for part in PARTS:
            self._store.drop(self._names.of(generation, part))
            self._forms.forget(self._names.of(generation, part))

    def write_record(self, generation: int, record: Mapping[str, bytes]) -> None:
        """Store a generation's record, replacing the previous one."""
        self._write_pieces(generation, "record", record)

    def read_record(self, generation: int) -> dict[str, bytes] | None:
        """Return a generation's record, or None if it has none."""
        return self._read_pieces(generation, "record")

    def create_collection(self, generation: int, target: Target, schema: CollectionSchema) -> None:
        """Create an empty collection, unless it exists."""
        pieces = self._read_pieces(generation, target)
        if pieces is None:
            kept = CollectionForm(schema.codec, self._token_vectors)
            self._write_pieces(generation, target, kept.pieces())
        else:
            # The form it was created with, even if the settings have changed since.
            kept = CollectionForm.of_pieces(pieces)
        collection = self._names.of(generation, target)
        shape = CollectionShape(
            embedding_dim=schema.embedding_dim,
            token_dim=kept.codec.dim,
            token_vectors=kept.token_vectors,
        )
        self._store.create(collection, shape)
        self._store.index_field(collection, VALUES, "keyword")

    def open_collection(self, generation: int, target: Target) -> None:
        """Index a collection and make it searchable; returns when both are done."""
        self._store.optimise(self._names.of(generation, target))

    def upsert(self, generation: int, target: Target, entries: Sequence[EngineItem]) -> None:
        """Insert items, replacing those with the same ids; durable on return."""
        kept = self._form_of(generation, target)
        with_vectors = kept.token_vectors != "none"
        points = [point_of(entry, kept.codec, with_vectors=with_vectors) for entry in entries]
        collection = self._names.of(generation, target)
        # Before the points: Qdrant builds graphs that can be traversed within the points that pass
        # a filter on an indexed field.
        paths = {path for point in points for path in number_paths(point.payload)}
        for path in sorted(paths - kept.indexed_paths):
            self._store.index_field(collection, path, "float")
            kept.indexed_paths.add(path)
        self._store.upsert(collection, points)

    def delete(self, generation: int, target: Target, ids: Sequence[str]) -> None:
        """Remove items; unknown ids are not an error."""
        keys = [key_of(item_id) for item_id in ids]
        self._store.delete(self._names.of(generation, target), keys)

    def count(self, generation: int, target: Target) -> int:
        """Return the number of items, all acknowledged changes included."""
        return self._store.count(self._names.of(generation, target))

    def first_stage(self, generation: int, target: Target) -> EngineFirstStage:  # noqa: ARG002
        """Return how a collection is searched."""
        return self._store.first_stage

    def search(self, query: EngineQuery) -> list[FoundItem]:
        """Find the nearest items of a query, best first, see `EngineClient`."""
        kept = self._form_of(query.generation, query.target)
        scores_words = query.words is not None and kept.token_vectors != "none"
        if not scores_words:
            query = replace(query, words=None)
        fields = (ITEM, PACKED) if query.with_tokens and not scores_words else (ITEM,)
        collection = self._names.of(query.generation, query.target)
        found = self._store.search(collection, query, fields)
        return [found_entry_of(each, kept.codec) for each in found]

    def fetch(
        self,
        generation: int,
        target: Target,
        ids: Sequence[str],
        *,
        with_embeddings: bool = False,
        with_tokens: bool = False,
    ) -> list[EngineItem]:
        """Return items by id, in any order; unknown ids are omitted."""
        kept = self._form_of(generation, target)
        points = self._store.retrieve(
            self._names.of(generation, target),
            [key_of(item_id) for item_id in ids],
            with_embeddings=with_embeddings,
            fields=(ITEM, PACKED) if with_tokens else (ITEM,),
        )
        return [entry_of(point, kept.codec) for point in points]

    def items(self, generation: int, target: Target) -> Iterator[list[StoredItem]]:
        """Yield every item once, in parts and in any order; those changed meanwhile or not."""
        kept = self._form_of(generation, target)
        for points in self._store.scroll(self._names.of(generation, target), (ITEM,)):
            yield [entry_of(point, kept.codec).item for point in points]

    def check_health(self) -> None:
        """Check that the engine responds."""
        self._store.check_health()

    def close(self) -> None:
        """Close the connections; repeated calls are permitted."""
        with self._lock:
            close, self._close = self._close, None
        if close is not None:
            close()

    def _form_of(self, generation: int, target: Target) -> CollectionForm:
        """Return the form a collection was created with, which never changes."""

        def read() -> CollectionForm:
            pieces = self._read_pieces(generation, target)
            if pieces is None:
                message = f"generation {generation} of {self._names.name!r} has no {target}"
                raise EngineError(self._kind, message)
            return CollectionForm.of_pieces(pieces)

        return self._forms.get(self._names.of(generation, target), read)

    def _write_pieces(self, generation: int, part: Part, pieces: Mapping[str, bytes]) -> None:
        """Store byte strings as one point, so that they change atomically."""
        collection = self._names.of(generation, "record")
        self._store.create(collection, None)
        self._store.upsert(collection, [Point(key_of(part), {_PIECES: piece_texts(pieces)})])

    def _read_pieces(self, generation: int, part: Part) -> dict[str, bytes] | None:
        collection = self._names.of(generation, "record")
        if collection not in self._store.collections():
            return None
        points = self._store.retrieve(collection, [key_of(part)], fields=(_PIECES,))
        if not points:
            return None
        return pieces_of_texts(points[0].payload[_PIECES])


def connect_qdrant(location: EngineLocation, options: EngineOptions) -> QdrantEngine:
    """Create a client of a server, or of the local mode if the address is a folder.

    Raises:
        ConfigError: If the package is not installed, or Qdrant has no such option.
        EngineUnavailableError: If another process has the folder open.
    """
    settings = QdrantSettings.of(location)
    try:
        from aladin_index.engines.qdrant.connections import open_local_store, open_server_store
    except ModuleNotFoundError as error:
        raise _missing(error, "qdrant") from error
    if urlsplit(location.url).scheme == "file":
        return _in_folder(
            location, settings, lambda path: open_local_store(location.engine, path, settings)
        )
    store = open_server_store(location.engine, location.url, options, settings)
    return QdrantEngine(location.engine, store, location.name, settings.tokens, store.close)


def connect_edge(location: EngineLocation) -> QdrantEngine:
    """Create a client of Qdrant Edge in this process.

    Raises:
        ConfigError: If the package is not installed or has no such option.
        EngineUnavailableError: If another process has the folder open.
    """
    settings = QdrantSettings.of(location)
    try:
        from aladin_index.engines.qdrant.edge_store import EdgeStore
    except ModuleNotFoundError as error:
        raise _missing(error, "qdrant-edge") from error
    return _in_folder(location, settings, lambda path: EdgeStore(location.engine, path, settings))


def _in_folder(
    location: EngineLocation, settings: QdrantSettings, make: Callable[[Path], PointStore]
) -> QdrantEngine:
    folder = Path(unquote(urlsplit(location.url).path))
    store = OPEN_FOLDERS.open(location.engine, folder, make)
    return QdrantEngine(
        location.engine,
        store,
        location.name,
        settings.tokens,
        lambda: OPEN_FOLDERS.close(folder),
    )


def _missing(error: ModuleNotFoundError, extra: str) -> ConfigError:
    return ConfigError(missing_package("this engine", str(error.name), extra))
