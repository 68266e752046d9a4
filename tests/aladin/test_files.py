"""Files and folders that are whole or not there, even after a kill; files of tensors; outputs."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError, safe_open

from aladin_network.checkpoint import read_tensors, write_tensors
from aladin_network.errors import InputError
from aladin_network.files import (
    atomic_file,
    atomic_folder,
    check_folder_writable,
    check_writable,
    recover_folder,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_when_it_is_complete_and_stays_if_the_next_fails(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    with atomic_file(path) as partial:
        partial.write_text("whole")
        assert not path.exists()
        assert partial.parent == path.parent  # a rename across file systems is not atomic
    with pytest.raises(RuntimeError), atomic_file(path) as partial:
        partial.write_text("half")
        raise RuntimeError
    assert path.read_text() == "whole"
    assert names(path.parent) == ["file"]


def test_a_failed_folder_keeps_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    for content in ("first", "second"):
        with atomic_folder(path) as partial:
            (partial / "sub").mkdir()
            (partial / "sub" / content).write_text(content)
    assert names(path / "sub") == ["second"]
    with pytest.raises(RuntimeError), atomic_folder(path) as partial:
        (partial / "third").write_text("half")
        raise RuntimeError
    assert names(tmp_path) == ["folder"]
    assert names(path / "sub") == ["second"]


def test_a_folder_is_on_disk_before_it_takes_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[tuple[str, str]] = []
    fsync, rename = os.fsync, Path.rename

    def recorded_fsync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        events.append(("sync", names_of[status.st_ino]))
        fsync(descriptor)

    def recorded_rename(path: Path, target: Path) -> Path:
        events.append(("rename", target.name))
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(Path, "rename", recorded_rename)
    with atomic_folder(tmp_path / "folder") as partial:
        (partial / "sub" / "empty").mkdir(parents=True)
        (partial / "sub" / "deep").write_text("content")
        (partial / "file").write_text("content")
        found = [partial, *partial.rglob("*")]
        names_of = {each.stat().st_ino: str(each.relative_to(partial)) for each in found}
        names_of[tmp_path.stat().st_ino] = "parent"
    taken = events.index(("rename", "folder"))
    before = {name for kind, name in events[:taken] if kind == "sync"}
    assert before == {".", "file", "sub", "sub/deep", "sub/empty"}
    # The folder that lists the new name comes last: what it then points to is whole.
    assert events[taken + 1 :] == [("sync", "parent")]


REPLACE_AND_DIE = """
import os, signal
from pathlib import Path
from aladin_network.files import atomic_folder

renames = 0
rename = Path.rename

def counted(path, target):
    global renames
    if renames == {die_before}:
        os.kill(os.getpid(), signal.SIGKILL)
    renames += 1
    return rename(path, target)

Path.rename = counted
with atomic_folder(Path({path!r})) as partial:
    (partial / "content").write_text("new")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("die_before", "survivor"), [(0, "old"), (1, "old"), (2, "new")])
def test_a_kill_at_any_rename_loses_nothing(tmp_path: Path, die_before: int, survivor: str) -> None:
    path = tmp_path / "folder"
    with atomic_folder(path) as partial:
        (partial / "content").write_text("old")
    script = REPLACE_AND_DIE.format(die_before=die_before, path=str(path))
    done = subprocess.run([sys.executable, "-c", script], check=False)
    assert done.returncode == -signal.SIGKILL
    recover_folder(path)
    recover_folder(path)  # which leaves a healthy folder alone
    assert (path / "content").read_text() == survivor
    with atomic_folder(path) as partial:  # the next writer is not disturbed by the leftovers
        (partial / "content").write_text("next")
    assert (path / "content").read_text() == "next"
    assert not (tmp_path / ".folder.old").exists()


def test_written_tensors_are_read_and_their_permissions_follow_the_umask(tmp_path: Path) -> None:
    path, tensors = tmp_path / "a.safetensors", {"a": torch.arange(3), "b": torch.eye(2)}
    before = os.umask(0o027)
    try:
        for umask in (0o027, 0o027, 0o022):  # the second time there is a file already
            if os.umask(umask) != umask:
                path.unlink()
            write_tensors(path, tensors, {"key": "value"})
            assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    finally:
        os.umask(before)
    read = read_tensors(path)
    assert read.keys() == tensors.keys()
    assert all(torch.equal(read[name], tensors[name]) for name in tensors)
    with safe_open(path, framework="pt") as file:
        assert file.metadata() == {"key": "value"}
    with pytest.raises(FileNotFoundError):
        read_tensors(tmp_path / "none")
    (tmp_path / "text").write_text("no tensors")
    with pytest.raises(SafetensorError):
        read_tensors(tmp_path / "text")


def test_what_can_be_written_is_not_touched_and_what_cannot_is_named(tmp_path: Path) -> None:
    check_writable("--plot", tmp_path / "new" / "folder" / "a.png")
    check_folder_writable(tmp_path / "new" / "folder")
    (tmp_path / "file").write_bytes(b"x")
    check_writable("--plot", tmp_path / "file")
    assert [path.name for path in tmp_path.rglob("*")] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"x"
    (tmp_path / "a.png").mkdir()
    for path, reason in (
        (tmp_path / "a.png", "it is a folder"),
        (tmp_path / "file" / "a.png", f"{tmp_path / 'file'}: Not a directory"),
        (Path("/proc/a.png"), "/proc: "),
    ):
        with pytest.raises(InputError) as caught:
            check_writable("--plot", path)
        assert str(caught.value).startswith(f"--plot: {path} cannot be written ({reason}")
    for path in (tmp_path / "file", tmp_path / "file" / "out", Path("/proc/out")):
        with pytest.raises(InputError, match=f"cannot write to {path} "):
            check_folder_writable(path)
