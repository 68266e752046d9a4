"""Costs of an engine, measured on a Milvus server on this machine.

For `benchmarks.search.constants`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.ann import faiss
from aladin_index.ann.ann_index import AnnIndex
from aladin_index.capacity.constants import EngineConstants
from aladin_index.capacity.costs import ANN_RECALL
from aladin_index.engines.client import CollectionSchema, EngineClient, EngineItem, EngineQuery
from aladin_index.engines.milvus.index_kinds import INDEX_KINDS
from aladin_index.engines.milvus.rows import MATCH, CollectionForm, row_of
from aladin_index.engines.push_files import NearestSoFar
from aladin_index.format.layout import EngineLocation
from aladin_index.open import connect
from aladin_index.tokens.codec import TokenCodec
from aladin_index.tokens.store import codec_for
from benchmarks.lib.measuring import one_thread, quiet_median_s, quiet_time, time_in_turn
from benchmarks.lib.milvus_server import MilvusServer
from benchmarks.lib.synthetic import SyntheticPhotos, synthetic_item
from benchmarks.lib.synthetic_sources import EMBEDDING_DIM, REGIONS, TOKEN_DIM

CANDIDATES = 100
_TEXTS, _CALIBRATED, _SEARCHES, _FEW_PHOTOS = 500, 200, 300, 100
_GENERATION, _FEW_GENERATION = 1, 2
_GRAPH_KIND = "hnsw"


class _Stored(NamedTuple):
    """Data inserted into the server.

    Attributes:
        codec: Codec of the tokens.
        embeddings: (items, 256) float32, L2-normalised.
        item_bytes: Size of a row without its vector and its tokens.
        token_expansion: Bytes of a row's tokens, divided by those of the tokens themselves.
        insert_byte_s: Seconds to insert one byte of a row.
    """

    codec: TokenCodec
    embeddings: NDArray[np.float32]
    item_bytes: int
    token_expansion: float
    insert_byte_s: float


class _GraphCosts(NamedTuple):
    """Costs of a graph.

    Attributes:
        search_s: Seconds per search.
        add_s: Seconds to add a vector.
        overhead_bytes: Memory of a vector in addition to its values.
    """

    search_s: float
    add_s: float
    overhead_bytes: float


def measure_engine(photos: SyntheticPhotos, items: int) -> EngineConstants:
    """Measure a server with one segment of photos, and its graph separately.

    A call takes milliseconds and a search of the graph a tenth of one, which does not show in
    it. So the graph is FAISS's with the engine's parameters, searched and built on one core.

    Args:
        photos: Photos to store, with int8 tokens.
        items: Number of photos.
    """
    queries = photos.queries(_TEXTS, items).embeddings
    with tempfile.TemporaryDirectory() as folder, MilvusServer(Path(folder) / "milvus") as server:
        # Explicit, because the server builds no graph for so few photos by itself.
        location = EngineLocation(
            engine="milvus", url=server.url, name="constants", index=_GRAPH_KIND
        )
        client = connect(location)
        try:
            stored = _store(client, photos, items)
            width = _width(client, stored.embeddings, queries[:_CALIBRATED])
            times = _search_times(client, queries, width)
        finally:
            client.close()
    parameters = INDEX_KINDS[_GRAPH_KIND].build(items)
    links = int(parameters["M"])
    graph = _graph_costs(
        stored.embeddings, queries, links, int(parameters["efConstruction"]), width
    )
    vectors_s, tokens_s = (float(np.median(times[name])) / 1000 for name in ("ids", "tokens"))
    tokens = CANDIDATES * REGIONS * stored.codec.token_bytes
    return EngineConstants(
        engine="Milvus 2.3.5, standalone",
        items=items,
        index=f"HNSW of {links} links, {width} looked at",
        call_s=float(np.median(times["few"])) / 1000,
        segment_s=graph.search_s,
        spread=float(np.quantile(times["ids"], 0.95)) / 1000 / vectors_s,
        byte_s=max(0.0, tokens_s - vectors_s) / tokens,
        token_expansion=stored.token_expansion,
        vector_overhead_bytes=graph.overhead_bytes,
        item_bytes=stored.item_bytes,
        insert_byte_s=stored.insert_byte_s,
        index_s=graph.add_s,
    )


def _store(client: EngineClient, photos: SyntheticPhotos, items: int) -> _Stored:
    """Insert photos as one generation, and some of them as another."""
    sample = next(iter(photos.photos(min(items, 1024)))).tokens.reshape(-1, TOKEN_DIM)
    codec = codec_for("int8", [sample])
    schema = CollectionSchema(
        embedding_dim=EMBEDDING_DIM, codec=codec, max_tokens=REGIONS, count=items
    )
    few_schema = replace(schema, count=_FEW_PHOTOS)
    client.create_collection(_GENERATION, "images", schema)
    client.create_collection(_FEW_GENERATION, "images", few_schema)
    embeddings: list[NDArray[np.float32]] = []
    few: list[EngineItem] = []
    insert_s = 0.0
    for entries in _entries(photos, codec, items):
        few = few or entries[:_FEW_PHOTOS]
        started = time.perf_counter()
        client.upsert(_GENERATION, "images", entries)
        insert_s += time.perf_counter() - started
        embeddings += [each.embedding for each in entries if each.embedding is not None]
    client.upsert(_FEW_GENERATION, "images", few)
    client.open_collection(_GENERATION, "images")
    client.open_collection(_FEW_GENERATION, "images")
    item_bytes, token_bytes = _row_bytes(few[0], CollectionForm.of(schema, _GRAPH_KIND))
    row_bytes = item_bytes + token_bytes + embeddings[0].nbytes
    return _Stored(
        codec=codec,
        embeddings=np.stack(embeddings),
        item_bytes=item_bytes,
        token_expansion=token_bytes / (REGIONS * codec.token_bytes),
        insert_byte_s=insert_s / (items * row_bytes),
    )


def _row_bytes(entry: EngineItem, form: CollectionForm) -> tuple[int, int]:
    """Return the size in bytes of a row without vector and tokens, and of its tokens."""
    row = row_of(entry, form)
    others = row.keys() - {MATCH, *form.token_fields}
    # Lists and mappings in serialized form; the database uses a format of its own for them.
    of_item = sum(len(str(row[name]).encode("utf-8")) for name in others)
    return of_item, sum(len(row[name]) for name in form.token_fields)


def _entries(photos: SyntheticPhotos, codec: TokenCodec, items: int) -> Iterator[list[EngineItem]]:
    row = 0
    for batch in photos.photos(items):
        entries: list[EngineItem] = []
        for embedding, tokens in zip(batch.embeddings, batch.tokens, strict=True):
            entries.append(EngineItem(synthetic_item(row), embedding, codec.pack(tokens)))
            row += 1
        yield entries


def _search_times(
    client: EngineClient, queries: NDArray[np.float32], width: int
) -> dict[str, NDArray[np.float64]]:
    """Time searches in turn: over few photos, over all, and over all with tokens."""

    def search(generation: int, count: int, *, tokens: bool) -> Callable[[int], object]:
        return lambda turn: client.search(
            EngineQuery(
                generation=generation,
                target="images",
                embedding=queries[turn % len(queries)],
                count=count,
                width=width,
                with_tokens=tokens,
            )
        )

    runs = {
        "few": search(_FEW_GENERATION, CANDIDATES, tokens=False),
        "ids": search(_GENERATION, CANDIDATES, tokens=False),
        "tokens": search(_GENERATION, CANDIDATES, tokens=True),
    }
    return time_in_turn(runs, _SEARCHES, warm_up=20)


def _width(
    client: EngineClient, embeddings: NDArray[np.float32], queries: NDArray[np.float32]
) -> int:
    """Return the search width of the database, found in the same way as by a push."""
    nearest = NearestSoFar(queries, CANDIDATES)
    nearest.take(embeddings)
    width = nearest.calibrate(client, _GENERATION, "images", ANN_RECALL).chosen.search_width
    assert width is not None  # a graph has one
    return width


def _graph_costs(
    embeddings: NDArray[np.float32],
    queries: NDArray[np.float32],
    links: int,
    building_width: int,
    width: int,
) -> _GraphCosts:
    """Build FAISS's graph with the database's parameters, and search it, on one core.

    Args:
        embeddings: (items, dim) float32, L2-normalised.
        queries: (queries, dim) float32.
        links: Parameter M of the vector database.
        building_width: Parameter efConstruction of the vector database.
        width: Parameter ef of the vector database.
    """
    items, dim = embeddings.shape
    graph = faiss.index_factory(dim, f"HNSW{links},Flat", faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = building_width
    with one_thread():
        with quiet_time() as built:
            graph.add(embeddings)
        ann = AnnIndex(graph, width)
        search_s = quiet_median_s(
            lambda turn: ann.search(queries[turn % len(queries)], CANDIDATES), _SEARCHES
        )
    size = len(faiss.serialize_index(graph))
    return _GraphCosts(search_s, built.seconds / items, size / items - 4 * dim)
