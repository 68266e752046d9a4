"""The number format that training computes in."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

Precision = Literal["auto", "float32", "bfloat16"]


def has_fast_bfloat16(device: torch.device) -> bool:
    """Tell whether the processor multiplies bfloat16 matrices faster than float32 ones."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("amx_bf16") or capabilities.get("avx512_bf16"))


def computing(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Return the context of a forward pass: autocast to bfloat16, or nothing.

    Args:
        precision: "auto" takes bfloat16 where the processor has instructions for it.
        device: that computes.
    """
    if precision == "bfloat16" or (precision == "auto" and has_fast_bfloat16(device)):
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return nullcontext()
