"""Small random dual encoders, and photos for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from tests.dual_encoders import Family, SavedDualEncoder, save_dual_encoder


@pytest.fixture(scope="session")
def dual_encoder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Family], SavedDualEncoder]:
    """A random dual encoder of a family, saved once for all tests."""
    saved: dict[Family, SavedDualEncoder] = {}

    def of(family: Family) -> SavedDualEncoder:
        if family not in saved:
            folder = tmp_path_factory.mktemp("dual") / family
            saved[family] = save_dual_encoder(family, folder)
        return saved[family]

    return of


@pytest.fixture(scope="session")
def photos() -> list[Image.Image]:
    """Smooth random photos of several shapes."""
    rng = np.random.default_rng(5)
    sizes = [(96, 72), (72, 96), (40, 40), (130, 50)]
    coarse = [Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)) for _ in sizes]
    return [
        photo.resize(size, Image.Resampling.BICUBIC)
        for photo, size in zip(coarse, sizes, strict=True)
    ]
