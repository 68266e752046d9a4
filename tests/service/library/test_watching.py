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
    """Stands in for `FolderSync`; a pass notes the files that there are, or raises an error."""

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


@pytest.mark.parametrize(
    ("full_pass_s", "poll_s"), [(60.0, 0.1), (0.05, 3600.0)], ids=["polled", "full passes"]
)
def test_without_events_changes_are_seen(
    folder: Path, passes: Passes, full_pass_s: float, poll_s: float
) -> None:
    settings = WatchSettings(burst_s=0.05, settle_s=0.0, full_pass_s=full_pass_s, poll_s=poll_s)
    with watched(folder, settings):
        passes.wait_for()
        (folder / "a.png").touch()
        passes.wait_for("a.png")
    assert (passes.forgotten > 0) is (full_pass_s < 1)


@pytest.mark.parametrize(
    "errors",
    [
        [IndexWriteError("index", "disk full"), MissingPhotosError("no photo")],
        [OSError(errno.ENOTCONN, "not connected") for _ in range(3)],
    ],
    ids=["foreseen errors", "a disconnected mount"],
)
def test_a_failed_pass_is_tried_again(
    folder: Path, passes: Passes, errors: list[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    passes.errors, count = errors.copy(), len(errors)
    with watched(folder) as watch:
        deadline = time.monotonic() + 20
        while len(passes.seen) <= count or watch.error is not None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        (folder / "a.png").touch()
        passes.wait_for("a.png")
    said = [record.getMessage() for record in caplog.records]
    if count == 3:
        assert ["not connected; tried again until it works" in message for message in said] == [
            True
        ]


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
    mtime_ns = time.time_ns()
    seen: list[bool] = []
    for at_s, size in ((0.0, 10), (0.9, 20), (1.5, 20), (2.0, 20)):
        now_s = at_s
        seen.append(settled(Path("a.png"), size, mtime_ns + size))
    assert seen == [False, False, False, True]
    assert settled(Path("old.png"), 10, mtime_ns - 10**12)
    # The clock of a server may be ahead.
    assert not settled(Path("b.png"), 10, mtime_ns + 30 * 10**9)


def test_file_systems_of_a_network_are_known_whatever_bytes_their_names_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = os.fsencode(os.path.realpath(tmp_path))
    lines = [
        b"/dev/sda1 / ext4 rw 0 0",
        b"server:/photos " + place + b"/my\\040photos nfs4 rw 0 0",
        b"tmpfs " + place + b"/my\\040photos/local tmpfs rw 0 0",
        b"server:/a " + place + "/Fotos\\040für\\040später nfs4 rw 0 0".encode(),
        b"server:/b " + place + b"/caf\xe9 cifs rw 0 0",
        b"tmpfs " + place + "/line\u2028end tmpfs rw 0 0".encode(),
    ]
    mounts = tmp_path / "mounts"
    mounts.write_bytes(b"\n".join(lines) + b"\n")
    monkeypatch.setattr(watching, "_MOUNTS", mounts)
    names = ["my photos/2020", "Fotos für später", os.fsdecode(b"caf\xe9") + "/2020"]
    assert all(is_remote(tmp_path / name) for name in names)
    assert not any(is_remote(tmp_path / name) for name in ("my photos/local", "", "rest"))


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
