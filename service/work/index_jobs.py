"""Jobs on the index as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from index.manifest import Manifest
from service.queries import Target
from service.work.job import Job
from service.work.worker import Worker


class IndexState(NamedTuple):
    """The live generation as it is now.

    Attributes:
        manifest: of the generation as it was built.
        counts: items of each side that a search may find, added ones included.
    """

    manifest: Manifest
    counts: Mapping[Target, int]


@dataclass(frozen=True)
class DescribeIndex(Job[IndexState]):
    """Describe the live generation, with what was added and deleted since it was built."""

    def run(self, worker: Worker) -> IndexState:
        """Return its manifest and counts."""
        engine = worker.engine()
        return IndexState(
            engine.manifest, {target: engine.count(target) for target in engine.manifest.targets}
        )
