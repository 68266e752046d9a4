"""Other people's files of tensors: what is read of them, and which tensors are taken."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest
import torch
from torch import Tensor

from aladin_network.conversion.tensors import (
    Left,
    MappedTensors,
    Rename,
    map_tensors,
    named_tensors,
    read_torch_file,
)
from aladin_network.errors import CheckpointError

RENAMES = [
    Rename(r"body\.(\d)\.(weight|bias)", r"net.layer\1.\2"),
    Rename(r"norm\.(weight|bias)", r"net.LayerNorm.\1"),
]
LEFT = [Left(r"net\.pooler\.(weight|bias)", "nothing reads it")]


def ours() -> dict[str, Tensor]:
    shapes = {"body.0.weight": (2, 3), "body.1.weight": (2, 3), "norm.weight": (3,), "head": (4,)}
    return {name: torch.zeros(shape) for name, shape in shapes.items()}


def theirs(**changes: Tensor | None) -> dict[str, Tensor]:
    tensors: dict[str, Tensor | None] = {
        "net.layer0.weight": torch.arange(6.0).view(2, 3),
        "net.layer1.weight": torch.arange(6.0, 12.0).view(2, 3),
        "net.LayerNorm.weight": torch.arange(3.0),
        "net.pooler.weight": torch.ones(2, 2),
    }
    tensors |= {name.replace("__", "."): value for name, value in changes.items()}
    return {name: value for name, value in tensors.items() if value is not None}


def mapped(**changes: Tensor | None) -> MappedTensors:
    return map_tensors(theirs(**changes), ours(), RENAMES, LEFT, "file")


def test_every_tensor_is_taken_left_or_new() -> None:
    result = mapped()
    expected = {
        "body.0.weight": "net.layer0.weight",
        "body.1.weight": "net.layer1.weight",
        "norm.weight": "net.LayerNorm.weight",
    }
    assert {each.target: each.source for each in result.report.taken} == expected
    for target, source in expected.items():
        assert torch.equal(result.weights[target], theirs()[source])
    assert result.report.left == [("net.pooler.weight", "nothing reads it", (2, 2))]
    assert result.report.new == ["head"]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"net__layer1__weight": None}, "file: missing tensors: net.layer1.weight$"),
        ({"net__extra": torch.zeros(1)}, "file: unknown tensors: net.extra$"),
        (
            {"net__layer1__weight": None, "net__layer1__wieght": torch.zeros(2, 3)},
            "file: missing tensors: net.layer1.weight; unknown tensors: net.layer1.wieght$",
        ),
        # A name that only begins or ends like one that may stay behind is not known.
        ({"net__pooler__weight_g": torch.zeros(1)}, "unknown tensors: net.pooler.weight_g$"),
        (
            {"net__layer0__weight": torch.zeros(3, 2)},
            r"file: tensor net.layer0.weight: expected shape \(2, 3\), got \(3, 2\)$",
        ),
        (
            {"net__layer0__weight": torch.zeros(2, 3, dtype=torch.int64)},
            "tensor net.layer0.weight: expected floating-point numbers, got torch.int64$",
        ),
        (
            {"net__layer0__weight": torch.full((2, 3), float("nan"))},
            "tensor net.layer0.weight: expected finite numbers",
        ),
        (
            {"net__LayerNorm__gamma": torch.zeros(3)},
            r"under their old and new names there are both \['net.LayerNorm.(weight|gamma)'\]",
        ),
    ],
)
def test_a_tensor_that_does_not_fit_is_named(
    changes: dict[str, Tensor | None], complaint: str
) -> None:
    with pytest.raises(CheckpointError, match=complaint):
        mapped(**changes)


def test_of_many_missing_tensors_some_are_named() -> None:
    expected = {f"body.{n}.weight": torch.zeros(1) for n in range(8)}
    first = ", ".join(f"net.layer{n}.weight" for n in range(5))
    with pytest.raises(CheckpointError, match=f"missing tensors: {first} and 3 more"):
        map_tensors({}, expected, RENAMES, LEFT, "file")


def test_half_precision_becomes_float32() -> None:
    half = torch.tensor([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]).half()
    weight = mapped(net__layer0__weight=half).weights["body.0.weight"]
    assert weight.dtype == torch.float32
    assert torch.equal(weight, half.float())


class Command:
    """Runs a command when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.marker}",)


@pytest.fixture(params=[True, False], ids=["today's format", "before torch 1.6"])
def zipped(request: pytest.FixtureRequest) -> bool:
    return request.param


def save(saved: object, folder: Path, zipped: bool) -> Path:
    torch.save(saved, folder / "file", _use_new_zipfile_serialization=zipped)
    return folder / "file"


def test_tensors_plain_values_and_classes_said_to_be_harmless_are_read(
    tmp_path: Path, zipped: bool
) -> None:
    options = argparse.Namespace(lengths=[50, 34], device=torch.device("cpu"))
    saved = {"model": {"weight": torch.arange(6.0).view(2, 3)}, "epoch": 3, "opt": options}
    file = save(saved, tmp_path, zipped)
    read = read_torch_file(file, harmless=[argparse.Namespace])
    assert isinstance(read, dict)
    assert torch.equal(read["model"]["weight"], saved["model"]["weight"])
    assert (read["epoch"], read["opt"]) == (3, options)
    with pytest.raises(CheckpointError, match=r"refused: it holds argparse\.Namespace"):
        read_torch_file(file)


@pytest.mark.parametrize("hidden", [False, True], ids=["plain", "in an allowed object"])
def test_a_file_that_would_run_a_command_is_refused(
    tmp_path: Path, zipped: bool, hidden: bool
) -> None:
    marker = tmp_path / "ran"
    evil: object = Command(marker)
    saved = {"weight": torch.zeros(2), "opt": argparse.Namespace(x=evil) if hidden else evil}
    with pytest.raises(CheckpointError, match=r"file: refused: it holds posix\.system"):
        read_torch_file(save(saved, tmp_path, zipped), harmless=[argparse.Namespace])
    assert not marker.exists()


@pytest.mark.parametrize(
    "content", [None, b"", b"hello world", b"PK\x03\x04", b"\x80\x02.", 0.1, 0.5, 0.9]
)
def test_a_file_that_is_no_checkpoint_or_is_cut_short_is_refused_in_one_line(
    tmp_path: Path, zipped: bool, content: bytes | float | None
) -> None:
    file = save({"w": torch.zeros(500)}, tmp_path, zipped)
    whole = file.read_bytes()
    if content is None:
        file.unlink()
    else:
        cut = whole[: int(content * len(whole))] if isinstance(content, float) else content
        file.write_bytes(cut)
    with pytest.raises(CheckpointError, match=r"^\S+/file: .+") as caught:
        read_torch_file(file)
    assert "\n" not in str(caught.value)


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
