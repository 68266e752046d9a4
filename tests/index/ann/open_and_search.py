"""Opens and searches indexes in a process of its own, which may not outlive it.

python -m tests.index.ann.open_and_search VECTORS.npy FILE...
"""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import numpy as np

from aladin_index.ann.ann_index import AnnIndex
from aladin_index.ann.first_stage import retrieve
from aladin_network.errors import IndexCorruptError

_QUERIES, _LIMIT_S = 20, 120
# What opening may allocate, besides what the process has.
_ROOM_BYTES = 2**30


def fates(vectors: np.ndarray, files: list[Path]) -> list[str]:
    """Open and search files in one child process, one after the other.

    Args:
        vectors: (items, dim) float32 that the indexes are of.
        files: FAISS indexes, as `aladin_index.ann.file` writes them.

    Returns:
        For each file "sound" or "refused"; less than there are files where the child died.
    """
    stored = files[0].with_name("vectors.npy")
    np.save(stored, vectors)
    command = [sys.executable, "-m", __name__, str(stored), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    told = done.stdout.split()
    return told if done.returncode == 0 else [*told, f"ended with {done.returncode}"]


def _fate(vectors: np.ndarray, file: Path) -> str:
    try:
        ann = AnnIndex.open(file, 16, 4.0)
        for query in vectors[:_QUERIES]:
            retrieve(ann, vectors, query, 200)
    except IndexCorruptError:
        return "refused"
    return "sound"


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
    limit = pages * resource.getpagesize() + _ROOM_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    _limit_memory()
    asked = np.load(sys.argv[1])
    for name in sys.argv[2:]:
        sys.stdout.write(_fate(asked, Path(name)) + "\n")
        sys.stdout.flush()
