"""Thread counts hold inside the block only."""

from __future__ import annotations

import pytest
import torch

from aladin_training.parallel.threads import torch_threads


def test_the_count_is_given_back_even_after_an_error() -> None:
    before = torch.get_num_threads()
    with pytest.raises(RuntimeError), torch_threads(before + 1):
        assert torch.get_num_threads() == before + 1
        raise RuntimeError
    assert torch.get_num_threads() == before


def test_none_leaves_the_count_alone() -> None:
    before = torch.get_num_threads()
    with torch_threads(None):
        assert torch.get_num_threads() == before
