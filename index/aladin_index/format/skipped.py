"""What an index lacks of its sources, and why: kept for those who look at it later.

INDEX/followed.json   of an index that follows folders: what the last pass left out

Without that file, it is what the build of the live generation skipped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import ClassVar, NamedTuple

from pydantic import ConfigDict

from aladin_index.facts import SkippedReason, SkippedSummary
from aladin_index.format.layout import SKIPPED, generation_folder, parse_versioned
from aladin_index.format.manifest import Manifest
from aladin_network.config import STRICT, dump_config
from aladin_network.errors import IndexCorruptError, IndexMismatchError, InputError
from aladin_network.files import write_json
from aladin_network.types import Target

FOLLOWED = "followed.json"
SCHEMA_VERSION = 1


class SkippedItem(NamedTuple):
    """An item that cannot be used.

    Attributes:
        id: ID assigned by the user.
        reason: Reason in words.
    """

    id: str
    reason: str

    def refused(self) -> InputError:
        """Return the error where the first item that cannot be used ends a job."""
        return InputError(f"{self.id}: {self.reason}")


def read_skipped(folder: Path) -> list[SkippedItem]:
    """Read the skipped items of one collection of a generation, in the order of the input."""
    path = folder / SKIPPED
    try:
        lines = json.loads(path.read_text(encoding="utf-8"))
        return [SkippedItem(str(item_id), str(reason)) for item_id, reason in lines]
    except OSError as error:
        raise IndexCorruptError(path, f"cannot be read ({error.strerror})") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise IndexCorruptError(path, "not a list of ids and reasons") from error


@dataclass(frozen=True, kw_only=True)
class FollowRecord:
    """State of followed folders after a pass.

    Attributes:
        schema_version: Version of the file.
        skipped: Id and reason of each file that looks like a photo and cannot be used.
        other_files: Number of files that are no photos, by kind.
        stopped: Why the folders are not followed any more, or None.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    schema_version: int = SCHEMA_VERSION
    skipped: list[list[str]] = field(default_factory=list[list[str]])
    other_files: dict[str, int] = field(default_factory=dict[str, int])
    stopped: str | None = None


def by_reason(
    items: Iterable[SkippedItem], most_groups: int = 20, most_names: int = 20
) -> list[SkippedReason]:
    """Group what is left out by reason, the most frequent first."""
    names: dict[str, list[str]] = {}
    for item in items:
        names.setdefault(item.reason, []).append(item.id)
    groups = [
        SkippedReason(reason=reason, count=len(ids), names=ids[:most_names])
        for reason, ids in names.items()
    ]
    return sorted(groups, key=lambda group: -group.count)[:most_groups]


def write_follow_record(
    root: Path, skipped: Iterable[SkippedItem], other_files: Mapping[str, int]
) -> None:
    """Record what a pass over followed folders left out.

    Raises:
        OSError: If the index cannot be written.
    """
    record = FollowRecord(skipped=[list(each) for each in skipped], other_files={**other_files})
    if read_follow_record(root) != record:
        write_json(root / FOLLOWED, dump_config(record))


def record_stop(root: Path, reason: str) -> None:
    """Record that the folders are not followed any more, until the next pass.

    Raises:
        OSError: If the index cannot be written.
    """
    record = read_follow_record(root) or FollowRecord()
    write_json(root / FOLLOWED, asdict(replace(record, stopped=reason)))


def read_follow_record(root: Path) -> FollowRecord | None:
    """Return the record of the last pass, or None if there is none that can be read."""
    path = root / FOLLOWED
    with suppress(OSError, IndexCorruptError, IndexMismatchError):
        return parse_versioned(FollowRecord, path.read_bytes(), path, SCHEMA_VERSION, "no record")
    return None


def skipped_of(root: Path, generation: int, target: Target) -> list[SkippedItem]:
    """Return what an index lacks of one kind: by the last pass, else by the build."""
    record = read_follow_record(root) if target == "images" else None
    if record is None:
        return read_skipped(generation_folder(root, generation) / target)
    return [SkippedItem(*each) for each in record.skipped]


def read_skipped_summary(root: Path, manifest: Manifest) -> SkippedSummary:
    """Return what an index in files lacks; a list of a build that is damaged counts as empty."""
    items: list[SkippedItem] = []
    for target in manifest.targets:
        with suppress(IndexCorruptError):  # `aladin index verify` reports it
            items += skipped_of(root, manifest.generation, target)
    record = read_follow_record(root) or FollowRecord()
    return SkippedSummary(
        total=len(items),
        reasons=by_reason(items),
        other_files=record.other_files,
        not_followed=record.stopped,
    )
