"""Gives an index of files another model, while searches and changes of the live one continue.

    upgrade_index(root, checkpoint_folder)

The live items are encoded again from their sources, shard by shard beside the live generation,
which answers alone all the time. When all are encoded, a generation of the new model is written and
made live in one step, with what was added, deleted or changed meanwhile. A process that is killed
at any moment loses a shard at most; the same call goes on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.build.shards import LocalEncoding, ShardFormat, ShardWork
from aladin_index.changes.writable import WritableCollection, WritableGeneration, insert_encoding
from aladin_index.encode.item_encoders import CUT, warn_of_cut
from aladin_index.encode.read_ahead import StageSeconds
from aladin_index.encode.region_sources import RegionSource, check_regions
from aladin_index.encode.source_items import SourceItem
from aladin_index.format.disk import changes_lock, disk_errors, only_builder, remove_folder
from aladin_index.format.layout import (
    UPGRADE,
    check_kept_in_files,
    generation_folder,
    live_generation,
    published_generations,
)
from aladin_index.format.manifest import DIGEST, Manifest, ModelEntry, read_manifest
from aladin_index.format.models import check_same_model, copy_upgrade_model
from aladin_index.format.records import SkippedItem
from aladin_index.generations.collection_writer import CollectionSource, EncodedPart, items_of
from aladin_index.generations.compact import settings_of
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.generations.writer import describe_model, write_generation
from aladin_index.items.tables import StoredItem, insert_items
from aladin_index.search.live_collection import LiveCollection
from aladin_index.settings import BuildSettings
from aladin_index.tokens.codec import TokenCodec
from aladin_index.tokens.store import codec_for
from aladin_index.upgrade.encodings import (
    KEY_DTYPE,
    Encoded,
    Encodings,
    key_of,
    lack_of,
    pack_with,
    source_of,
)
from aladin_network.calibration.fitted_files import FittedFiles, read_fitted
from aladin_network.config import dump_config
from aladin_network.errors import InputError, SearchIndexError
from aladin_network.graphs.loading import load_for_inference
from aladin_network.types import NullProgress, Progress, Target

_UNITS: dict[Target, str] = {"images": "photos", "texts": "texts"}
_EXAMPLES = 5
# Items that are looked at, and items whose encodings are in memory, at a time.
_LOOKED_AT, _IN_MEMORY = 4096, 1024


class UpgradeReport(NamedTuple):
    """Result of an upgrade.

    Attributes:
        generation: Generation that is now live.
        counts: Number of items of each collection, including changes that came last.
        skipped: Items that are no longer in the index, with the reason.
        carried: Number of additions and deletions that came while the generation was written.
        fit_anew: What was fitted to the old model and is missing now: "tune", "correct",
            "calibrate".
        was_done: Whether the live generation was of this model already.
    """

    generation: int
    counts: dict[Target, int]
    skipped: Sequence[SkippedItem] = ()
    carried: int = 0
    fit_anew: Sequence[str] = ()
    was_done: bool = False


class MissingSourcesError(InputError):
    """Items cannot be encoded again, and the index is not to go on without them.

    Attributes:
        skipped: These items, with the reason.
    """

    def __init__(self, root: Path, skipped: Sequence[SkippedItem], total: int) -> None:
        shown = "; ".join(f"{each.id!r}: {each.reason}" for each in skipped[:_EXAMPLES])
        more = "; ..." if len(skipped) > _EXAMPLES else ""
        super().__init__(
            f"{root}: {len(skipped)} of {total} items have no source that the new model could "
            f"encode ({shown}{more}); the old model goes on answering. Restore their photos and "
            "run the command again, or run it with --skip-missing to go on without them"
        )
        self.skipped = list(skipped)


def upgrade_index(
    root: Path,
    checkpoint_folder: Path,
    settings: BuildSettings | None = None,
    progress: Progress | None = None,
    regions: RegionSource | None = None,
    *,
    skip_missing: bool = False,
) -> UpgradeReport:
    """Encode all items by another model, and make a generation of it live.

    Args:
        root: Index folder.
        checkpoint_folder: Checkpoint of the new model.
        settings: How items are encoded. The first stage, the form of tokens, the fields for filters
            and the number of candidates are those of the live generation.
        progress: Receives the progress in items, and the seconds of each stage.
        regions: Regions of photos, for a new model that reads regions.
        skip_missing: Whether to go on without the items that cannot be encoded again.

    Raises:
        IndexNotReadyError: If nothing was published yet.
        InputError: If the index is kept in a vector database, the model needs regions or has no use
            for them, or a collection has no item left.
        MissingSourcesError: If items cannot be encoded again, unless they may be skipped.
        IndexMismatchError: If a generation has the weights of the new model and another of its
            files.
        CheckpointError: If a checkpoint cannot be loaded.
        IndexWriteError: If the disk is full or cannot be written, or the index is being built.
    """
    # Metadata of the photos themselves are those that the index has.
    settings = replace(settings or BuildSettings(), exif=False)
    progress = progress or NullProgress()
    check_kept_in_files(root)
    live_generation(root)  # nothing is written where there is no index
    with disk_errors(root), only_builder(root), open_index(root, encodes=False) as index:
        checkpoint = load_for_inference(checkpoint_folder, settings.device)
        model = describe_model(checkpoint_folder, checkpoint.model_id)
        if model.id == index.manifest.model.id:
            check_same_model(str(root), index.manifest.model, model)
            _drop_work(root)
            counts: dict[Target, int] = {
                target: index.side(target).count for target in index.manifest.targets
            }
            return UpgradeReport(index.generation, counts, was_done=True)
        if "images" in index.manifest.targets:
            check_regions(checkpoint.model, regions)
        fitted = read_fitted(checkpoint_folder, model.id)
        copy_upgrade_model(checkpoint_folder, root, model, _readable_manifests(root))
        form = ShardFormat.of(checkpoint.model)
        encoding = LocalEncoding(checkpoint.model, settings, regions)
        work = _work_folder(root, model)
        collections: dict[Target, _Collection] = {
            target: _Collection(
                index, target, Encodings(work / target, form), encoding, settings, progress
            )
            for target in index.manifest.targets
        }
        upgrade = _Upgrade(index, model, fitted, collections, progress, skip_missing=skip_missing)
        report = upgrade.run()
        _drop_work(root)
        return report


def _work_folder(root: Path, model: ModelEntry) -> Path:
    """Return the folder of what a model has encoded."""
    said = json.dumps(dump_config(model), sort_keys=True)
    return root / UPGRADE / hashlib.sha256(said.encode()).hexdigest()[:16]


def _drop_work(root: Path) -> None:
    if (root / UPGRADE).exists():
        remove_folder(root, root / UPGRADE)


def _readable_manifests(root: Path) -> list[Manifest]:
    """Read the manifests of all generations but damaged ones, which need no model."""
    manifests: list[Manifest] = []
    for number in published_generations(root):
        with suppress(SearchIndexError):
            manifests.append(read_manifest(generation_folder(root, number)))
    return manifests


class _Waiting(NamedTuple):
    """Rows that are to be encoded, and their keys."""

    rows: NDArray[np.int64]
    keys: NDArray[np.bytes_]


class _Collection:
    """One collection during an upgrade.

    Attributes:
        live: The live collection when it was last looked at.
        encodings: What the new model has encoded.
        place: For each row of the live generation and its changes the place of its encoding, or -1.
        kept: Rows that the new generation has, in the order of its own.
    """

    def __init__(
        self,
        index: SearchIndex,
        target: Target,
        encodings: Encodings,
        encoding: LocalEncoding,
        settings: BuildSettings,
        progress: Progress,
    ) -> None:
        self.live: LiveCollection = index.side(target)
        self.encodings = encodings
        self.place = np.empty(0, dtype=np.int64)
        self.kept = np.empty(0, dtype=np.int64)
        self._index = index
        self._target: Target = target
        self._encoding, self._settings, self._progress = encoding, settings, progress
        self._reasons: dict[str, str] = {}

    @property
    def rows(self) -> NDArray[np.int64]:
        """Live rows, ascending."""
        selection = self.live.selection
        return np.arange(self.live.count) if selection is None else selection.rows

    def look(self) -> _Waiting:
        """Look at what was added and removed since the last call."""
        self.live = self._index.side(self._target)
        known, changes = len(self.place), self.live.changes
        total = self.live.entry.count if changes is None else changes.rows
        self.place = np.append(self.place, np.full(total - known, -1, dtype=np.int64))
        new = self.rows[self.rows >= known]
        waiting: list[int] = []
        keys: list[bytes] = []
        for start in range(0, len(new), _LOOKED_AT):
            items = items_of(self.live, new[start : start + _LOOKED_AT])
            of_items = [key_of(self._index.path, item) for item in items]
            places = self.encodings.find(np.array(of_items, dtype=KEY_DTYPE))
            for item, key, place in zip(items, of_items, places.tolist(), strict=True):
                self.place[item.row] = place
                if place >= 0:
                    continue
                lack = lack_of(self._index.path, item, self._target)
                if lack is None:
                    waiting.append(item.row)
                    keys.append(key)
                else:
                    self._reasons[item.id] = lack
        return _Waiting(np.array(waiting, dtype=np.int64), np.array(keys, dtype=KEY_DTYPE))

    def encode(self, waiting: _Waiting) -> None:
        """Encode rows, shard by shard."""
        rows, keys = waiting
        if len(rows) == 0:
            return
        batch = self._settings.batch_size
        size = -(-self._settings.shard_items // batch) * batch
        folder = self.encodings.begin(keys)
        shards = {
            folder / f"shard-{start // size:05d}": range(start, min(start + size, len(rows)))
            for start in range(0, len(rows), size)
        }
        live = self.live

        def sources(among: range) -> list[SourceItem]:
            items = items_of(live, rows[among.start : among.stop])
            return [source_of(self._index.path, item, self._target) for item in items]

        self._progress.start(len(rows), _UNITS[self._target])
        done = int(np.count_nonzero(self.place[self.rows] >= 0))
        if done:
            self._progress.note(resumed_after=float(done))
        form = self.encodings.form
        work = ShardWork(target=self._target, form=form, shards=shards, items=sources)
        self._encoding.encode(work, self._progress, StageSeconds())
        for shard in self.encodings.finish(folder):
            self._reasons.update(shard.left_out)
        self.place[rows] = self.encodings.find(keys)

    def catch_up(self) -> None:
        """Encode what was added meanwhile, until there is nothing new."""
        while len((waiting := self.look()).rows):
            self.encode(waiting)

    def missing(self, waiting: NDArray[np.int64] | None = None) -> list[SkippedItem]:
        """Return the live items that cannot be encoded, of which `waiting` have not been tried."""
        rows = self.rows[self.place[self.rows] < 0]
        if waiting is not None:
            rows = np.setdiff1d(rows, waiting)
        return [
            SkippedItem(item.id, self._reasons.get(item.id, "it has no source"))
            for item in items_of(self.live, rows)
        ]

    def source(self, codec: TokenCodec, skipped: Sequence[SkippedItem]) -> CollectionSource:
        """Choose the rows of the new generation, and describe the collection by them."""
        rows = self.rows[self.place[self.rows] >= 0]
        self.kept = rows[np.argsort(self.place[rows])]
        if self._target == "texts":
            shards = self.encodings.shards
            warn_of_cut(found for shard in shards for found in shard.metadata().values())
        live, form = self.live, self.encodings.form
        return CollectionSource(
            embedding_dim=form.embedding_dim,
            codec=codec,
            parts=(
                EncodedPart(
                    _renewed(items_of(live, self.kept[among]), read, self._target),
                    read.embeddings,
                    pack_with(codec, form, read.tokens),
                    read.lengths,
                )
                for among, read in self.encodings.read(self.place[self.kept], _IN_MEMORY)
            ),
            left_out=skipped,
            count=len(self.kept),
        )

    def carry(self, new: WritableCollection) -> int:
        """Bring the new generation up to date; return the number of additions and deletions."""
        rows = self.rows
        gone = np.flatnonzero(~np.isin(self.kept, rows)).tolist()
        added = np.setdiff1d(rows[self.place[rows] >= 0], self.kept)
        if len(gone) + len(added) == 0:
            return 0
        added = added[np.argsort(self.place[added])]
        form = self.encodings.form
        with new.transaction() as connection:
            for row in gone:
                new.remove(row)
            row = new.next_row()
            for among, read in self.encodings.read(self.place[added], _IN_MEMORY):
                items = _renewed(items_of(self.live, added[among]), read, self._target)
                ends = np.cumsum(read.lengths).tolist()
                for number, (item, end) in enumerate(zip(items, ends, strict=True)):
                    tokens = read.tokens.take(slice(end - int(read.lengths[number]), end))
                    packed = pack_with(new.codec, form, tokens)
                    insert_items(connection, [item._replace(row=row)])
                    vector = new.vector(read.embeddings[number], packed)
                    insert_encoding(connection, row, vector, packed)
                    row += 1
        return len(gone) + len(added)


def _renewed(items: Sequence[StoredItem], read: Encoded, target: Target) -> list[StoredItem]:
    """Return items with what was found out when they were encoded again."""
    if target == "images":
        each = zip(items, read.photos, strict=True)
        return [item._replace(**photo) for item, photo in each]
    return [
        item._replace(
            metadata={name: v for name, v in item.metadata.items() if name != CUT} | found
        )
        for item, found in zip(items, read.metadata, strict=True)
    ]


class _Upgrade:
    """One process's share of an upgrade, to its end."""

    def __init__(
        self,
        index: SearchIndex,
        model: ModelEntry,
        fitted: FittedFiles,
        collections: Mapping[Target, _Collection],
        progress: Progress,
        *,
        skip_missing: bool,
    ) -> None:
        self._index, self._model, self._fitted = index, model, fitted
        self._collections = collections
        self._progress = progress
        self._skip_missing = skip_missing
        self._carried = 0
        self._skipped: dict[Target, list[SkippedItem]] = {}

    def run(self) -> UpgradeReport:
        """Encode what is not encoded yet, and make the new generation live."""
        collections = self._collections
        waiting: dict[Target, _Waiting] = {
            target: each.look() for target, each in collections.items()
        }
        self._check_missing(waiting)
        self._check_some_left()
        for target, each in collections.items():
            each.encode(waiting[target])
            each.catch_up()
        self._check_missing()
        self._check_some_left()
        live = self._index.manifest
        sides: dict[Target, CollectionSource] = {
            target: each.source(self._codec(target), self._skipped[target])
            for target, each in collections.items()
        }
        calibration, correction = self._fitted
        generation = write_generation(
            self._index.path,
            sides,
            self._model,
            settings_of(live),
            self._fingerprint(),
            self._progress,
            going_live=self._carry,
            made_by="upgrade",
            calibration=calibration,
            correction=correction,
        )
        every = [each for of_target in self._skipped.values() for each in of_target]
        counts: dict[Target, int] = {
            target: int(np.count_nonzero(each.place[each.rows] >= 0))
            for target, each in collections.items()
        }
        return UpgradeReport(generation, counts, every, self._carried, self._fit_anew())

    def _check_missing(self, waiting: Mapping[Target, _Waiting] | None = None) -> None:
        """Note the items that cannot be encoded; those that wait for it may yet be.

        Raises:
            MissingSourcesError: If there are any, and they may not be skipped.
        """
        for target, each in self._collections.items():
            self._skipped[target] = each.missing(None if waiting is None else waiting[target].rows)
        every = [each for of_target in self._skipped.values() for each in of_target]
        if every and not self._skip_missing:
            total = sum(each.live.count for each in self._collections.values())
            raise MissingSourcesError(self._index.path, every, total)

    def _check_some_left(self) -> None:
        """Refuse a collection without items.

        Raises:
            InputError: If all items of one were deleted, or cannot be encoded.
        """
        for target, each in self._collections.items():
            if each.live.count == len(self._skipped[target]):
                raise InputError(
                    f"{target}: no item is left, and a generation needs at least one; add some, or "
                    "build an index without this collection"
                )

    def _codec(self, target: Target) -> TokenCodec:
        """Return the codec of a collection, in the form of the live one."""
        tokens = {
            each: [shard.tokens().values for shard in collection.encodings.shards]
            for each, collection in self._collections.items()
        }
        asking = [values for each in tokens if each != target for values in tokens[each]]
        entry = self._collections[target].live.entry
        return codec_for(entry.token_dtype, tokens[target], asking)

    def _fingerprint(self) -> str:
        """Hash what determines the generation."""
        live = self._index
        digest = hashlib.sha256(f"upgrade {live.manifest.fingerprint} {self._model.id}\n".encode())
        digest.update((generation_folder(live.path, live.generation) / DIGEST).read_bytes())
        for target, each in self._collections.items():
            digest.update(f"{target} ".encode() + each.kept.tobytes())
        return digest.hexdigest()

    @contextmanager
    def _carry(self, generation: int) -> Generator[None]:
        """Bring the new generation up to date, and lock the index against changes till it is live.

        Raises:
            MissingSourcesError: If what was added meanwhile cannot be encoded, and may not be
                skipped.
        """
        root, each_one = self._index.path, self._collections.items()
        for _, collection in each_one:
            collection.catch_up()
        with changes_lock(root):
            for _, collection in each_one:
                collection.catch_up()
            self._check_missing()
            with closing(WritableGeneration(root, generation, self._model.id)) as new:
                self._carried = sum(each.carry(new.side(target)) for target, each in each_one)
            yield

    def _fit_anew(self) -> list[str]:
        """Name the commands whose results were those of the old model, and which the new lacks."""
        live, (calibration, correction) = self._index.manifest, self._fitted
        commands = {
            "tune": any(each.tuning is not None for each in live.sides.values()),
            "correct": live.correction is not None and correction is None,
            "calibrate": live.calibration is not None and calibration is None,
        }
        return [command for command, is_missing in commands.items() if is_missing]
