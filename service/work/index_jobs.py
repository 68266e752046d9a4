"""Jobs on the index as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from aladin.errors import IndexCorruptError
from index.building.item_encoders import LeftOut
from index.disk_use import disk_use
from index.history import DamagedFile, History, read_history
from index.item_counts import ItemCounts, count_items
from index.layout import generation_folder
from index.left_out import read_left_out
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


class IndexReport(NamedTuple):
    """All that is told of an index to whoever looks after it.

    Attributes:
        manifest: of the generation that answers.
        counts: items of each of its sides.
        left_out: of each of its sides, some of the items that the build could not use; none
            where their list is damaged, which the history then names.
        offset: the first of these among all that were left out.
        disk: bytes by part, see `index.disk_use`.
        history: all generations on the disk.
    """

    manifest: Manifest
    counts: Mapping[Target, ItemCounts]
    left_out: Mapping[Target, list[LeftOut]]
    offset: int
    disk: Mapping[str, int]
    history: History


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
        index = worker.engine().searcher.index
        folder = generation_folder(index.path, index.generation)
        page = slice(self.offset, self.offset + self.limit)
        targets = index.manifest.targets
        left_out: dict[Target, list[LeftOut]] = {target: [] for target in targets}
        damaged: list[DamagedFile] = []
        for target in targets:
            try:
                left_out[target] = read_left_out(folder / target)[page]
            except IndexCorruptError as error:
                name = str(error.file.relative_to(index.path))
                damaged.append(DamagedFile(name, error.reason))
        history = read_history(index.path)
        return IndexReport(
            manifest=index.manifest,
            counts={target: count_items(index.side(target)) for target in targets},
            left_out=left_out,
            offset=self.offset,
            disk=disk_use(index.path, index.manifest),
            history=history._replace(damaged=[*damaged, *history.damaged]),
        )
