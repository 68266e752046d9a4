"""Memory of a piece of work, counted by hand."""

from __future__ import annotations

import pytest
import torch

from aladin_training.comparison.peak_memory import peak_bytes

CPU = torch.device("cpu")
KB = 4 * 256  # of 256 float32


def test_what_is_released_can_be_used_again() -> None:
    def work() -> None:
        first = torch.ones(256)
        second = first + first
        del first
        third = torch.cat([second, second])  # 1 + 2 are held
        assert third.sum() == 1024

    assert peak_bytes(work, CPU) == pytest.approx(3 * KB, abs=64)  # and a sum or two


def test_what_autograd_keeps_counts() -> None:
    values = torch.ones(256, requires_grad=True)

    def work() -> None:
        (values.detach() * values).exp().square().sum().backward()

    # The product is released once its exponential is there, which is kept, like its square; then
    # come the gradients.
    most = peak_bytes(work, CPU)
    assert 3 * KB <= most <= 5 * KB
    assert values.grad is not None


def test_memory_of_before_is_not_counted() -> None:
    held = torch.ones(10_000)
    assert peak_bytes(lambda: held.sum(), CPU) < KB
