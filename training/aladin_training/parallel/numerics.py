"""The number format that training computes in.

The random numbers of one computation, to be drawn a second time.

Seeds for torch made from what they are for, so that no two purposes share their numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Precision = Literal["auto", "float32", "bfloat16", "float16"]


def has_fast_bfloat16(device: torch.device) -> bool:
    """Tell whether the processor multiplies bfloat16 matrices faster than float32 ones."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("amx_bf16") or capabilities.get("avx512_bf16"))


def mixed_precision(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Return the context of a forward pass: autocast to half precision, or nothing.

    Args:
        precision: "auto" takes bfloat16 where the processor has instructions for it. Gradients of
            a float16 pass need a scaled loss, see `loss_scaler`.
        device: that computes.
    """
    if precision == "float16":
        return torch.autocast(device.type, dtype=torch.float16)
    if precision == "bfloat16" or (precision == "auto" and has_fast_bfloat16(device)):
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return nullcontext()


def loss_scaler(precision: Precision, device: torch.device) -> torch.amp.GradScaler:
    """Return what keeps the gradients of a float16 pass from vanishing; else it does nothing."""
    return torch.amp.GradScaler(device.type, enabled=precision == "float16")


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
def preserved_random_state(device: torch.device) -> Generator[None]:
    """Leave the generators after the block as they were before it."""
    before = RandomState.now(device)
    try:
        yield
    finally:
        before.restore()


def seed_from(text: str) -> int:
    """Return a seed that is a function of `text` alone."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


def seed_torch(text: str, device: torch.device) -> None:
    """Let a computation on `device` draw random numbers that are a function of `text` alone."""
    seed = seed_from(text)
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
