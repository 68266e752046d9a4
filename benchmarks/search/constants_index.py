"""Costs of stored tokens, of reads from disk, and of the rest of a search.

For `benchmarks.search.constants`: the costs of the stored forms of tokens and of reading pages from
disk, and, with an index of synthetic photos, all costs around the two stages.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.capacity.constants import (
    FileConstants,
    FirstStageConstants,
    FormConstants,
    ProcessConstants,
    SearchConstants,
)
from aladin_index.capacity.costs import (
    align_s,
    build_s,
    first_stage_of,
    index_sizes,
    pack_s,
    search_s,
)
from aladin_index.capacity.workload import Workload
from aladin_index.format.layout import ITEMS, generation_folder, live_generation
from aladin_index.format.npy import map_npy, write_npy
from aladin_index.generations.reader import open_index
from aladin_index.items.store import ItemStore
from aladin_index.items.tables import write_items
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.tokens.maxsim import alignment_with_candidates
from aladin_index.tokens.store import TokenStore, codec_for
from aladin_network.files import describe_files
from aladin_network.types import TOKEN_DTYPES, TokenDtype
from benchmarks.lib.measuring import one_thread, quiet_median_s, quiet_time, quiet_times_s
from benchmarks.lib.synthetic import SyntheticPhotos, TextQueries
from benchmarks.lib.synthetic_sources import (
    EMBEDDING_DIM,
    REGIONS,
    TOKEN_DIM,
    find_source,
    unit_vectors,
    write_store,
)
from benchmarks.search.scale import measure
from benchmarks.search.searches import CANDIDATES, Effort, TextSearches

_PACKED_PHOTOS, _TEXTS, _PACKS = 2048, 500, 3
_SETS, _REPETITIONS = 64, 200
# The kernel compares with 16 words at a time: fewer words take as long.
_WORDS = (16, 64)
_CANDIDATES = (100, 400)
# Pages of a file that the system has to read; 256 MiB.
_PAGES, _PAGE_BYTES = 2**16, 4096
_COLD_ROUNDS, _COLD_PAGES = 15, 200

_SEARCHES = 500
_EFFORT = Effort(
    searches=50, recall_queries=2, fidelity_queries=2, exhaustive_runs=1, throughput_s=0.1
)
_ARRAY_BYTES = 2**28


def measure_forms(photos: SyntheticPhotos, items: int) -> dict[TokenDtype, FormConstants]:
    """Measure packing and scoring in every form.

    Args:
        photos: Photos whose tokens are packed.
        items: Number of photos in the scored stores, whose tokens lie in random directions.
    """
    some = next(iter(photos.photos(_PACKED_PHOTOS))).tokens.reshape(-1, TOKEN_DIM)
    words = photos.queries(_TEXTS, _PACKED_PHOTOS).words
    forms: dict[TokenDtype, FormConstants] = {}
    for dtype in TOKEN_DTYPES:
        codec = codec_for(dtype, [some], words)
        times: list[float] = []
        for _ in range(_PACKS):
            with quiet_time() as packed:
                codec.pack(some)
            times.append(packed.seconds)
        value_s, score_s = _scoring(dtype, items)
        forms[dtype] = FormConstants(
            pack_s=min(times) / some.size, value_s=value_s, score_s=score_s
        )
    return forms


def measure_page() -> float:
    """Return the seconds to read a page from the disk during a search.

    Of a mapped file whose pages the system was asked to forget.
    """
    random = np.random.default_rng(0)
    pages = random.integers(0, 256, (_PAGES, _PAGE_BYTES), dtype=np.uint8)
    times: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pages.npy"
        write_npy(path, np.uint8, pages.shape, [pages])
        with path.open("rb") as file:
            os.fsync(file.fileno())  # what is not on the disk yet cannot be forgotten
            for _ in range(_COLD_ROUNDS):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                mapped = map_npy(path, np.uint8, pages.shape, random=True)
                chosen = random.choice(_PAGES, _COLD_PAGES, replace=False)
                started = time.perf_counter()
                for page in chosen:
                    int(mapped[page, 0])
                times.append(time.perf_counter() - started)
                del mapped
    return float(np.median(times)) / _COLD_PAGES


def _scoring(dtype: TokenDtype, items: int) -> tuple[float, float]:
    """Return the seconds to read a value of a candidate, and to compare it with a word."""
    with tempfile.TemporaryDirectory() as folder:
        sample = unit_vectors(256 * 39, seed=1)
        store = write_store(Path(folder) / dtype, sample, np.full(items, REGIONS), dtype)
        with one_thread():
            slopes = [_candidate_s(store, words, items) for words in _WORDS]
    values = REGIONS * TOKEN_DIM
    score_s = max(0.0, (slopes[1] - slopes[0]) / (_WORDS[1] - _WORDS[0]))
    return max(0.0, slopes[1] - score_s * _WORDS[1]) / values, score_s / values


def _candidate_s(store: TokenStore, words: int, items: int) -> float:
    """Return the seconds per additional candidate."""
    random = np.random.default_rng(0)
    query = unit_vectors(words, seed=2)

    def seconds(count: int) -> float:
        rows = [random.choice(items, count, replace=False) for _ in range(_SETS)]
        return quiet_median_s(
            lambda turn: alignment_with_candidates(query, "text", store, rows[turn % _SETS]),
            _REPETITIONS,
        )

    few, many = _CANDIDATES
    return (seconds(many) - seconds(few)) / (many - few)


class AroundStages(NamedTuple):
    """Costs of a real index other than its two stages.

    Attributes:
        process: Memory before the index is loaded, and seconds of a build of any size.
        files: Constants of writing files.
        search: Constants of searching.
    """

    process: ProcessConstants
    files: FileConstants
    search: SearchConstants


def measure_index(
    first_stage: FirstStageConstants, int8: FormConstants, items: int
) -> AroundStages:
    """Build and search one small index, and subtract the costs of its stages.

    Small, so that the stages are the lesser part of it.

    Args:
        first_stage: Constants of the first stage, measured before.
        int8: Constants of the int8 format, measured before.
        items: Number of photos in the index.
    """
    queries = SyntheticPhotos(find_source()).queries(_SEARCHES, items, seed=1)
    workload = Workload(
        items=items,
        embedding_dim=EMBEDDING_DIM,
        tokens=REGIONS,
        token_dim=TOKEN_DIM,
        words=round(float(np.mean([len(each) for each in queries.words]))),
    )
    stage = first_stage_of(workload, first_stage)
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(items, "int8", "exact", _EFFORT, keep=Path(folder))
        root = Path(folder) / "index"
        side = generation_folder(root, live_generation(root)) / "images"
        files = FileConstants(
            item_bytes=(side / ITEMS).stat().st_size / items,
            item_s=_item_s(side / ITEMS, Path(folder), items),
            byte_s=_byte_s(Path(folder)),
        )
        times = _search_times_s(root, queries)
    sizes = index_sizes(workload, stage, files)
    median_s = float(np.median(times))
    building = figures["build_s"]
    stages_of_build_s = (
        pack_s(workload, int8)
        + files.item_s * items
        + files.byte_s * sizes.mapped
        + build_s(stage, workload, first_stage)
    )
    stages_s = search_s(stage, workload, first_stage) + align_s(workload, int8)
    return AroundStages(
        process=ProcessConstants(
            serving_bytes=figures["search_rss_bytes"] - sizes.mapped,
            building_bytes=figures["build_rss_bytes"] - sizes.embeddings - sizes.first_stage,
            building_s=max(
                0.0, building["pack"] + building["write"] + building["ann"] - stages_of_build_s
            ),
        ),
        files=files,
        search=SearchConstants(
            around_s=max(0.0, median_s - stages_s),
            spread=float(np.quantile(times, 0.95)) / median_s,
            page_s=measure_page(),
        ),
    )


def _search_times_s(root: Path, queries: TextQueries) -> NDArray[np.float64]:
    """Return the seconds of whole searches with all required pages in memory."""
    with one_thread(), open_index(root) as index:
        asking = TextSearches(TwoStageSearcher(index), queries)
        for turn in range(_SEARCHES):
            asking.search(turn, CANDIDATES)
        return quiet_times_s(lambda turn: asking.search(turn, CANDIDATES), _SEARCHES)


def _item_s(database: Path, folder: Path, items: int) -> float:
    """Return the seconds to write an item into a database."""
    with closing(ItemStore(database)) as store:
        stored = store.by_rows(range(items))
    with quiet_time() as written:
        write_items(folder / "again.sqlite", stored)
    return written.seconds / items


def _byte_s(folder: Path) -> float:
    """Return the seconds to write a byte of an array, and to read it for its checksum."""
    place = folder / "arrays"
    place.mkdir()
    part = np.random.default_rng(0).integers(0, 256, (2**12, 2**10), dtype=np.uint8)
    rows = _ARRAY_BYTES // part.shape[1]
    with quiet_time() as written:
        parts = (part for _ in range(rows // len(part)))
        write_npy(place / "array.npy", np.uint8, (rows, part.shape[1]), parts)
        describe_files(place, ["array.npy"])
    return written.seconds / _ARRAY_BYTES
