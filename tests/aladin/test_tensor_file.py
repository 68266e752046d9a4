"""Safetensors files: permissions by the umask, errors with the system's reason."""

from __future__ import annotations

import os
import stat
from collections.abc import Generator
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError, safe_open

from aladin_network.checkpoint import read_tensors, write_tensors


@pytest.fixture(params=[0o022, 0o027, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Generator[int]:
    """A umask that holds for one test."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_permissions_follow_the_umask(umask: int, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    for _ in range(2):  # also where there is a file already
        write_tensors(path, {"a": torch.ones(3)})
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


def test_written_tensors_and_metadata_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    tensors = {"a": torch.arange(3), "b": torch.eye(2)}
    write_tensors(path, tensors, {"key": "value"})
    read = read_tensors(path)
    assert read.keys() == tensors.keys()
    assert all(torch.equal(read[name], tensors[name]) for name in tensors)
    with safe_open(path, framework="pt") as file:
        assert file.metadata() == {"key": "value"}


def test_a_file_that_is_missing_or_holds_no_tensors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_tensors(tmp_path / "none")
    (tmp_path / "text").write_text("no tensors")
    with pytest.raises(SafetensorError):
        read_tensors(tmp_path / "text")
