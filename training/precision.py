"""The number format that training computes in."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

Precision = Literal["auto", "float32", "bfloat16", "float16"]


def has_fast_bfloat16(device: torch.device) -> bool:
    """Tell whether the processor multiplies bfloat16 matrices faster than float32 ones."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("amx_bf16") or capabilities.get("avx512_bf16"))


def computing(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
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
