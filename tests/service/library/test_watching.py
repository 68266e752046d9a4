"""Watching of folders: passes soon after changes, and none lost."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from aladin_index.sync.apply import SyncReport
from aladin_index.sync.plan import MissingPhotosError
from aladin_network.errors import IndexWriteError
from aladin_service.library import watching
from aladin_service.library.folder_sync import FolderSettings
from aladin_service.library.watching import (
    FolderWatch,
    SettledFiles,
    WatchSettings,
    is_remote,
)

FAST = WatchSettings(burst_s=0.05, settle_s=0.0, full_pass_s=60.0)


class Passes:
    """Stands in for `FolderSync`; each pass only notes the files that there are.

    Attributes:
        seen: Names of the files of each pass.
        errors: Raised by the next passes, one each.
    """

    def __init__(self, folder: Path) -> None:
        self.seen: list[set[str]] = []
        self.errors: list[Exception] = []
        self.forgotten = 0
        self._folder = folder
        self._condition = threading.Condition()

    def run(self, *_: object, **__: object) -> SyncReport:
        with self._condition:
            names = {path.name for path in self._folder.rglob("*.png")}
            self.seen.append(names)
            self._condition.notify_all()
            if self.errors:
                raise self.errors.pop(0)
            return SyncReport()

    def forget_unusable(self) -> None:
        self.forgotten += 1

    def wait_for(self, *names: str) -> None:
        """Wait until a pass has seen just these files."""
        with self._condition:
            assert self._condition.wait_for(lambda: self.seen[-1:] == [set(names)], timeout=20)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    return folder


@pytest.fixture
def passes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Passes:
    made = Passes(folder)
    monkeypatch.setattr(watching, "_TICK_S", 0.02)
    monkeypatch.setattr(watching, "_QUIET_S", 0.01)
    monkeypatch.setattr(watching, "_FIRST_RETRY_S", 0.02)

    def sync(*args: object, **kwargs: object) -> Passes:
        del args, kwargs
        return made

    monkeypatch.setattr(watching, "FolderSync", sync)
    return made


@contextmanager
def watched(folder: Path, settings: WatchSettings = FAST) -> Generator[FolderWatch]:
    """Watch a folder in a thread until the end of the block."""
    stop = threading.Event()
    watch = FolderWatch(folder / "index", FolderSettings(folders=[folder]), settings)
    thread = threading.Thread(target=watch.run, args=(stop,))
    thread.start()
    try:
        yield watch
    finally:
        stop.set()
        thread.join(timeout=20)
        assert not thread.is_alive()


def test_changes_of_a_folder_are_seen(folder: Path, passes: Passes) -> None:
    with watched(folder):
        passes.wait_for()
        (folder / "a.png").touch()
        passes.wait_for("a.png")
        (folder / "deep").mkdir()
        (folder / "deep" / "b.png").touch()
        passes.wait_for("a.png", "b.png")
        (folder / "deep").rename(folder.parent / "elsewhere")
        passes.wait_for("a.png")
        (folder.parent / "elsewhere").rename(folder / "back")
        (folder / "a.png").replace(folder / "c.png")
        passes.wait_for("b.png", "c.png")
        (folder / "back" / "d.png").touch()  # the folder is watched although it was moved here
        passes.wait_for("b.png", "c.png", "d.png")


def test_files_of_no_interest_cause_no_pass(folder: Path, passes: Passes) -> None:
    with watched(folder):
        passes.wait_for()
        before = len(passes.seen)
        for name in (".hidden.png", "video.mp4", "index/generations/1/a.png", "@eaDir/x.png"):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x")
        (folder / "z.png").touch()
        passes.wait_for("z.png", "a.png", "x.png", ".hidden.png")
        assert len(passes.seen) <= before + 2  # new folders may cause one of their own


def test_files_are_polled_where_there_are_no_events(folder: Path, passes: Passes) -> None:
    settings = WatchSettings(burst_s=0.05, settle_s=0.0, full_pass_s=60.0, poll_s=0.1)
    with watched(folder, settings):
        passes.wait_for()
        (folder / "a.png").touch()
        passes.wait_for("a.png")


def test_without_any_event_a_pass_is_made_at_intervals(folder: Path, passes: Passes) -> None:
    settings = WatchSettings(burst_s=0.05, settle_s=0.0, full_pass_s=0.05, poll_s=3600)
    with watched(folder, settings):
        passes.wait_for()
        (folder / "a.png").touch()
        passes.wait_for("a.png")
    assert passes.forgotten > 0


def test_a_failed_pass_is_tried_again(folder: Path, passes: Passes) -> None:
    passes.errors = [IndexWriteError(folder, "disk full"), MissingPhotosError("no photo")]
    with watched(folder) as watch:
        deadline = time.monotonic() + 20
        while len(passes.seen) < 3 or watch.error is not None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert not passes.errors


def test_a_disconnected_mount_does_not_end_the_watch(
    folder: Path, passes: Passes, caplog: pytest.LogCaptureFixture
) -> None:
    passes.errors = [OSError(errno.ENOTCONN, "not connected") for _ in range(3)]
    with watched(folder) as watch:
        deadline = time.monotonic() + 20
        while len(passes.seen) < 4 or watch.error is not None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        (folder / "a.png").touch()
        passes.wait_for("a.png")
    [message] = [record.getMessage() for record in caplog.records]
    assert "not connected; tried again until it works" in message


def test_a_folder_that_is_mounted_again_is_followed(folder: Path, passes: Passes) -> None:
    with watched(folder):
        passes.wait_for()
        away = folder.rename(folder.parent / "away")
        before = len(passes.seen)
        (away / "a.png").touch()
        while len(passes.seen) == before:
            time.sleep(0.01)
        away.rename(folder)
        passes.wait_for("a.png")
        (folder / "b.png").touch()
        passes.wait_for("a.png", "b.png")


def test_a_file_that_grows_is_not_settled() -> None:
    now_s = 0.0
    settled = SettledFiles(1.0, clock=lambda: now_s)
    path, mtime_ns = Path("a.png"), time.time_ns()
    assert not settled(path, 10, mtime_ns)
    now_s = 0.9
    assert not settled(path, 20, mtime_ns + 1)
    now_s = 1.5
    assert not settled(path, 20, mtime_ns + 1)
    now_s = 2.0
    assert settled(path, 20, mtime_ns + 1)
    assert settled(Path("old.png"), 10, mtime_ns - 10**12)
    # The clock of a server may be ahead.
    assert not settled(Path("b.png"), 10, mtime_ns + 30 * 10**9)


def test_file_systems_of_a_network_are_known(tmp_path: Path) -> None:
    place = Path(os.path.realpath(tmp_path))
    mounts = [
        "/dev/sda1 / ext4 rw 0 0",
        f"server:/photos {place}/my\\040photos nfs4 rw 0 0",
        f"tmpfs {place}/my\\040photos/local tmpfs rw 0 0",
    ]
    assert is_remote(tmp_path / "my photos" / "2020", mounts)
    assert not is_remote(tmp_path / "my photos" / "local", mounts)
    assert not is_remote(tmp_path, mounts)


def test_mounts_with_names_of_any_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    umlauts, undecodable, rest = tmp_path / "Fotos für später", b"caf\xe9", tmp_path / "rest"
    place = Path(os.path.realpath(tmp_path))
    lines = [
        b"/dev/sda1 / ext4 rw 0 0",
        b"server:/a " + os.fsencode(place) + "/Fotos\\040für\\040später nfs4 rw 0 0".encode(),
        b"server:/b " + os.fsencode(place) + b"/" + undecodable + b" cifs rw 0 0",
        b"tmpfs " + os.fsencode(place) + "/line\u2028end tmpfs rw 0 0".encode(),
    ]
    mounts = tmp_path / "mounts"
    mounts.write_bytes(b"\n".join(lines) + b"\n")
    monkeypatch.setattr(watching, "_MOUNTS", mounts)
    assert is_remote(umlauts)
    assert is_remote(tmp_path / os.fsdecode(undecodable) / "2020")
    assert not is_remote(rest)


def test_a_limit_of_watched_folders_is_named_with_its_remedy(
    folder: Path, passes: Passes, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watching.watch

    def limited(*folders: Path, force_polling: bool, **options: Any) -> Any:
        if not force_polling:
            raise OSError('OS file watch limit reached. about ["/photos"]')
        return watch(*folders, force_polling=True, **options)

    monkeypatch.setattr(watching, "watch", limited)
    monkeypatch.setattr(watching, "_POLL_S", 0.1)
    with watched(folder):
        passes.wait_for()
        (folder / "a.png").touch()
        passes.wait_for("a.png")
    [message] = [record.getMessage() for record in caplog.records]
    assert "OS file watch limit reached" in message and "looked at every 0.1 s instead" in message
    assert "sudo sysctl fs.inotify.max_user_watches=" in message
