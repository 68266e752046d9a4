"""How many photos each tar of a stream holds, counted once and then remembered."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aladin.atomic import write_json
from aladin.errors import DataError
from aladin.progress import Progress
from training.streaming.shards import Shard, ShardCount, count_shard, downloaded_photos

# Counting terabytes takes long: a kill costs at most this much of it.
_SAVE_EVERY_S = 30.0


def count_shards(shards: Sequence[Shard], cache: Path, progress: Progress) -> list[ShardCount]:
    """Count the photos of every tar.

    Args:
        shards: of one source and split.
        cache: folder that remembers the tars that had to be read, as long as their sizes and
            times stay what they are.
        progress: told of shards.

    Raises:
        DataError: a tar is damaged, cut short or gone.
    """
    file = cache / f"{_key(shards)}.json"
    known = _load(file)
    counts: list[ShardCount] = []
    read = 0
    saved_at = time.monotonic()
    progress.start(len(shards), "shards")
    for shard in shards:
        count = downloaded_photos(shard)
        if count is None:
            state = _state(shard)
            if known.get(shard.name, {}).get("state") != state:
                known[shard.name] = {"state": state, "count": count_shard(shard)._asdict()}
                read += 1
            count = ShardCount(**known[shard.name]["count"])
        counts.append(count)
        progress.advance()
        if read and time.monotonic() - saved_at > _SAVE_EVERY_S:
            write_json(file, known)
            saved_at, read = time.monotonic(), 0
    if read:
        write_json(file, known)
    return counts


def _key(shards: Sequence[Shard]) -> str:
    content = json.dumps([[str(shard.path), shard.split] for shard in shards])
    return hashlib.sha256(content.encode()).hexdigest()


def _load(file: Path) -> dict[str, dict[str, Any]]:
    try:
        return json.loads(file.read_bytes())
    except (OSError, ValueError):  # none yet, or damaged: counted again
        return {}


def _state(shard: Shard) -> list[list[int] | None]:
    """Return size and time of the tar, and of the parquet that may hold its captions."""
    return [_stat(shard.path), _stat(shard.path.with_suffix(".parquet"))]


def _stat(path: Path) -> list[int] | None:
    try:
        state = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(path, None, error.strerror or "cannot be read") from error
    return [state.st_size, state.st_mtime_ns]
