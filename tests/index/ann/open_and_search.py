"""Opens and searches indexes in processes of their own, which may not outlive it.

The processes are forks of one that has imported what they need: an import takes two seconds.
"""

from __future__ import annotations

import multiprocessing
import resource
from contextlib import suppress
from multiprocessing.connection import Connection
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
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_tell, args=(sender, vectors, files))
    process.start()
    sender.close()  # so that a process that dies is noticed
    told: list[str] = []
    with receiver, suppress(EOFError):
        while receiver.poll(_LIMIT_S):
            told.append(receiver.recv())
    process.join(_LIMIT_S)
    if process.exitcode is None:
        process.kill()
    return told if process.exitcode == 0 else [*told, f"ended with {process.exitcode}"]


def _tell(sender: Connection, vectors: np.ndarray, files: list[Path]) -> None:
    _limit_memory()
    for file in files:
        sender.send(_fate(vectors, file))


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
