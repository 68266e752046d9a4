"""Seeds for torch made from what they are for, so that no two purposes share their numbers."""

from __future__ import annotations

import hashlib

import torch


def seed_from(text: str) -> int:
    """Return a seed that is a function of `text` alone."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


def seed_torch(text: str, device: torch.device) -> None:
    """Let a computation on `device` draw random numbers that are a function of `text` alone."""
    seed = seed_from(text)
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
