"""A job that reports on the whole index: its contents, history and disk space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from aladin_index.engines.engine_index import EngineIndex
from aladin_index.engines.record import read_generation
from aladin_index.format.left_out import skipped_of
from aladin_index.format.manifest import Manifest
from aladin_index.format.records import SkippedItem
from aladin_index.format.upgrade_plan import UpgradeProgress, upgrade_progress
from aladin_index.generations.history import DamagedFile, GenerationRecord, History, read_history
from aladin_index.generations.info import ItemCounts, count_items, disk_use
from aladin_index.generations.reader import SearchIndex
from aladin_index.search.backend import Collection, SearchBackend
from aladin_network.errors import IndexCorruptError, IndexMismatchError, IndexNotReadyError
from aladin_network.types import Target
from aladin_service.work.worker import Job, Worker


class IndexReport(NamedTuple):
    """Complete report about an index.

    Attributes:
        manifest: Manifest of the generation that is served.
        counts: Number of items in each collection.
        left_out: Some of the items of each collection that the build skipped; none if their list is
            damaged, which the history then reports, or was not pushed.
        offset: Position of the first listed item among all skipped items.
        disk: Bytes by part, see `aladin_index.generations.info`; only the local part if the index
            is in a vector database.
        history: History of all generations.
        engine: Vector database that stores the index, or None if it is in files.
        upgrade: Progress of an unfinished upgrade to another model, or None.
        left_out_total: Number of all skipped items of each collection whose list can be read; None
            for an engine.
    """

    manifest: Manifest
    counts: Mapping[Target, ItemCounts]
    left_out: Mapping[Target, list[SkippedItem]]
    offset: int
    disk: Mapping[str, int]
    history: History
    engine: str | None = None
    upgrade: UpgradeProgress | None = None
    left_out_total: Mapping[Target, int] | None = None


@dataclass(frozen=True)
class ReportIndex(Job[IndexReport]):
    """Report on the whole index; checks every file, but opens few.

    Attributes:
        offset: Number of skipped items to pass over.
        limit: Maximum number of skipped items to report for each collection.
    """

    offset: int
    limit: int

    def run(self, worker: Worker) -> IndexReport:
        """Return the report."""
        return _report_index(worker.searcher().index, self.offset, self.limit)


def _report_index(index: SearchBackend, offset: int, limit: int) -> IndexReport:
    """Collect all facts about an index; opens few of its files.

    Args:
        index: Index that is served.
        offset: Number of skipped items to pass over.
        limit: Maximum number of skipped items to report for each collection.

    Raises:
        EngineUnavailableError: If the vector database that stores the index does not respond.
    """
    if isinstance(index, EngineIndex):
        return _report_engine(index, offset)
    assert isinstance(index, SearchIndex)  # there are no others
    return _report_files(index, offset, limit)


def _report_files(index: SearchIndex, offset: int, limit: int) -> IndexReport:
    page = slice(offset, offset + limit)
    targets = index.manifest.targets
    left_out: dict[Target, list[SkippedItem]] = {target: [] for target in targets}
    totals: dict[Target, int] = {}
    damaged: list[DamagedFile] = []
    for target in targets:
        try:
            skipped = skipped_of(index.path, index.generation, target)
            left_out[target], totals[target] = skipped[page], len(skipped)
        except IndexCorruptError as error:
            name = str(error.file.relative_to(index.path))
            damaged.append(DamagedFile(name, error.reason))
    history = read_history(index.path)
    upgrade = None
    try:
        upgrade = upgrade_progress(index.path, index.generation)
    except IndexCorruptError as error:
        damaged.append(DamagedFile(str(error.file.relative_to(index.path)), error.reason))
    return IndexReport(
        manifest=index.manifest,
        counts={target: count_items(index.side(target)) for target in targets},
        left_out=left_out,
        offset=offset,
        disk=disk_use(index.path, index.manifest),
        history=history._replace(damaged=[*damaged, *history.damaged]),
        upgrade=upgrade,
        left_out_total=totals,
    )


def _report_engine(index: EngineIndex, offset: int) -> IndexReport:
    targets = index.manifest.targets
    client = index.client
    records: list[GenerationRecord] = []
    damaged: list[DamagedFile] = []
    for number in reversed(client.generations()):
        try:
            manifest = read_generation(client, number).manifest
            records.append(GenerationRecord(manifest, None, {}, []))
        except IndexNotReadyError:
            pass  # it is being pushed
        except (IndexCorruptError, IndexMismatchError) as error:
            damaged.append(DamagedFile(f"generation {number}", str(error)))
    return IndexReport(
        manifest=index.manifest,
        counts={target: _count(index.side(target)) for target in targets},
        left_out={target: [] for target in targets},
        offset=offset,
        disk=disk_use(index.path, index.manifest),
        history=History(client.live_generation() or index.generation, None, records, damaged),
        engine=client.kind,
    )


def _count(side: Collection) -> ItemCounts:
    return ItemCounts(built=side.entry.count, added=None, deleted=None, live=side.count)
