"""The number format of a forward pass, and the scaled loss of the one that needs it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from aladin_training.parallel.numerics import Precision, loss_scaler, mixed_precision

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("precision", "expected", "scaled"),
    [
        ("float32", torch.float32, False),
        ("bfloat16", torch.bfloat16, False),
        ("float16", torch.float16, True),
    ],
)
def test_matrices_are_multiplied_in_the_format_that_was_asked_for(
    precision: Precision, expected: torch.dtype, scaled: bool
) -> None:
    layer = nn.Linear(4, 4)
    with mixed_precision(precision, CPU):
        found = layer(torch.ones(1, 4))
    assert found.dtype == expected
    assert layer.weight.dtype == torch.float32
    assert loss_scaler(precision, CPU).is_enabled() == scaled
