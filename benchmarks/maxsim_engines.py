"""Ways to score one text against photos that one can install, each at its best.

All take photos of one length, with which they are fastest, and return a score a photo.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Score = Callable[[Any, Any], Any]


def torch_matmul(words: Tensor, photos: Tensor) -> Tensor:
    """One product of all regions with all words, regions on the left: the fastest order here.

    Args:
        words: (words, dim) float32 or bfloat16.
        photos: (photos, regions, dim) of the same dtype.
    """
    count, regions, dim = photos.shape
    similarity = photos.view(-1, dim) @ words.T  # (photos * regions, words)
    return similarity.view(count, regions, -1).amax(dim=1).sum(dim=1)


def torch_int8(words: tuple[Tensor, Tensor], photos: tuple[Tensor, Tensor]) -> Tensor:
    """The same on int8 with one scale a token, words too; `torch._int_mm` is not a public name.

    Args:
        words: (words, dim) int8 and (words,) scales.
        photos: (photos, regions, dim) int8 and (photos, regions) scales.
    """
    values, scales = photos
    count, regions, dim = values.shape
    products = torch._int_mm(values.view(-1, dim), words[0].T)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
    similarity = products.view(count, regions, -1) * scales.unsqueeze(2)
    return (similarity.amax(dim=1) * words[1]).sum(dim=1)


def numpy_matmul(words: NDArray[np.float32], photos: NDArray[np.float32]) -> NDArray[np.float32]:
    """The same in NumPy.

    Args:
        words: (words, dim).
        photos: (photos, regions, dim).
    """
    count, regions, dim = photos.shape
    similarity = photos.reshape(-1, dim) @ words.T
    scores: NDArray[np.float32] = similarity.reshape(count, regions, -1).max(axis=1).sum(axis=1)
    return scores


def maxsim_cpu() -> Score | None:
    """Return the PyPI package maxsim-cpu's function, of NumPy arrays; None: not installed."""
    try:
        module = importlib.import_module("maxsim_cpu")
    except ImportError:
        print("maxsim-cpu is not installed: pip install -e '.[bench]'", file=sys.stderr)
        return None
    score: Score = module.maxsim_scores
    return score
