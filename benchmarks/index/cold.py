"""First answers of an index whose files are not in memory.

    python -m benchmarks.index.cold --items 100000 [--json] [--rounds N] [--keep DIR]

The index is made as by `benchmarks.search.scale`. Before each round the system is told to drop its
pages (`posix_fadvise`), and `mincore` counts what is left; then a fresh process opens it and
searches photos by encoded texts, 100 candidates, one after the other. Medians of the rounds:

left_share       share of the index's pages that were still in memory
open_ms          time to open the index, with its network and what that imports
first_ms         time of the first search
early_ms         median of the 20 searches after it, each of which meets other photos
again_ms         median of the same searches once more, with their pages in memory
read_bytes       bytes that opening and the first search read from the disk
early_read_bytes bytes that one of the 20 searches reads, on average

"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from aladin_index.generations.reader import open_index
from aladin_index.search.searcher import TwoStageSearcher
from benchmarks.lib.measuring import use_one_thread
from benchmarks.lib.output import figures_parser, print_figures
from benchmarks.lib.processes import in_fresh_process
from benchmarks.lib.synthetic import SyntheticPhotos
from benchmarks.lib.synthetic_sources import find_source
from benchmarks.search.scale import build
from benchmarks.search.searches import CANDIDATES, TextSearches

_EARLY = 20
_QUICK_ITEMS = 2000


def drop_pages(root: Path) -> float:
    """Drop the pages of all files below a folder from the system's cache.

    Args:
        root: Folder whose files no process has mapped.

    Returns:
        Share of the files' pages that are still in memory.
    """
    pages = left = 0
    mincore = ctypes.CDLL(None).mincore
    for path in root.rglob("*"):
        if not path.is_file() or not path.stat().st_size:
            continue
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # pages that are not yet written are kept
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            with mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY) as mapped:
                count = -(-len(mapped) // mmap.PAGESIZE)
                found = (ctypes.c_ubyte * count)()
                start = ctypes.c_char.from_buffer(mapped)
                mincore(ctypes.byref(start), ctypes.c_size_t(len(mapped)), found)
                del start
                pages += count
                left += int((np.frombuffer(bytes(found), dtype=np.uint8) & 1).sum())
        finally:
            os.close(descriptor)
    return left / pages


def _read_bytes() -> int:
    """Return how much this process has read from disks (Linux)."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("read_bytes")))


def search_cold(root: Path, items: int, source: Path | None, seed: int) -> dict[str, float]:
    """Open the index in this process, and search."""
    use_one_thread()
    queries = SyntheticPhotos(find_source(source)).queries(_EARLY + 1, items, seed=seed)
    read = _read_bytes()
    started = time.perf_counter()
    with open_index(root) as index:
        opened = time.perf_counter()
        asked = TextSearches(TwoStageSearcher(index), queries)
        prepared = time.perf_counter()
        asked.search(0, CANDIDATES)
        first = time.perf_counter()
        read_first = _read_bytes()
        early_ms = [_timed_ms(asked, turn) for turn in range(1, _EARLY + 1)]
        read_early = _read_bytes()
        again_ms = [_timed_ms(asked, turn) for turn in range(1, _EARLY + 1)]
    return {
        "open_ms": 1000 * (opened - started),
        "first_ms": 1000 * (first - prepared),
        "early_ms": float(np.median(early_ms)),
        "again_ms": float(np.median(again_ms)),
        "read_bytes": read_first - read,
        "early_read_bytes": (read_early - read_first) / _EARLY,
    }


def _timed_ms(asked: TextSearches, turn: int) -> float:
    started = time.perf_counter()
    asked.search(turn, CANDIDATES)
    return 1000 * (time.perf_counter() - started)


def measure(items: int, rounds: int, source: Path | None, keep: Path | None) -> dict[str, Any]:
    """Build the index unless it exists, and search it in fresh processes."""
    place = tempfile.TemporaryDirectory() if keep is None else nullcontext(keep)
    with place as folder:
        root = Path(folder) / "index"
        if not root.exists():
            in_fresh_process(build, root, items, "int8", "auto", source)
        each: list[dict[str, float]] = []
        for number in range(rounds):
            left = drop_pages(root)
            figures = in_fresh_process(search_cold, root, items, source, number + 1)
            each.append({"left_share": left, **figures})
    return {"items": items, "rounds": rounds} | {
        name: float(np.median([figures[name] for figures in each])) for name in each[0]
    }


def main() -> None:
    """Run the measurement, and print a table or JSON."""
    parser = figures_parser(__doc__, "2,000 photos, a few seconds")
    parser.add_argument("--items", type=int, default=100_000, help="number of photos")
    parser.add_argument("--rounds", type=int, default=5, help="number of fresh processes")
    parser.add_argument("--source", type=Path, metavar="INDEX", help="index of real photos")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="folder to keep the index in")
    options = parser.parse_args()
    items = _QUICK_ITEMS if options.quick else options.items
    rounds = 1 if options.quick else options.rounds
    print_figures(measure(items, rounds, options.source, options.keep), as_json=options.json)


if __name__ == "__main__":
    main()
