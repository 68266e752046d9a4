"""What a real index of synthetic photos takes around its two stages: for
`benchmarks.search.constants`."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.format.layout import ITEMS, generation_folder, live_generation
from aladin_index.format.manifest import describe_files
from aladin_index.format.npy import write_npy
from aladin_index.generations.reader import open_index
from aladin_index.items.store import ItemStore
from aladin_index.items.tables import write_items
from aladin_index.plan.constants import (
    FileConstants,
    FirstStageConstants,
    FormConstants,
    ProcessConstants,
    SearchConstants,
)
from aladin_index.plan.costs import align_s, build_s, first_stage_of, index_sizes, pack_s, search_s
from aladin_index.plan.workload import Workload
from aladin_index.search.searcher import TwoStageSearcher
from benchmarks.lib.synthetic import SyntheticPhotos, TextQueries
from benchmarks.lib.synthetic_sources import EMBEDDING_DIM, REGIONS, TOKEN_DIM, find_source
from benchmarks.lib.timing import one_thread, quiet_time, quiet_times_s
from benchmarks.search.constants_tokens import measure_page
from benchmarks.search.scale import measure
from benchmarks.search.scale_search import Effort
from benchmarks.search.text_searches import CANDIDATES, TextSearches

_SEARCHES = 500
_EFFORT = Effort(
    searches=50, recall_queries=2, fidelity_queries=2, exhaustive_runs=1, throughput_s=0.1
)
_ARRAY_BYTES = 2**28


class AroundStages(NamedTuple):
    """What is left of a real index when its two stages are taken away.

    Attributes:
        process: memory before the index is in it, and seconds of a build of any size.
        files: writing.
        search: searching.
    """

    process: ProcessConstants
    files: FileConstants
    search: SearchConstants


def measure_index(
    first_stage: FirstStageConstants, int8: FormConstants, items: int
) -> AroundStages:
    """Build and search one small index, and take off what its stages take.

    Small, so that the stages are the lesser part of it.

    Args:
        first_stage: measured before.
        int8: likewise.
        items: photos of the index.
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
    """Return the seconds of whole searches, all pages that they need being in memory."""
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
