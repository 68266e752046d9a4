"""Milliseconds a query by stage, at 100 and at 1000 candidates.

    python benchmarks/bench_search.py [--items 10000] [--repetitions 60] [--threads 1]

Random vectors in the sizes of a real index: embeddings of 256, 49 regions of 128 a photo, 8 to
16 words of 128 a text. All cells of the table are measured in turn, repetition by repetition,
so that a neighbour on the machine slows all of them alike: the ratios hold even where the
milliseconds do not. The page cache is warm. A ratio is to the first line of its group.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from aladin.progress import NullProgress
from index.ann_build import build_ann
from index.ann_file import write_ann
from index.items import StoredItem, write_items
from index.manifest import AnnEntry, SideEntry
from index.npy import write_npy
from index.rerank import alignment_with_candidates
from index.settings import Target, TokenDtype
from index.side import ANN, EMBEDDINGS, ITEMS, Side, open_side
from index.token_store import OFFSETS, SCALES, TOKENS, pack

EMBEDDING_DIM, TOKEN_DIM, REGIONS, WORDS = 256, 128, 49, 12
CANDIDATES = (100, 1000)


class Cell(NamedTuple):
    """One thing that is timed.

    Attributes:
        group: lines of one group are compared with each other.
        name: of the line.
        candidates: of the column.
        run: does it once, for the n-th random query.
    """

    group: str
    name: str
    candidates: int
    run: Callable[[int], object]


class Sides(NamedTuple):
    """What is searched: the same embeddings in two ANNs, the same tokens in two stored forms."""

    flat: Side
    graph: Side
    int8: Side
    texts: Side


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--items", type=int, default=10_000, help="photos, and as many texts")
    parser.add_argument("--repetitions", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1, help="of torch; a server uses 1 a worker")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        sides = make_sides(Path(folder), options.items)
        cells = make_cells(sides, options.items)
        times = measure(cells, options.repetitions)
        for side in sides:
            side.items.close()
    print(f"{options.items} photos and texts, {options.threads} thread(s), p50 (p10) ms a query")
    print_table(cells, times)


def make_cells(sides: Sides, items: int) -> list[Cell]:
    """List what is timed, for each number of candidates."""
    queries = unit_vectors(64, EMBEDDING_DIM, seed=1).numpy()
    words = unit_vectors(64 * WORDS, TOKEN_DIM, seed=2).view(64, WORDS, TOKEN_DIM)
    regions = unit_vectors(64 * REGIONS, TOKEN_DIM, seed=3).view(64, REGIONS, TOKEN_DIM)
    random = np.random.default_rng(4)
    cells: list[Cell] = []
    for count in CANDIDATES:
        rows = [random.choice(items, count, replace=False) for _ in range(64)]

        def retrieve(side: Side, count: int = count) -> Callable[[int], object]:
            return lambda turn: side.candidates(queries[turn % 64], count)

        def rerank(side: Side, rows: Sequence[NDArray[Any]] = rows) -> Callable[[int], object]:
            if side.target == "images":
                return lambda turn: alignment_with_candidates(
                    words[turn % 64], "text", side.tokens, rows[turn % 64]
                )
            return lambda turn: alignment_with_candidates(
                regions[turn % 64], "image", side.tokens, rows[turn % 64]
            )

        def in_turn(turn: int, rows: Sequence[NDArray[Any]] = rows) -> object:
            return candidate_by_candidate(words[turn % 64].numpy(), sides.flat, rows[turn % 64])

        def look_up(turn: int, rows: Sequence[NDArray[Any]] = rows) -> object:
            return sides.flat.items.by_rows(rows[turn % 64][:10].tolist())

        cells += [
            Cell("first stage", "exact (Flat)", count, retrieve(sides.flat)),
            Cell("first stage", "graph (HNSW32)", count, retrieve(sides.graph)),
            Cell("second stage", "text to images, float16", count, rerank(sides.flat)),
            Cell("second stage", "text to images, int8", count, rerank(sides.int8)),
            Cell("second stage", "image to texts, float16", count, rerank(sides.texts)),
            Cell("second stage", "NumPy, candidate by candidate", count, in_turn),
            Cell("items", "look-up of 10 hits", count, look_up),
        ]
    return cells


def candidate_by_candidate(
    words: NDArray[np.float32], side: Side, rows: NDArray[np.int64]
) -> list[float]:
    """Score text to images the obvious way."""
    scores: list[float] = []
    for row in rows:
        tokens: NDArray[np.float32] = side.tokens.read(np.array([row])).tokens().numpy()
        scores.append(float((words @ tokens.T).max(axis=1).sum()))
    return scores


def measure(cells: list[Cell], repetitions: int) -> dict[tuple[str, str, int], NDArray[np.float64]]:
    """Time all cells in turn, after a round that warms the caches up."""
    times = np.empty((repetitions, len(cells)))
    for turn in range(-3, repetitions):
        for place, cell in enumerate(cells):
            started = time.perf_counter()
            cell.run(turn)
            times[turn, place] = 1000 * (time.perf_counter() - started)
    return {
        (cell.group, cell.name, cell.candidates): times[:, place]
        for place, cell in enumerate(cells)
    }


def print_table(cells: list[Cell], times: dict[tuple[str, str, int], NDArray[np.float64]]) -> None:
    """Print a line a name and a column a number of candidates, in Markdown."""
    columns = " | ".join(f"{count} candidates | ratio" for count in CANDIDATES)
    print(f"| stage | | {columns} |")
    print("| --- | --- |" + " ---: | ---: |" * len(CANDIDATES))
    first_of: dict[str, str] = {}
    for group, name in dict.fromkeys((cell.group, cell.name) for cell in cells):
        first = first_of.setdefault(group, name)
        parts: list[str] = []
        for count in CANDIDATES:
            own, base = times[group, name, count], times[group, first, count]
            ratio = np.median(own) / np.median(base)
            parts.append(f"{np.median(own):.3f} ({np.quantile(own, 0.1):.3f}) | {ratio:.2f}")
        print(f"| {group} | {name} | {' | '.join(parts)} |")


def make_sides(folder: Path, items: int) -> Sides:
    """Write and open what is searched."""
    embeddings = unit_vectors(items, EMBEDDING_DIM)
    regions = np.full(items, REGIONS)
    words = np.random.default_rng(0).integers(8, 17, items)
    return Sides(
        flat=make_side(folder / "flat", "images", embeddings, regions, "Flat", "float16"),
        graph=make_side(folder / "graph", "images", embeddings, regions, "HNSW32,Flat", "float16"),
        int8=make_side(folder / "int8", "images", embeddings, regions, "Flat", "int8"),
        texts=make_side(folder / "texts", "texts", embeddings, words, "Flat", "float16"),
    )


def make_side(
    folder: Path,
    target: Target,
    embeddings: torch.Tensor,
    lengths: NDArray[np.int64],
    factory: str,
    dtype: TokenDtype,
) -> Side:
    """Write one side with random tokens, and open it."""
    place = folder / target
    place.mkdir(parents=True)
    count, token_count = len(lengths), int(lengths.sum())
    packed = pack(unit_vectors(token_count, TOKEN_DIM, seed=5).numpy(), dtype)
    write_npy(place / EMBEDDINGS, np.float32, (count, EMBEDDING_DIM), [embeddings.numpy()])
    write_npy(place / TOKENS, dtype, (token_count, TOKEN_DIM), [packed.values])
    if packed.scales is not None:
        write_npy(place / SCALES, np.float32, (token_count,), [packed.scales])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    write_npy(place / OFFSETS, np.int64, (count + 1,), [offsets])
    write_items(place / ITEMS, (example_item(row) for row in range(count)))
    write_ann(place / ANN, build_ann(factory, embeddings.numpy(), NullProgress()))
    ann = AnnEntry(
        factory=factory,
        search_width=128 if "HNSW" in factory else None,
        recall=1.0,
        recall_at=100,
        recall_queries=0,
    )
    entry = SideEntry(
        count=count,
        left_out=0,
        embedding_dim=EMBEDDING_DIM,
        token_dim=TOKEN_DIM,
        token_count=token_count,
        token_dtype=dtype,
        ann=ann,
    )
    return open_side(folder, target, entry)


def example_item(row: int) -> StoredItem:
    """Return an item with some metadata."""
    return StoredItem(
        row=row,
        id=f"photo-{row}",
        uri=f"album/{row}.jpg",
        path=f"/photos/album/{row}.jpg",
        text="two dogs run on the green grass",
        image_id=None,
        width_px=640,
        height_px=480,
        metadata={"year": 2000 + row % 20, "city": "Pisa"},
    )


def unit_vectors(count: int, dim: int, seed: int = 0) -> torch.Tensor:
    """Draw random directions, (count, dim) float32."""
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(count, dim, generator=generator), dim=1)


if __name__ == "__main__":
    main()
