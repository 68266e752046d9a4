"""Compares an index of files with Milvus that it was pushed to, on the same queries.

    python -m benchmarks.engines.backends_agree [--index INDEX] [--queries 1000] [--json]

A copy of the index, whose items have metadata for filters, is pushed twice to the real server of
the package `milvus` on 127.0.0.1: with an exact first stage, and with a graph. The metadata of an
item (a number, a text, a bool, a list, and a field that some items lack) depends on its row alone,
so that every copy is the same. Every query is sent to the embedded index and to Milvus: text to
image and image to text, with filters and without, 10 hits of 100 candidates. For both first stages
and each of the four:

    identical   share of the queries whose 10 hits are the same in the same order; two hits whose
                scores differ by less than 1e-5 may stand either way
    top10       share of the embedded index's hits that the engine's answers have
    score_gap   largest difference of a score, of either stage, between the same hits
    ratio       Milvus's median time of a search over the embedded index's, in turns
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from aladin_index.engines.push import PushSettings, push_index
from aladin_index.format.disk import disk_errors, only_builder
from aladin_index.format.layout import EngineLocation
from aladin_index.format.models import model_folder
from aladin_index.generations.collection_writer import CollectionSource, EncodedPart, live_parts
from aladin_index.generations.reader import open_index
from aladin_index.generations.writer import install_model, write_generation
from aladin_index.open import connect, open_backend
from aladin_index.search.backend import EncodedQuery
from aladin_index.search.live_collection import LiveCollection
from aladin_index.search.options import SearchOptions
from aladin_index.search.results import SearchHit
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.settings import BuildSettings
from aladin_network.graphs.threads import set_compute_threads
from aladin_network.types import OTHER_TARGET_OF, TARGET_OF, Modality, Target
from benchmarks.lib.milvus_server import MilvusServer
from benchmarks.lib.output import figures_parser, print_figures
from benchmarks.lib.synthetic import SyntheticPhotos, write_synthetic_index
from benchmarks.lib.synthetic_sources import find_source

_CITIES = ("Pisa", "Lucca", "Firenze", "Siena", "Arezzo")
_COLOURS = ("red", "green", "blue", "black", "white", "grey", "brown")

# Filters that pass between 1 of 100 items and nearly all; every kind of condition is included.
FILTERS: tuple[dict[str, Any], ...] = (
    {"city": "Pisa"},
    {"year": {"gte": 2005, "lt": 2012}},
    {"tags": ["red", "blue"]},
    {"not": {"city": ["Pisa", "Lucca"]}},
    {"or": [{"public": True}, {"rating": {"gt": 4}}]},
    {"rating": {"exists": False}, "public": False},
    {"number": {"lt": 100}, "tags": {"nin": ["white"]}},
    {"city": {"gte": "Lucca", "lt": "Q"}},
)

# Milvus and FAISS sum the same products in a different order.
_NEAR = 1e-5
_SYNTHETIC_PHOTOS = 2000
FIRST_STAGES = ("flat", "hnsw")


def tag_index(source: Path, root: Path, settings: BuildSettings) -> None:
    """Write a copy of the live items of an index, with new metadata.

    Args:
        source: Folder of the index.
        root: Folder of the copy; new.
        settings: Settings of the copy's first stage and tokens; the tokens' form has to be the
            source's.
    """
    with open_index(source) as index, disk_errors(root), only_builder(root):
        install_model(root, model_folder(source, index.manifest.model.id), index.manifest.model)
        sides: dict[Target, CollectionSource] = {}
        for target in index.manifest.targets:
            side = index.side(target)
            sides[target] = CollectionSource(
                embedding_dim=side.entry.embedding_dim,
                codec=side.base.tokens.codec,
                parts=_tagged_parts(side),
            )
        write_generation(root, sides, index.manifest.model, settings, "tagged")


def _tagged_parts(side: LiveCollection) -> Iterator[EncodedPart]:
    row = 0
    for part in live_parts(side):
        items = [item._replace(metadata=metadata_of(row + n)) for n, item in enumerate(part.items)]
        row += len(items)
        yield part._replace(items=items)


def metadata_of(row: int) -> dict[str, Any]:
    """Return the metadata of the item at a row."""
    metadata: dict[str, Any] = {
        "number": row,
        "year": 2000 + row % 20,
        "city": _CITIES[row % len(_CITIES)],
        "public": row % 3 == 0,
        "tags": [_COLOURS[row % 7], _COLOURS[row % 11 % 7]],
    }
    if row % 4:
        metadata["rating"] = 1 + row * 7 % 5 + row % 2 / 2
    return metadata


_HITS, _CANDIDATES = 10, 100


class _Answers(NamedTuple):
    hits: list[list[SearchHit]]
    seconds: list[float]


def compare(source: Path, location: EngineLocation, folder: Path, queries: int) -> dict[str, Any]:
    """Push an index to Milvus and search both.

    Args:
        source: Folder of the file index, with the metadata of `benchmarks.engines.backends_agree`.
        location: Where the index is pushed to.
        folder: Folder of the index in Milvus; new.
        queries: Number of queries of each direction.
    """
    started = time.perf_counter()
    with closing(connect(location)) as client:
        push_index(source, folder, location, client, PushSettings())
    figures: dict[str, Any] = {"push_s": time.perf_counter() - started}
    with open_index(source) as index:
        embedded = TwoStageSearcher(index)
        backend = open_backend(folder)
        try:
            remote = TwoStageSearcher(backend)
            for modality in ("text", "image"):
                asked = _queries(embedded, modality, queries)
                for filtered in (False, True):
                    expected, actual = _search_both(
                        embedded, remote, asked, modality, FILTERS if filtered else [{}]
                    )
                    name = f"{'text_to_image' if modality == 'text' else 'image_to_text'}"
                    figures[name + ("_filtered" if filtered else "")] = _agreement(expected, actual)
        finally:
            backend.close()
    return figures


def _queries(searcher: TwoStageSearcher, modality: Modality, count: int) -> list[EncodedQuery]:
    """Take stored items, spread over the collection, as queries."""
    side = searcher.index.side(TARGET_OF[modality])
    rows = np.linspace(0, side.count - 1, min(count, side.count)).astype(int).tolist()
    items = side.items.by_rows(rows)
    return [searcher.stored_query(item.id)._replace(own_id=None) for item in items]


def _search_both(
    embedded: TwoStageSearcher,
    remote: TwoStageSearcher,
    queries: Sequence[EncodedQuery],
    modality: Modality,
    filters: Sequence[Mapping[str, Any]],
) -> tuple[_Answers, _Answers]:
    """Search both alternately, so that other load on the machine affects both."""
    answers = _Answers([], []), _Answers([], [])
    for place, query in enumerate(queries):
        for searcher, (hits, seconds) in zip((embedded, remote), answers, strict=True):
            started = time.perf_counter()
            result = searcher.search(
                query,
                OTHER_TARGET_OF[modality],
                SearchOptions(
                    k=_HITS, candidates=_CANDIDATES, filter=dict(filters[place % len(filters)])
                ),
            )
            seconds.append(time.perf_counter() - started)
            assert not result.degraded, result.degraded
            hits.append(result.hits)
    return answers


def _agreement(expected: _Answers, actual: _Answers) -> dict[str, float]:
    pairs = list(zip(expected.hits, actual.hits, strict=True))
    shared = [_shared(ours, theirs) for ours, theirs in pairs]
    gaps = [gap for ours, theirs in pairs for gap in _score_gaps(ours, theirs)]
    return {
        "queries": len(pairs),
        "identical": float(np.mean([_identical(ours, theirs) for ours, theirs in pairs])),
        "top10": sum(shared) / max(1, sum(len(ours) for ours, _ in pairs)),
        "score_gap": max(gaps, default=0.0),
        "embedded_ms": 1000 * float(np.median(expected.seconds)),
        "ratio": float(np.median(actual.seconds) / np.median(expected.seconds)),
    }


def _identical(ours: Sequence[SearchHit], theirs: Sequence[SearchHit]) -> bool:
    """Whether the orders are identical, except for neighbours with equal scores."""
    if len(ours) != len(theirs):
        return False
    return all(
        our.id == their.id or abs(our.score - their.score) < _NEAR
        for our, their in zip(ours, theirs, strict=True)
    )


def _shared(ours: Sequence[SearchHit], theirs: Sequence[SearchHit]) -> int:
    return len({hit.id for hit in ours} & {hit.id for hit in theirs})


def _score_gaps(ours: Sequence[SearchHit], theirs: Sequence[SearchHit]) -> list[float]:
    by_id = {hit.id: hit for hit in theirs}
    gaps: list[float] = []
    for our in ours:
        their = by_id.get(our.id)
        if their is not None:
            assert our.stages.align is not None  # both sides have tokens
            assert their.stages.align is not None
            gaps += [
                abs(our.score - their.score),
                abs(our.stages.match.score - their.stages.match.score),
                abs(our.stages.align.score - their.stages.align.score),
            ]
    return gaps


def main() -> None:
    """Run the comparison, and print a table or JSON."""
    parser = figures_parser(__doc__, "50 queries")
    parser.add_argument("--index", type=Path, help="whose items and queries; else made-up photos")
    parser.add_argument("--queries", type=int, default=1000, help="of each direction")
    options = parser.parse_args()
    queries = 50 if options.quick else options.queries
    set_compute_threads(1)
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        source = _tagged(options.index, folder)
        with MilvusServer(folder / "milvus") as server:
            for name in FIRST_STAGES:
                location = EngineLocation(url=server.url, name=name, index=name)
                figures[name] = compare(source, location, folder / f"{name}-index", queries)
                if not options.json:
                    _print_first_stage(name, figures[name])
    if options.json:
        print_figures(figures, as_json=True)


def _tagged(index: Path | None, folder: Path) -> Path:
    """Copy the given index, or one of synthetic photos, with metadata."""
    if index is None:
        index = folder / "synthetic"
        settings = BuildSettings(token_dtype="float16")
        write_synthetic_index(index, SyntheticPhotos(find_source()), _SYNTHETIC_PHOTOS, settings)
    with open_index(index) as opened:
        dtype = opened.side(opened.manifest.targets[0]).entry.token_dtype
    tag_index(index, folder / "tagged", BuildSettings(token_dtype=dtype))
    return folder / "tagged"


def _print_first_stage(name: str, figures: Mapping[str, Any]) -> None:
    print(f"{name}, pushed in {figures['push_s']:.1f} s")
    for asked, found in figures.items():
        if isinstance(found, dict):
            cells = "  ".join(
                f"{key} {value:.6g}" for key, value in found.items() if key != "queries"
            )
            print(f"  {asked:<24} {found['queries']} queries  {cells}", flush=True)


if __name__ == "__main__":
    main()
