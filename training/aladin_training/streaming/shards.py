"""The shards of a stream, which are tars, and the number of photos in each.

Photos are counted once; the counts are cached.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from aladin_network.errors import DataError
from aladin_network.files import write_json
from aladin_network.types import Progress
from aladin_training.data import Record
from aladin_training.data.fields import readable
from aladin_training.data.folder import common_folder, expand, walk_files
from aladin_training.data.records import (
    OnSkip,
    SkipLog,
    SkippedOfSplit,
    Source,
    ignore_skipped,
    is_strict,
    log_skipped,
)
from aladin_training.data.samples import split_of_folder
from aladin_training.data.webdataset import is_tar, read_tar

# A complete tar ends with two blocks of zeros.
_END_MARK_BYTES = 1024

# Counting terabytes takes long; an interruption loses at most this much of it.
_SAVE_EVERY_S = 30.0


@dataclass(frozen=True)
class TarShard:
    """One tar of a stream; the split is None for all of its photos."""

    path: Path
    root: Path
    split: str | None

    @property
    def name(self) -> str:
        """Path relative to the root, which does not depend on the location of the data set."""
        return self.path.relative_to(self.root).as_posix()

    def records(self, on_skip: OnSkip = ignore_skipped) -> Iterator[Record]:
        """Read the photos of the split in order, including those without captions."""
        skipped = SkippedOfSplit(self.split, on_skip)
        for entry in read_tar(Source(self.path, self.root, skipped)):
            if self.split is None or entry.record.split == self.split:
                yield entry.record


class ShardCount(NamedTuple):
    """Photos of the split in a shard, and those without captions: None if not counted apart."""

    photos: int
    without_captions: int | None = 0


def find_shards(source: Path, split: str | None) -> Sequence[TarShard]:
    """List the shards of a source, sorted as its readers sort them."""
    if source.is_dir():
        root = source.absolute()
        paths = [path for path, _ in walk_files(root) if is_tar(path)]
    else:
        root = common_folder(source).absolute()
        paths = [path.absolute() for path in expand(source)]
        for path in paths:
            if not is_tar(path):
                raise DataError(path, None, "expected a tar: only tars are streamed")
    if not paths:
        raise DataError(source, None, "expected tars to stream, found none")
    return [TarShard(path, root, split) for path in paths]


def downloaded_photos(shard: TarShard) -> ShardCount | None:
    """Return the number of photos that img2dataset's ``00000_stats.json`` gives for a tar.

    None if it cannot be that of the split, or if the tar was cut short, which `count_shard`
    explains.
    """
    if shard.split is not None and shard.split != split_of_folder(PurePosixPath(shard.name)):
        return None
    try:
        stats = json.loads(shard.path.with_name(f"{shard.path.stem}_stats.json").read_bytes())
    except (OSError, ValueError):
        return None
    successes: object = stats.get("successes") if isinstance(stats, dict) else None
    if type(successes) is not int or successes < 0 or not _is_ended(shard.path):
        return None
    return ShardCount(successes, without_captions=None)


def count_shard(shard: TarShard, on_skip: OnSkip = log_skipped) -> ShardCount:
    """Count the photos of a shard by reading its headers and everything but the photos."""
    captioned = [bool(record.captions) for record in shard.records(on_skip)]
    photos = sum(captioned)
    return ShardCount(photos, len(captioned) - photos)


def _is_ended(tar: Path) -> bool:
    """Tell whether a tar has its end mark."""
    with readable(tar), tar.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        end = os.pread(file.fileno(), _END_MARK_BYTES, max(0, size - _END_MARK_BYTES))
    return end == bytes(_END_MARK_BYTES)


def count_shards(shards: Sequence[TarShard], cache: Path, progress: Progress) -> list[ShardCount]:
    """Count the photos of every tar; counts are cached as long as the tar does not change."""
    file = cache / f"{_key(shards)}.json"
    # Counts say nothing of what was skipped for them.
    known = {} if is_strict() else _load(file)
    log = SkipLog(shards[0].root)
    counts: list[ShardCount] = []
    read = 0
    saved_at = time.monotonic()
    progress.start(len(shards), "shards")
    for shard in shards:
        count = downloaded_photos(shard)
        if count is None:
            state = _state(shard)
            if known.get(shard.name, {}).get("state") != state:
                known[shard.name] = {"state": state, "count": count_shard(shard, log)._asdict()}
                read += 1
            count = ShardCount(**known[shard.name]["count"])
        counts.append(count)
        progress.advance()
        if read and time.monotonic() - saved_at > _SAVE_EVERY_S:
            write_json(file, known)
            saved_at, read = time.monotonic(), 0
    if read:
        write_json(file, known)
    log.end(sum(count.photos for count in counts))
    return counts


def _key(shards: Sequence[TarShard]) -> str:
    content = json.dumps([[str(shard.path), shard.split] for shard in shards])
    return hashlib.sha256(content.encode()).hexdigest()


def _load(file: Path) -> dict[str, dict[str, Any]]:
    try:
        return json.loads(file.read_bytes())
    except (OSError, ValueError):  # missing or damaged: counted again
        return {}


def _state(shard: TarShard) -> list[list[int] | None]:
    """Return size and time of the tar, and of the parquet that may hold its captions."""
    return [_stat(shard.path), _stat(shard.path.with_suffix(".parquet"))]


def _stat(path: Path) -> list[int] | None:
    with readable(path):
        try:
            state = path.stat()
        except FileNotFoundError:
            return None
    return [state.st_size, state.st_mtime_ns]
