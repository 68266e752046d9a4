"""The map keeps neighbours near, and its figures are of the photos that are drawn."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.training.embedding_map import draw, map_embeddings


@pytest.fixture(scope="module")
def pairs() -> tuple[Tensor, Tensor, Tensor]:
    """Twelve photos at right angles, with two captions very near to each."""
    photos = torch.eye(12)
    owners = torch.arange(24) // 2
    noise = torch.randn(24, 12, generator=torch.Generator().manual_seed(0))
    return photos, F.normalize(photos[owners] + 0.02 * noise, dim=1), owners


def test_captions_that_are_near_their_photo_stay_near(pairs: tuple[Tensor, Tensor, Tensor]) -> None:
    found = map_embeddings(*pairs, perplexity=3)
    assert (found.photos.shape, found.captions.shape) == ((12, 2), (24, 2))
    assert found.r1 == 100
    assert found.r1_on_map > 80
    assert 0 <= found.divergence < 1


def test_captions_of_other_photos_are_not_found(pairs: tuple[Tensor, Tensor, Tensor]) -> None:
    photos, captions, owners = pairs
    found = map_embeddings(photos, captions, (owners + 1) % 12, perplexity=3)
    assert found.r1 == 0
    assert found.r1_on_map < 20


def test_the_picture_has_a_panel_a_network(
    pairs: tuple[Tensor, Tensor, Tensor], tmp_path: Path
) -> None:
    found = map_embeddings(*pairs)  # perplexity beyond what 36 points allow
    draw([("one", found), ("other", found)], pairs[2], tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
