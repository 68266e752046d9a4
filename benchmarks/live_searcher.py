"""Searches an index again and again while `benchmarks.live_updates` kills its writers."""

from __future__ import annotations

import json
import os
import signal
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.forked import forked
from benchmarks.live_groups import GROUP_ITEMS, MOST_GROUPS, some_query
from index.layout import live_generation
from index.reader import SearchIndex, open_index
from index.searcher import TwoStageSearcher


class GroupSearcher:
    """A process that searches all items of the index again and again."""

    def __init__(self, root: Path, seed: int) -> None:
        """Begin.

        Args:
            root: of the index.
            seed: of the queries.
        """
        self._child, self._lines = forked(lambda say: _search(root, seed, say))
        next(self._lines)  # it has begun

    def stop(self) -> tuple[int, int]:
        """Return how many searches there were, and how many of them were broken."""
        os.kill(self._child, signal.SIGTERM)
        counts = json.loads(list(self._lines)[-1])
        os.waitpid(self._child, 0)
        return counts[0], counts[1]


def _search(root: Path, seed: int, say: Callable[[str], None]) -> None:
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    say("begun")
    chance = np.random.default_rng(seed)
    searches = broken = 0
    index: SearchIndex | None = None
    parent = os.getppid()
    while not stopped and os.getppid() == parent:  # it does not outlive a benchmark that failed
        try:
            if index is None or index.generation != live_generation(root):
                if index is not None:
                    index.close()
                index = open_index(root)
            broken += not _sees_whole_groups(index, chance)
        except Exception:
            traceback.print_exc()
            broken += 1
        searches += 1
    say(json.dumps([searches, broken]))


def _sees_whole_groups(index: SearchIndex, chance: np.random.Generator) -> bool:
    everything = GROUP_ITEMS * 4 * MOST_GROUPS
    hits = (
        TwoStageSearcher(index)
        .search(some_query(chance), "text", "images", top_k=everything, num_candidates=everything)
        .hits
    )
    versions: dict[int, list[int]] = {}
    for hit in hits:
        versions.setdefault(hit.metadata["group"], []).append(hit.metadata["version"])
    whole = all(len(each) == GROUP_ITEMS and len(set(each)) == 1 for each in versions.values())
    return whole and len({hit.id for hit in hits}) == len(hits) > 0
