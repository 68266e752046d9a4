"""What a real index of synthetic photos takes around its two stages: for `benchmarks.constants`."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.constants_tokens import measure_page
from benchmarks.quiet_time import quiet_time
from benchmarks.scale import measure
from benchmarks.scale_search import Effort
from benchmarks.synthetic import SyntheticPhotos
from benchmarks.synthetic_sources import EMBEDDING_DIM, REGIONS, TOKEN_DIM, find_source
from index.items.store import ItemStore
from index.items.tables import write_items
from index.layout import generation_folder, live_generation
from index.manifest import describe_files
from index.npy import write_npy
from index.plan.constants import (
    FileConstants,
    FirstStageConstants,
    FormConstants,
    ProcessConstants,
    SearchConstants,
)
from index.plan.first_stage import first_stage_of, search_s
from index.plan.second_stage import align_s
from index.plan.sizes import index_sizes
from index.plan.workload import Workload
from index.side import ITEMS

_SEARCHES, _RUNS = 500, 3
_EFFORT = Effort(
    searches=_SEARCHES, recall_queries=2, fidelity_queries=2, exhaustive_runs=1, throughput_s=0.1
)
_ARRAY_BYTES = 2**28


class AroundStages(NamedTuple):
    """What is left of a real index when its two stages are taken away.

    Attributes:
        process: memory before the index is in it.
        files: writing.
        search: searching.
    """

    process: ProcessConstants
    files: FileConstants
    search: SearchConstants


def measure_index(
    first_stage: FirstStageConstants, int8: FormConstants, items: int
) -> AroundStages:
    """Build and search one index, compared exactly, and take off what its stages take.

    Args:
        first_stage: measured before.
        int8: likewise.
        items: photos of the index.
    """
    words = SyntheticPhotos(find_source()).queries(_SEARCHES, items, seed=1).words
    workload = Workload(
        items=items,
        embedding_dim=EMBEDDING_DIM,
        tokens=REGIONS,
        token_dim=TOKEN_DIM,
        words=round(float(np.mean([len(each) for each in words]))),
    )
    stage = first_stage_of(workload, first_stage)
    with tempfile.TemporaryDirectory() as folder:
        # Again and again: what else runs on the machine only ever adds to a time.
        runs = [measure(items, "int8", "exact", _EFFORT) for _ in range(_RUNS - 1)]
        figures = measure(items, "int8", "exact", _EFFORT, keep=Path(folder))
        runs.append(figures)
        root = Path(folder) / "index"
        side = generation_folder(root, live_generation(root)) / "images"
        files = FileConstants(
            item_bytes=(side / ITEMS).stat().st_size / items,
            item_s=_item_s(side / ITEMS, Path(folder), items),
            byte_s=_byte_s(Path(folder)),
        )
    sizes = index_sizes(workload, stage, files)
    quietest = min(runs, key=lambda each: each["p50_ms"])
    total_s, retrieve_s, rerank_s = (
        quietest[name] / 1000 for name in ("p50_ms", "retrieve_p50_ms", "rerank_p50_ms")
    )
    return AroundStages(
        process=ProcessConstants(
            serving_bytes=figures["search_rss_bytes"] - sizes.mapped,
            building_bytes=figures["build_rss_bytes"] - sizes.embeddings - sizes.first_stage,
        ),
        files=files,
        search=SearchConstants(
            first_stage_s=max(0.0, retrieve_s - search_s(stage, workload, first_stage)),
            second_stage_s=max(0.0, rerank_s - align_s(workload, int8)),
            look_up_s=total_s - retrieve_s - rerank_s,
            spread=min(each["p95_ms"] / each["p50_ms"] for each in runs),
            page_s=measure_page(),
        ),
    )


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
