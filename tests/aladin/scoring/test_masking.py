"""The mask convention: True is real, padding never wins."""

from __future__ import annotations

import torch

from aladin_network.scoring.masking import fill_padding, masked_mean


def test_padding_loses_every_max() -> None:
    scores = torch.tensor([[-5.0, -7.0, 9.0], [9.0, 9.0, 9.0]])
    mask = torch.tensor([[True, True, False], [False, False, False]])
    assert fill_padding(scores, mask).amax(dim=1).tolist() == [-5.0, float("-inf")]
    assert fill_padding(scores, mask, 0.0).amax(dim=1).tolist() == [0.0, 0.0]


def test_the_mask_broadcasts_over_leading_axes() -> None:
    scores = torch.ones(2, 3, 4)
    filled = fill_padding(scores, torch.tensor([[True, True, False, False]] * 3))
    assert torch.equal(filled.isinf(), torch.tensor([False, False, True, True]).expand(2, 3, 4))


def test_the_mean_is_over_real_tokens() -> None:
    states = torch.tensor([[[1.0], [3.0], [9.0]], [[9.0], [9.0], [9.0]]])
    mask = torch.tensor([[True, True, False], [False, False, False]])
    assert masked_mean(states, mask).tolist() == [[2.0], [0.0]]
