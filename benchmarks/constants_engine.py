"""What an engine takes, with a real Milvus server on this machine: for `benchmarks.constants`."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin.progress import NullProgress
from benchmarks.milvus_server import MilvusServer
from benchmarks.one_thread import one_thread
from benchmarks.quiet_time import quiet_median_s, quiet_time
from benchmarks.synthetic import SyntheticPhotos
from benchmarks.synthetic_index import synthetic_item
from benchmarks.synthetic_sources import EMBEDDING_DIM, REGIONS, TOKEN_DIM
from benchmarks.timing import time_in_turn
from index.ann.ann_index import AnnIndex
from index.ann.construction import build_ann
from index.ann.file import write_ann
from index.plan.constants import EngineConstants
from index.remote.client import EngineClient, SideSchema
from index.remote.connect import connect
from index.remote.entry import Entry
from index.remote.location import EngineLocation
from index.remote.milvus.index_kinds import INDEX_KINDS
from index.remote.milvus.rows import MATCH, SideForm, row_of
from index.tokens.codec import TokenCodec
from index.tokens.sample import codec_for

CANDIDATES = 100
_TEXTS, _SEARCHES, _FEW_PHOTOS = 500, 300, 100
_GENERATION, _FEW_GENERATION = 1, 2


class _Stored(NamedTuple):
    """What the server got.

    Attributes:
        codec: of the tokens.
        embeddings: (items, 256) float32, L2-normalised.
        item_bytes: of a row, beside its vector and its tokens.
        token_expansion: bytes of a row's tokens, over those of the tokens themselves.
        insert_byte_s: seconds to put a byte of a row in.
    """

    codec: TokenCodec
    embeddings: NDArray[np.float32]
    item_bytes: int
    token_expansion: float
    insert_byte_s: float


def measure_engine(photos: SyntheticPhotos, items: int) -> EngineConstants:
    """Measure a server with one segment of photos, and the graph that it searches by itself.

    A call takes milliseconds and a search of the graph a tenth of one, which does not show in
    it. So the graph is FAISS's with the engine's parameters, searched and built on one core.

    Args:
        photos: that are kept, with int8 tokens.
        items: how many.
    """
    queries = photos.queries(_TEXTS, items).embeddings
    kind = INDEX_KINDS["hnsw"]
    links, width = int(kind.build(items)["M"]), int(kind.search["ef"])
    with tempfile.TemporaryDirectory() as folder, MilvusServer(Path(folder) / "milvus") as server:
        client = connect(EngineLocation(engine="milvus", url=server.url, name="constants"))
        try:
            stored = _store(client, photos, items)
            times = _search_times(client, queries)
        finally:
            client.close()
        segment_s, index_s, overhead = _graph(
            Path(folder), stored.embeddings, queries, f"HNSW{links},Flat", width
        )
    vectors_s, tokens_s = (float(np.median(times[name])) / 1000 for name in ("ids", "tokens"))
    tokens = CANDIDATES * REGIONS * stored.codec.token_bytes
    return EngineConstants(
        engine="Milvus 2.3.5, standalone",
        items=items,
        index=f"HNSW of {links} links, {width} looked at",
        call_s=float(np.median(times["few"])) / 1000,
        segment_s=segment_s,
        spread=float(np.quantile(times["ids"], 0.95)) / 1000 / vectors_s,
        byte_s=max(0.0, tokens_s - vectors_s) / tokens,
        token_expansion=stored.token_expansion,
        vector_overhead_bytes=overhead,
        item_bytes=stored.item_bytes,
        insert_byte_s=stored.insert_byte_s,
        index_s=index_s,
    )


def _store(client: EngineClient, photos: SyntheticPhotos, items: int) -> _Stored:
    """Put photos in, as one generation; some of them as another."""
    sample = next(iter(photos.photos(min(items, 1024)))).tokens.reshape(-1, TOKEN_DIM)
    codec = codec_for("int8", [sample])
    schema = SideSchema(embedding_dim=EMBEDDING_DIM, codec=codec, max_tokens=REGIONS, count=items)
    for generation in (_GENERATION, _FEW_GENERATION):
        client.create_side(generation, "images", schema)
    embeddings: list[NDArray[np.float32]] = []
    few: list[Entry] = []
    insert_s = 0.0
    for entries in _entries(photos, codec, items):
        few = few or entries[:_FEW_PHOTOS]
        started = time.perf_counter()
        client.upsert(_GENERATION, "images", entries)
        insert_s += time.perf_counter() - started
        embeddings += [each.embedding for each in entries if each.embedding is not None]
    client.upsert(_FEW_GENERATION, "images", few)
    for generation in (_GENERATION, _FEW_GENERATION):
        client.open_side(generation, "images", schema)
    item_bytes, token_bytes = _row_bytes(few[0], SideForm.of(schema, "hnsw"))
    row_bytes = item_bytes + token_bytes + embeddings[0].nbytes
    return _Stored(
        codec=codec,
        embeddings=np.stack(embeddings),
        item_bytes=item_bytes,
        token_expansion=token_bytes / (REGIONS * codec.token_bytes),
        insert_byte_s=insert_s / (items * row_bytes),
    )


def _row_bytes(entry: Entry, form: SideForm) -> tuple[int, int]:
    """Return the bytes of a row beside its vector and tokens, and those of its tokens."""
    row = row_of(entry, form)
    others = row.keys() - {MATCH, *form.token_fields}
    # Lists and mappings as they are written; the engine has a form of its own for them.
    of_item = sum(len(str(row[name]).encode("utf-8")) for name in others)
    return of_item, sum(len(row[name]) for name in form.token_fields)


def _entries(photos: SyntheticPhotos, codec: TokenCodec, items: int) -> Iterator[list[Entry]]:
    row = 0
    for batch in photos.photos(items):
        entries: list[Entry] = []
        for embedding, tokens in zip(batch.embeddings, batch.tokens, strict=True):
            entries.append(Entry(synthetic_item(row), embedding, codec.pack(tokens)))
            row += 1
        yield entries


def _search_times(
    client: EngineClient, queries: NDArray[np.float32]
) -> dict[str, NDArray[np.float64]]:
    """Time searches in turn: of few photos, of all of them, and with their tokens."""

    def search(generation: int, count: int, *, tokens: bool) -> Callable[[int], object]:
        return lambda turn: client.search(
            generation, "images", queries[turn % len(queries)], count, None, with_tokens=tokens
        )

    runs = {
        "few": search(_FEW_GENERATION, CANDIDATES, tokens=False),
        "ids": search(_GENERATION, CANDIDATES, tokens=False),
        "tokens": search(_GENERATION, CANDIDATES, tokens=True),
    }
    return time_in_turn(runs, _SEARCHES, warm_up=20)


def _graph(
    folder: Path,
    embeddings: NDArray[np.float32],
    queries: NDArray[np.float32],
    factory: str,
    width: int,
) -> tuple[float, float, float]:
    """Return seconds of one search of a graph, seconds to add a vector, bytes beside a vector."""
    with one_thread():
        with quiet_time() as built:
            index = build_ann(factory, embeddings, NullProgress())
        ann = AnnIndex(index, width)
        search_s = quiet_median_s(
            lambda turn: ann.search(queries[turn % len(queries)], CANDIDATES), _SEARCHES
        )
    write_ann(folder / "graph.faiss", index)
    size = (folder / "graph.faiss").stat().st_size
    overhead = size / len(embeddings) - embeddings.shape[1] * 4
    return search_s, built.seconds / len(embeddings), overhead
