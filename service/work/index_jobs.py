"""Jobs on the index as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from index.manifest import Manifest
from service.queries import Target
from service.work.index_report import IndexReport, report_index
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


@dataclass(frozen=True)
class ReportIndex(Job[IndexReport]):
    """Look at the index from all sides; takes a look at every file, and opens few.

    Attributes:
        offset: items that were left out to pass over.
        limit: the most of them to be told of each side.
    """

    offset: int
    limit: int

    def run(self, worker: Worker) -> IndexReport:
        """Return what there is to tell."""
        return report_index(worker.engine().searcher.index, self.offset, self.limit)
