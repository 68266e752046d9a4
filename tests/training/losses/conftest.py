"""Batches of every size and kind that the losses are checked on."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from aladin_training.losses.negatives import negative_mask


@pytest.fixture(params=[(4, "diagonal"), (8, "image ids"), (17, "image ids")], ids=str)
def pairs(request: pytest.FixtureRequest) -> tuple[Tensor, Tensor]:
    """Float64 scores in (-1, 1) that ask for a gradient, and their negatives.

    Positives are higher on the whole but not everywhere: hinges on both sides of 0. Negatives are
    all but the diagonal, or all pairs of different images.
    """
    size, kind = request.param
    generator = torch.Generator().manual_seed(size)
    scores = 1.4 * torch.rand(size, size, generator=generator, dtype=torch.float64) - 0.7
    scores += 0.25 * torch.eye(size, dtype=torch.float64)
    # Of three images in four there is one pair, of the fourth there are two.
    ids = torch.arange(size) if kind == "diagonal" else torch.arange(size) % (3 * size // 4)
    return scores.requires_grad_(), negative_mask(ids)


@pytest.fixture
def teacher(pairs: tuple[Tensor, Tensor]) -> Tensor:
    """Scores of a tanh, some of them near its ends, where soft margins shrink."""
    size = len(pairs[0])
    generator = torch.Generator().manual_seed(100 + size)
    scores = 2 * torch.randn(size, size, generator=generator, dtype=torch.float64)
    return (scores + 2 * torch.eye(size, dtype=torch.float64)).tanh().requires_grad_()
