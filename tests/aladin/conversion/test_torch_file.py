from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest
import torch

from aladin_network.conversion.tensors import named_tensors, read_torch_file
from aladin_network.errors import CheckpointError


class Command:
    """Runs a command when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.marker}",)


BOTH_FORMATS = pytest.mark.parametrize("zipped", [True, False], ids=["today's", "before 1.6"])


@BOTH_FORMATS
def test_reads_tensors_and_plain_values(tmp_path: Path, zipped: bool) -> None:
    saved = {"model": {"weight": torch.arange(6.0).view(2, 3)}, "epoch": 3, "name": "x"}
    torch.save(saved, tmp_path / "file", _use_new_zipfile_serialization=zipped)
    read = read_torch_file(tmp_path / "file")
    assert isinstance(read, dict)
    assert torch.equal(read["model"]["weight"], saved["model"]["weight"])
    assert (read["epoch"], read["name"]) == (3, "x")


@BOTH_FORMATS
@pytest.mark.parametrize("hidden", [False, True], ids=["plain", "in an allowed object"])
def test_a_file_that_would_run_a_command_is_refused(
    tmp_path: Path, zipped: bool, hidden: bool
) -> None:
    marker = tmp_path / "ran"
    evil: object = Command(marker)
    saved = {"weight": torch.zeros(2), "opt": argparse.Namespace(x=evil) if hidden else evil}
    torch.save(saved, tmp_path / "file", _use_new_zipfile_serialization=zipped)

    with pytest.raises(CheckpointError, match=r"file: refused: it holds posix\.system"):
        read_torch_file(tmp_path / "file", harmless=[argparse.Namespace])
    assert not marker.exists()


@BOTH_FORMATS
def test_a_class_is_read_only_where_it_is_said_to_be_harmless(tmp_path: Path, zipped: bool) -> None:
    options = argparse.Namespace(lengths=[50, 34], device=torch.device("cpu"))
    torch.save({"opt": options}, tmp_path / "file", _use_new_zipfile_serialization=zipped)

    assert read_torch_file(tmp_path / "file", harmless=[argparse.Namespace]) == {"opt": options}
    with pytest.raises(CheckpointError, match=r"refused: it holds argparse\.Namespace"):
        read_torch_file(tmp_path / "file")


@pytest.mark.parametrize("content", [None, b"", b"hello world", b"PK\x03\x04", b"\x80\x02."])
def test_a_file_that_is_no_checkpoint_is_refused_in_one_line(
    tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "file").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"^\S+/file: .+") as caught:
        read_torch_file(tmp_path / "file")
    assert "\n" not in str(caught.value)


@BOTH_FORMATS
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_file_that_is_cut_short_is_refused(tmp_path: Path, zipped: bool, share: float) -> None:
    torch.save({"w": torch.zeros(500)}, tmp_path / "file", _use_new_zipfile_serialization=zipped)
    whole = (tmp_path / "file").read_bytes()
    (tmp_path / "file").write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(CheckpointError, match="file: "):
        read_torch_file(tmp_path / "file")


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ([torch.zeros(1)], "found list"),
        ({}, "found none"),
        ({"a": 3}, "'a' is a int"),
        ({1: torch.zeros(1)}, "1 is a Tensor"),
    ],
)
def test_anything_but_a_state_dict_is_refused(value: object, complaint: str) -> None:
    with pytest.raises(CheckpointError, match=f"here: expected tensors by name, {complaint}"):
        named_tensors(value, "here")
