"""Damages first-stage files: they may be rejected or searched, but must not cause a crash.

    python -m benchmarks.index.hostile_index [--cases 100] [--quick] [--json]

Builds a first stage of each kind, changes one random byte of its file at a time without changing
its length, and opens and searches each damaged file in a separate process, as a service does with a
new generation. Exits with 1 if a process was ended by a signal, hung, or failed with an error that
is not one of the project's own.

    KIND             FAISS factory string, e.g. IVF16,PQ32x4fs
      searched       damaged files that could be searched; most bytes are values of vectors
      rejected       damaged files rejected with an error that names the file
      ended          processes ended by a signal, by its name
      unforeseen     processes that failed with another error than the project's own
      hung           processes that took longer than 30 s
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aladin_index.ann import faiss
from aladin_index.ann.ann_index import AnnIndex, build_ann
from aladin_index.ann.file import write_ann
from aladin_index.ann.first_stage import retrieve
from aladin_network.errors import IndexCorruptError
from aladin_network.types import NullProgress
from benchmarks.lib.output import figures_parser, print_json
from benchmarks.lib.small_collection import unit_rows

KINDS = ("IVF16,PQ32x4fs", "IVF16,SQ8", "Flat", "HNSW16,Flat")
_CASES, _QUICK_CASES = 100, 20
_COUNT, _DIM = 4000, 32
_QUERIES, _FOUND = 40, 100
_LIMIT_S = 30.0
# Memory that opening may allocate beyond what the process has: damaged lengths request more.
_ROOM_BYTES = 2**30
_REJECTED, _UNFORESEEN = 3, 4


def attack(kind: str, cases: int, seed: int = 0) -> dict[str, Any]:
    """Damage a first stage of one kind, and open and search the result.

    Args:
        kind: A FAISS factory string.
        cases: Number of damaged files.
        seed: Seed of the random positions and bytes.
    """
    random = np.random.default_rng(seed)
    vectors = unit_rows(random.standard_normal((_COUNT, _DIM)))
    fates: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ann.faiss"
        write_ann(path, build_ann(kind, vectors, NullProgress()))
        content = path.read_bytes()
        for _ in range(cases):
            changed = bytearray(content)
            place = int(random.integers(0, len(content)))
            changed[place] ^= int(random.integers(1, 256))
            path.write_bytes(changed)
            fates[_fate(path, vectors)] += 1
    own = ("searched", "rejected", "unforeseen", "hung")
    ended = {name: count for name, count in fates.items() if name not in own}
    return {**{name: fates[name] for name in own}, "ended": ended}


def _fate(path: Path, vectors: NDArray[np.float32]) -> str:
    """Open and search a file in a child process; return the outcome."""
    child = os.fork()
    if child == 0:
        _open_and_search(path, vectors)
    deadline_s = time.monotonic() + _LIMIT_S
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > deadline_s:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "hung"
        time.sleep(0.005)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return signal.Signals(-code).name
    return {0: "searched", _REJECTED: "rejected"}.get(code, "unforeseen")


def _open_and_search(path: Path, vectors: NDArray[np.float32]) -> None:
    """Run in the child process."""
    code = _UNFORESEEN
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
        limit = pages * resource.getpagesize() + _ROOM_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        ann = AnnIndex.open(path, 8, 3.0)
        # As `aladin_index.generations.reader.open_collection` compares.
        if (ann.count, ann.dim) != vectors.shape:
            raise IndexCorruptError(path, f"{ann.count} vectors of {ann.dim}")
        for query in vectors[:_QUERIES]:
            retrieve(ann, vectors, query, _FOUND)
        code = 0
    except IndexCorruptError:
        code = _REJECTED
    finally:
        os._exit(code)


def main() -> None:
    """Attack each kind and print the outcomes."""
    parser = figures_parser(__doc__, f"{_QUICK_CASES} of each kind")
    parser.add_argument("--cases", type=int, default=_CASES, help="of each kind")
    arguments = parser.parse_args()
    faiss.omp_set_num_threads(1)  # a child has none of its parent's threads
    cases = _QUICK_CASES if arguments.quick else arguments.cases
    figures = {kind: attack(kind, cases) for kind in KINDS}
    if arguments.json:
        print_json(figures)
    else:
        for kind, told in figures.items():
            print(f"{kind}: {', '.join(f'{name} {count}' for name, count in told.items())}")
    if any(told["ended"] or told["unforeseen"] or told["hung"] for told in figures.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
