"""The generations of an index on disk, the live one among them, and the changes of each."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from aladin_index.changes.database import changes_database, changes_folder
from aladin_index.changes.opening import SeenFiles, open_to_read
from aladin_index.format.disk import changes_lock
from aladin_index.format.layout import (
    CURRENT,
    generation_folder,
    live_generation,
    published_generations,
)
from aladin_index.format.manifest import Manifest, read_manifest
from aladin_network.errors import (
    ConfigError,
    IndexCorruptError,
    IndexMismatchError,
    SearchIndexError,
)
from aladin_network.files import atomic_file, make_folder
from aladin_network.types import TARGETS, Target

if TYPE_CHECKING:
    from aladin_index.generations.writer import GoingLive

T = TypeVar("T")


class PendingChanges(NamedTuple):
    """Changes of one collection that `aladin index compact` would merge.

    Attributes:
        added: Number of items that were added and still exist.
        removed: Number of items of the generation that were removed or replaced.
    """

    added: int
    removed: int


def pending_changes(root: Path, generation: int | None = None) -> dict[Target, PendingChanges]:
    """Count the changes of a generation by collection, without reading items.

    Args:
        root: Index folder.
        generation: Generation on disk, or None for the live one.

    Raises:
        IndexNotReadyError: If nothing was published yet.
        IndexCorruptError: If the changes or the manifest cannot be read.
    """
    if generation is None:
        generation = live_generation(root)
    manifest = read_manifest(generation_folder(root, generation))
    pending: dict[Target, PendingChanges] = {}
    for target in manifest.targets:
        entry = manifest.collection(target)
        assert entry is not None
        path = changes_database(root, generation, target)
        if not path.exists():
            pending[target] = PendingChanges(0, 0)
            continue
        try:
            with closing(open_to_read(path)) as connection:
                added, removed, of_added = connection.execute(
                    "SELECT (SELECT COUNT(*) FROM encodings), COUNT(*), "
                    "COUNT(*) FILTER (WHERE row >= ?) FROM removed",
                    (entry.count,),
                ).fetchone()
        except sqlite3.Error as error:
            raise IndexCorruptError(path, f"cannot be read ({error})") from error
        pending[target] = PendingChanges(added - of_added, removed - of_added)
    return pending


def changed_at_s(root: Path, manifest: Manifest) -> float | None:
    """Return when a generation became live or its items last changed, in seconds since 1970.

    None if the files are gone.
    """
    try:
        times_ns = [(root / CURRENT).stat().st_mtime_ns]
    except FileNotFoundError:
        return None
    for target in manifest.targets:
        seen = SeenFiles.of(changes_database(root, manifest.generation, target))
        times_ns += [file[1] for file in (seen.database, seen.ahead) if file is not None]
    return max(times_ns) / 1e9


def check_replaceable(root: Path, *, replace: bool) -> None:
    """Reject a folder that holds an index, unless that is to be replaced.

    Args:
        root: Folder that an index is to be written to.
        replace: Whether its live generation may be replaced by one with other items.

    Raises:
        ConfigError: If there is one, and it may not.
        IndexCorruptError: If it is damaged.
    """
    if replace or not (root / CURRENT).exists():
        return
    generation = live_generation(root)
    manifest = read_manifest(generation_folder(root, generation))
    changes = pending_changes(root, generation)
    counts: list[str] = []
    for target, pending in changes.items():
        entry = manifest.collection(target)
        assert entry is not None  # it has changes
        counts.append(f"{entry.count + pending.added - pending.removed} {target}")
    raise ConfigError(
        f"{root}: an index is here already, generation {generation} with {' and '.join(counts)}: "
        "choose another folder; or add to it by `aladin index add` or `aladin index sync`; or "
        "replace it (`aladin index build`, `import` or `merge` with --replace, in Python "
        "replace=True), after which `aladin index rollback` still returns to this generation"
    )


def earlier_generations(
    generation: int, existing: Collection[int], manifest_of: Callable[[int], Manifest]
) -> list[int]:
    """Return the generations that led to one, the nearest first, as far as they exist.

    Generations that were rolled back are not among them. What a damaged manifest replaced is taken
    to be the nearest existing generation before it.
    """
    found: list[int] = []
    while True:
        try:
            before = manifest_of(generation).replaces
        except (IndexCorruptError, IndexMismatchError):
            before = max((each for each in existing if each < generation), default=None)
        if before is None or before not in existing:
            return found
        found.append(before)
        generation = before


def generations_before(root: Path, generation: int) -> list[int]:
    """Return `earlier_generations` of a generation of an index of files."""
    return earlier_generations(
        generation,
        published_generations(root),
        lambda number: read_manifest(generation_folder(root, number)),
    )


def rolled_back_changes(root: Path) -> dict[int, dict[Target, PendingChanges]]:
    """Count the changes of the generations that were rolled back: none of them led to the live one.

    The next compaction that makes a generation removes them from the disk.

    Args:
        root: Index folder.

    Returns:
        By generation and collection; only what can be read.

    Raises:
        IndexNotReadyError: If nothing was published yet.
    """
    live = live_generation(root)
    found: dict[int, dict[Target, PendingChanges]] = {}
    earlier = generations_before(root, live)
    for number in published_generations(root):
        if number != live and number not in earlier:
            try:
                found[number] = pending_changes(root, number)
            except SearchIndexError:  # a damaged one is no reason to stop
                found[number] = {}
    return found


def describe_changes(changes: Mapping[Target, PendingChanges]) -> str:
    return (
        "; ".join(
            f"{each.added} {target} added, {each.removed} removed"
            for target, each in changes.items()
            if any(each)
        )
        or "none"
    )


def copy_changes(root: Path, from_generation: int, to_generation: int) -> None:
    """Copy the changes of a generation to another one with the same rows and token codecs.

    To be called while nobody can add or remove (`aladin_index.format.disk`), before the generation
    becomes live.
    """
    for target in TARGETS:
        source = changes_database(root, from_generation, target)
        if not source.exists():
            continue
        make_folder(changes_folder(root, to_generation))
        with (
            atomic_file(changes_database(root, to_generation, target)) as partial,
            closing(open_to_read(source)) as old,
            closing(sqlite3.connect(partial)) as new,
        ):
            old.backup(new)


def with_changes_of(root: Path, from_generation: int) -> GoingLive:
    """Make a new generation with the rows of an old one live together with its changes.

    The result is for `NewGeneration.going_live`.
    """

    @contextmanager
    def going_live(generation: int) -> Generator[None]:
        with changes_lock(root):
            copy_changes(root, from_generation, generation)
            yield

    return going_live
