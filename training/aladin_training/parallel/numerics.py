"""Number formats of training, and random numbers that can be reproduced.

A seed is a hash of its purpose, so that no two purposes share their random numbers.
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
    """Tell whether a device multiplies bfloat16 matrices faster than float32 ones."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("amx_bf16") or capabilities.get("avx512_bf16"))


def chosen_dtype(precision: Precision, device: torch.device) -> torch.dtype:
    """Return the number format of a forward pass."""
    if precision == "auto":
        return torch.bfloat16 if has_fast_bfloat16(device) else torch.float32
    dtype: torch.dtype = getattr(torch, precision)
    return dtype


def mixed_precision(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Return the context of a forward pass: autocast to half precision, or no change."""
    dtype = chosen_dtype(precision, device)
    return nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype=dtype)


def loss_scaler(precision: Precision, device: torch.device) -> torch.amp.GradScaler:
    """Return a scaler that keeps the gradients of a float16 pass from vanishing, else a no-op."""
    return torch.amp.GradScaler(device.type, enabled=precision == "float16")


class RandomState(NamedTuple):
    """State of torch's random number generators."""

    cpu: Tensor
    device: torch.device
    gpu: Tensor | None

    @classmethod
    def now(cls, device: torch.device) -> RandomState:
        """Read the state of the generators that a computation on `device` draws from."""
        on_gpu = device.type == "cuda"
        return cls(
            torch.get_rng_state(), device, torch.cuda.get_rng_state(device) if on_gpu else None
        )

    def restore(self) -> None:
        """Reset the generators to this state."""
        torch.set_rng_state(self.cpu)
        if self.gpu is not None:
            torch.cuda.set_rng_state(self.gpu, self.device)


@contextmanager
def preserved_random_state(device: torch.device) -> Generator[None]:
    """Restore the state of the generators after the block."""
    before = RandomState.now(device)
    try:
        yield
    finally:
        before.restore()


def seed_from(text: str) -> int:
    """Return a seed that is a function of `text` alone."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


def seed_torch(text: str, device: torch.device) -> None:
    """Make the random numbers of a computation on `device` a function of `text` alone."""
    seed = seed_from(text)
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
