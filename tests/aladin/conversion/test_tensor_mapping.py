from __future__ import annotations

import pytest
import torch
from torch import Tensor

from aladin_network.conversion.tensors import Left, MappedTensors, Rename, map_tensors
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
