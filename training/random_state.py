"""The random numbers of one computation, to be drawn a second time."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor


class RandomState(NamedTuple):
    """Where torch's generators stand.

    Attributes:
        cpu: of the processor.
        device: the GPU in use, or the processor.
        gpu: of the GPU, if one is in use.
    """

    cpu: Tensor
    device: torch.device
    gpu: Tensor | None

    @classmethod
    def now(cls, device: torch.device) -> RandomState:
        """Read the generators that a computation on `device` draws from."""
        on_gpu = device.type == "cuda"
        return cls(
            torch.get_rng_state(), device, torch.cuda.get_rng_state(device) if on_gpu else None
        )

    def restore(self) -> None:
        """Set the generators back."""
        torch.set_rng_state(self.cpu)
        if self.gpu is not None:
            torch.cuda.set_rng_state(self.gpu, self.device)


@contextmanager
def kept_random_state(device: torch.device) -> Generator[None]:
    """Leave the generators after the block as they were before it."""
    before = RandomState.now(device)
    try:
        yield
    finally:
        before.restore()
