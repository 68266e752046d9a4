"""The file that a command is to write at its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from aladin_network.errors import InputError
from aladin_network.files import check_folder_writable, check_writable


def test_a_file_that_can_be_written_is_not_touched(tmp_path: Path) -> None:
    check_writable("--plot", tmp_path / "new" / "folder" / "a.png")
    check_folder_writable(tmp_path / "new" / "folder")
    (tmp_path / "a.png").write_bytes(b"x")
    check_writable("--plot", tmp_path / "a.png")
    assert [path.name for path in tmp_path.rglob("*")] == ["a.png"]
    assert (tmp_path / "a.png").read_bytes() == b"x"


def test_a_file_that_cannot_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
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
