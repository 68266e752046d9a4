"""Random vectors of length 1."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F


def unit_vectors(count: int, dim: int = 16, seed: int = 0) -> NDArray[np.float32]:
    """Random directions, (count, dim); the same for the same numbers."""
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(count, dim, generator=generator), dim=1).numpy()
