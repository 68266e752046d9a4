"""One embedding an item."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from aladin_network.config import MatchingHeadConfig
from aladin_network.encoders.base import Features
from aladin_network.errors import ConfigError
from aladin_network.heads.matching import MatchingHead


@pytest.fixture
def batch() -> Features:
    """Three items of width 8 with 5, 3 and 2 real tokens; the first is the aggregate."""
    generator = torch.Generator().manual_seed(0)
    mask = torch.arange(5) < torch.tensor([[5], [3], [2]])
    content = mask.clone()
    content[:, 0] = False
    return Features(torch.randn(3, 5, 8, generator=generator), mask, content)


def head(width: int = 8, text_width: int = 8, **options: object) -> MatchingHead:
    torch.manual_seed(1)
    config = MatchingHeadConfig(**({"heads": 2} | options))  # type: ignore[arg-type]
    return MatchingHead(config, width, text_width).eval()


def test_the_paper_takes_element_0(batch: Features) -> None:
    embeddings = head(layers=0)(batch, "image")
    torch.testing.assert_close(embeddings, F.normalize(batch.states[:, 0], dim=-1))


def test_mean_and_maximum_are_over_the_content(batch: Features) -> None:
    for how in ("mean", "max"):
        embeddings = head(layers=0, pooling=(how,))(batch, "text")
        for row, length in enumerate((5, 3, 2)):
            tokens = batch.states[row, 1:length]
            pooled = tokens.mean(dim=0) if how == "mean" else tokens.amax(dim=0)
            torch.testing.assert_close(embeddings[row], F.normalize(pooled, dim=-1))


def test_several_poolings_are_projected_together(batch: Features) -> None:
    pooling = head(layers=0, pooling=("first", "mean", "max"), dim=4)
    rows = [
        torch.cat([states[0], states[1:length].mean(dim=0), states[1:length].amax(dim=0)])
        for states, length in zip(batch.states, (5, 3, 2), strict=True)
    ]
    expected = F.normalize(pooling.projections["text"](torch.stack(rows)), dim=-1)
    torch.testing.assert_close(pooling(batch, "text"), expected)
    assert pooling.dim == 4


def test_the_layers_are_shared_and_the_projections_are_not(batch: Features) -> None:
    shared = head(layers=2)
    assert torch.equal(shared(batch, "image"), shared(batch, "text"))
    projecting = head(layers=2, dim=8)
    assert not torch.allclose(projecting(batch, "image"), projecting(batch, "text"))


def test_the_layers_of_the_paper() -> None:
    layers = head(width=16, text_width=16, heads=4).stack.layers
    assert len(layers) == 2
    assert layers[0].feedforward[0].weight.shape == (16, 16)  # feed-forward as wide as the model


@pytest.mark.parametrize("pooling", [("first",), ("mean",), ("max",)])
def test_padding_changes_no_embedding(batch: Features, pooling: tuple[str, ...]) -> None:
    matching = head(layers=2, pooling=pooling)
    expected = matching(batch, "text")
    poisoned = batch._replace(states=batch.states.masked_fill(~batch.mask.unsqueeze(-1), 9.0))
    torch.testing.assert_close(matching(poisoned, "text"), expected, atol=1e-6, rtol=1e-5)
    for row, length in enumerate((5, 3, 2)):
        alone = Features(*(part[row : row + 1, :length] for part in batch))
        torch.testing.assert_close(matching(alone, "text")[0], expected[row], atol=1e-6, rtol=1e-5)


def test_embeddings_have_unit_length_even_under_autocast(batch: Features) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        embeddings = head(layers=1, dim=4)(batch, "image")
    assert embeddings.dtype == torch.float32
    torch.testing.assert_close(embeddings.norm(dim=-1), torch.ones(3))


def test_impossible_combinations() -> None:
    with pytest.raises(ConfigError, match=r"widths differ \(8 and 6\)"):
        head(8, 6)
    with pytest.raises(ConfigError, match=r"widths differ \(8 and 6\)"):
        head(8, 6, layers=0)
    assert head(8, 6, layers=0, dim=4).dim == 4
    with pytest.raises(ConfigError, match="2 poolings need a dim"):
        head(pooling=("first", "mean"))
    with pytest.raises(ConfigError, match="not a multiple of 3"):
        head(heads=3)
