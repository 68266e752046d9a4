"""Watches folders of photos, and brings an index into their state soon after each change.

The events of the operating system say only that something has changed; what has changed is found by
a pass over the folders, which therefore misses nothing whatever becomes of single events. Passes
are also made at intervals, in case that events are lost.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from watchfiles import Change, watch

from aladin_index.sync.apply import SyncReport
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.detectors.base import Detector
from aladin_network.errors import AladinError
from aladin_network.photos.formats import PHOTO_SUFFIXES, UNREADABLE_SUFFIXES
from aladin_network.types import NullProgress, Progress
from aladin_service.library.folder_sync import FolderSettings, FolderSync
from aladin_training.data.folder_rules import FolderRules
from aladin_training.data.samples import DETAILS, TEXT
from aladin_training.data.sidecars import XMP

_LOG = logging.getLogger(__name__)

# Interval at which the loop looks whether a pass is due, a folder was mounted or it shall end.
_TICK_S = 0.25
# Quiet time after which a burst of events counts as ended.
_QUIET_S = 0.1
# A file whose last change is older than this was not written while it is looked at.
_OLD_S = 60.0
# After a pass that took long, the next one waits as long, but not longer than this.
_LONGEST_PAUSE_S = 2.0
_FIRST_RETRY_S, _LONGEST_RETRY_S = 1.0, 60.0
_POLL_S = 10.0
# Photos that a pass encodes at most: meanwhile others may be moved or removed.
_MOST_ENCODED = 1024
# File systems whose other users cause no events on this machine.
_REMOTE = frozenset(
    (
        *("9p", "afs", "ceph", "cifs", "ncpfs", "nfs", "nfs4", "smb3", "smbfs"),
        *("vboxsf", "virtiofs", "vmhgfs", "fuse.grpcfuse"),
        *("fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
    )
)
# Beginning of the limit's error as watchfiles tells it; errno is that of a full disk.
_WATCH_LIMITS = ("OS file watch limit reached", "No space left on device", "Too many open files")
_REMEDY = (
    "; the system's limit of watched folders is reached, raise it by `sudo sysctl"
    " fs.inotify.max_user_watches=1048576 fs.inotify.max_user_instances=1024`"
)
_MOUNTS = Path("/proc/self/mounts")
_OCTAL = re.compile(r"\\([0-7]{3})")
_SUFFIXES = frozenset({*PHOTO_SUFFIXES, *UNREADABLE_SUFFIXES, TEXT, DETAILS, XMP})


@dataclass(frozen=True, kw_only=True)
class WatchSettings:
    """How folders are watched.

    Attributes:
        burst_s: Longest time in seconds for which events are collected before a pass.
        settle_s: Time in seconds for which a new file must not change before it is read.
        full_pass_s: Longest time in seconds between two passes.
        poll_s: Interval in seconds at which the files are looked at, instead of waiting for events,
            or None for events; file systems of a network are polled every 10 s anyway.
    """

    burst_s: float = 1.0
    settle_s: float = 1.0
    full_pass_s: float = 600.0
    poll_s: float | None = None


class SettledFiles:
    """Tells files that are complete from those that may still be growing.

    The clock of a file system may differ from this machine's. Unless a file is old, it is complete
    if two looks at it, some time apart, find the same size and time.
    """

    def __init__(self, settle_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Start without having seen any file."""
        self._settle_s = settle_s
        self._clock = clock
        self._seen: dict[Path, tuple[int, int, float]] = {}

    def __call__(self, path: Path, size: int, mtime_ns: int) -> bool:
        """Whether a file that has this size and time now is complete."""
        if abs(time.time() - mtime_ns / 1e9) > _OLD_S:
            self._seen.pop(path, None)
            return True
        now_s = self._clock()
        before = self._seen.get(path)
        if before is None or before[:2] != (size, mtime_ns):
            before = self._seen[path] = (size, mtime_ns, now_s)
        return now_s - before[2] >= self._settle_s


class FolderWatch:
    """Keeps an index in the state of folders until it is stopped; for one thread.

    Attributes:
        error: Why the last pass failed, or None if it did not.
    """

    def __init__(
        self,
        index: Path,
        folders: FolderSettings,
        settings: WatchSettings | None = None,
        *,
        checkpoint: Checkpoint | None = None,
        detector: Detector | None = None,
        on_pass: Callable[[SyncReport], None] = lambda report: None,  # noqa: ARG005
        show_progress: Callable[[], AbstractContextManager[Progress]] = (
            lambda: nullcontext(NullProgress())
        ),
    ) -> None:
        """Store the arguments; nothing is opened yet."""
        self.error: str | None = None
        self._index = Path(os.path.realpath(index))
        self._folders = [folder.absolute() for folder in folders.folders]
        self._exclude = folders.exclude
        self._settings = settings or WatchSettings()
        self._on_pass = on_pass
        self._show_progress = show_progress
        self._sync = FolderSync(
            index,
            replace(folders, most_encoded=folders.most_encoded or _MOST_ENCODED),
            checkpoint=checkpoint,
            detector=detector,
            is_settled=SettledFiles(self._settings.settle_s),
        )
        self._next_s = self._earliest_s = time.monotonic()
        self._full_s = time.monotonic()
        self._retry_s = _FIRST_RETRY_S
        self._must_poll = False

    def run(self, stop: threading.Event) -> None:
        """Watch until `stop` is set; a pass ends after the batch that it is encoding then.

        A folder that is missing, a full disk and the like are logged once, and tried again.
        """
        while not stop.is_set():
            places = self._places()
            present = [folder for folder, place in places.items() if place is not None]
            if not present:
                self._pass_if_due(stop)
                stop.wait(_TICK_S)
                continue
            polls, every_s = self._polling(present)
            # What changed before the watch began is found by a pass that follows its beginning.
            self._next_s = time.monotonic()
            try:
                events = watch(
                    *present,
                    watch_filter=self._matters,
                    debounce=round(1000 * self._settings.burst_s),
                    step=round(1000 * _QUIET_S),
                    stop_event=stop,
                    rust_timeout=round(1000 * _TICK_S),
                    yield_on_timeout=True,
                    force_polling=polls,
                    poll_delay_ms=round(1000 * every_s),
                    ignore_permission_denied=True,
                )
                self._follow(events, places, stop)
            except (OSError, RuntimeError) as error:
                if not polls:
                    _LOG.warning(
                        "%s; the folders are looked at every %g s instead%s",
                        error,
                        _POLL_S,
                        _REMEDY if _is_watch_limit(error) else "",
                    )
                    self._must_poll = True
                elif self._places() == places:
                    raise

    def _follow(
        self,
        events: Iterable[Collection[object]],
        places: Mapping[Path, tuple[int, int] | None],
        stop: threading.Event,
    ) -> None:
        """Make the passes that are due, until a folder is mounted, unmounted or replaced."""
        for changes in events:
            if changes:
                self._next_s = min(self._next_s, max(time.monotonic(), self._earliest_s))
            self._pass_if_due(stop)
            if self._places() != places:
                self._next_s = time.monotonic()
                return

    def _pass_if_due(self, stop: threading.Event) -> None:
        started_s = time.monotonic()
        if started_s < self._next_s or stop.is_set():
            return
        settings = self._settings
        if started_s - self._full_s >= settings.full_pass_s:
            self._full_s = started_s
            self._sync.forget_unusable()
        try:
            with self._show_progress() as progress:
                report = self._sync.run(progress, is_stopped=stop.is_set)
        except (AladinError, OSError) as error:  # OSError: a mount was disconnected
            if str(error) != self.error:
                _LOG.warning("%s; tried again until it works", error)
            self.error = str(error)
            self._next_s = time.monotonic() + self._retry_s
            self._retry_s = min(2 * self._retry_s, _LONGEST_RETRY_S)
            return
        self.error, self._retry_s = None, _FIRST_RETRY_S
        now_s = time.monotonic()
        self._earliest_s = now_s + min(now_s - started_s, _LONGEST_PAUSE_S)
        self._next_s = now_s + settings.full_pass_s
        if report.waiting:
            self._next_s = now_s + settings.settle_s
        if report.remaining:
            self._next_s = now_s
        self._on_pass(report)

    def _places(self) -> dict[Path, tuple[int, int] | None]:
        """Return the identity of each folder, which a mount changes, or None for a missing one."""
        places: dict[Path, tuple[int, int] | None] = {}
        for folder in self._folders:
            try:
                state = folder.stat()
            except OSError:
                places[folder] = None
            else:
                is_folder = stat.S_ISDIR(state.st_mode)
                places[folder] = (state.st_dev, state.st_ino) if is_folder else None
        return places

    def _polling(self, folders: Sequence[Path]) -> tuple[bool, float]:
        """Return whether to look at the files at intervals, and the interval in seconds."""
        if self._settings.poll_s is not None:
            return True, self._settings.poll_s
        return self._must_poll or any(map(is_remote, folders)), _POLL_S

    def _matters(self, change: Change, name: str) -> bool:
        """Whether an event may concern a photo."""
        del change
        path = Path(name)
        if path.is_relative_to(self._index):
            return False
        for folder in self._folders:
            # Events name the real path of a folder that is reached by a link.
            for root in (folder, Path(os.path.realpath(folder))):
                if path.is_relative_to(root):
                    inside = PurePosixPath(path.relative_to(root).as_posix())
                    if self._is_excluded(inside):
                        return False
        # `Path.is_file` raises on a disconnected mount.
        return path.suffix.lower() in _SUFFIXES or not os.path.isfile(path)  # noqa: PTH113

    def _is_excluded(self, inside: PurePosixPath) -> bool:
        parents = [parent for parent in inside.parents if parent.name]
        rules = FolderRules(self._exclude)  # a new one, since it counts
        return any(rules.leaves_out(part) for part in (*parents, inside) if part.name)


def _is_watch_limit(error: Exception) -> bool:
    return any(text in str(error) for text in _WATCH_LIMITS)


def is_remote(folder: Path) -> bool:
    """Whether a folder is on a file system of a network, or shared with a host."""
    try:
        # Names may have any bytes, even the line separators of Unicode.
        mounts = os.fsdecode(_MOUNTS.read_bytes()).split("\n")[:-1]
    except OSError:
        return False
    place = Path(os.path.realpath(folder))
    longest, kind = -1, ""
    for line in mounts:
        _, point, fs_type, *_ = line.split(" ")
        # Blanks and backslashes in names are written as octal numbers.
        mounted = Path(_OCTAL.sub(lambda found: chr(int(found[1], 8)), point))
        if place.is_relative_to(mounted) and len(mounted.parts) >= longest:
            longest, kind = len(mounted.parts), fs_type
    return kind in _REMOTE
