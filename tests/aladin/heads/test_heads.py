"""Heads on one batch of features: which tokens they read, what they hand on, what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from aladin_network.config import AlignmentHeadConfig, MatchingHeadConfig
from aladin_network.encoders.base import Features
from aladin_network.errors import ConfigError
from aladin_network.heads.alignment import AlignmentHead
from aladin_network.heads.matching import MatchingHead

LENGTHS = (5, 3, 2)


@pytest.fixture
def batch() -> Features:
    """Three items of width 8 with 5, 3 and 2 real tokens; the first is the aggregate."""
    generator = torch.Generator().manual_seed(0)
    mask = torch.arange(5) < torch.tensor([[length] for length in LENGTHS])
    content = mask.clone()
    content[:, 0] = False
    return Features(torch.randn(3, 5, 8, generator=generator), mask, content)


def align(**options: Any) -> AlignmentHead:
    torch.manual_seed(1)
    return AlignmentHead(AlignmentHeadConfig(**options), 8, 8)


def match(width: int = 8, text_width: int = 8, **options: Any) -> MatchingHead:
    torch.manual_seed(1)
    return MatchingHead(MatchingHeadConfig(**({"heads": 2} | options)), width, text_width).eval()


def test_alignment_hands_on_the_content_at_unit_length(batch: Features) -> None:
    bare = align(dim=None)
    assert list(bare.parameters()) == []
    tokens, words = bare(batch, "text")
    assert words.tolist() == batch.content[:, 1:].tolist()
    torch.testing.assert_close(tokens, F.normalize(batch.states[:, 1:], dim=-1))
    plain, _ = align(dim=None, normalize=False)(batch, "text")
    assert torch.equal(plain, batch.states[:, 1:])


@pytest.mark.parametrize("autocast", [False, True])
def test_alignment_projects_each_modality_on_its_own(batch: Features, autocast: bool) -> None:
    head = align(dim=3)
    found: dict[str, Tensor] = {}
    for modality in ("image", "text"):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            found[modality], _ = head(batch, modality)
        expected = F.normalize(head.projections[modality](batch.states[:, 1:]), dim=-1)
        torch.testing.assert_close(found[modality], expected, atol=0.05 * autocast + 1e-6, rtol=0)
        assert found[modality].dtype == torch.float32
        torch.testing.assert_close(found[modality].norm(dim=-1), torch.ones(3, 4))
    assert not torch.allclose(found["image"], found["text"])
    assert head.dim == 3


def test_the_official_trim_also_drops_each_texts_last_word_piece(batch: Features) -> None:
    trimmed = align(dim=None, official_trim=True)
    assert trimmed(batch, "text")[1].sum(dim=1).tolist() == [3, 1, 0]
    assert trimmed(batch, "image")[1].sum(dim=1).tolist() == [4, 2, 1]
    nothing = batch._replace(content=torch.zeros_like(batch.content))
    assert not trimmed(nothing, "text")[1].any()


def test_zero_fill_gives_every_image_one_more_region(batch: Features) -> None:
    plain, zero = align(dim=3), align(dim=3, empty_fill="zero")
    zero.load_state_dict(plain.state_dict())
    (tokens, mask), (own, own_mask) = zero(batch, "image"), plain(batch, "image")
    assert torch.equal(tokens, torch.cat([own, torch.zeros(3, 1, 3)], dim=1))
    assert torch.equal(mask, torch.cat([own_mask, torch.ones(3, 1).bool()], dim=1))
    assert (plain.zero_tokens, zero.zero_tokens) == (0, 1)
    for ours, theirs in zip(zero(batch, "text"), plain(batch, "text"), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("pooling", [("first",), ("mean",), ("max",), ("first", "mean", "max")])
def test_matching_pools_element_0_or_the_content(batch: Features, pooling: tuple[str, ...]) -> None:
    head = match(layers=0, pooling=pooling, dim=4 if len(pooling) > 1 else None)
    rows: list[Tensor] = []
    for states, length in zip(batch.states, LENGTHS, strict=True):
        content = states[1:length]
        of = {"first": states[0], "mean": content.mean(dim=0), "max": content.amax(dim=0)}
        rows.append(torch.cat([of[each] for each in pooling]))
    expected = torch.stack(rows)
    if len(pooling) > 1:
        expected = head.projections["text"](expected)
    torch.testing.assert_close(head(batch, "text"), F.normalize(expected, dim=-1))


@pytest.mark.parametrize("pooling", [("first",), ("mean",), ("max",)])
def test_padding_and_other_items_change_no_embedding(
    batch: Features, pooling: tuple[str, ...]
) -> None:
    head = match(layers=2, pooling=pooling)
    expected = head(batch, "text")
    poisoned = batch._replace(states=batch.states.masked_fill(~batch.mask.unsqueeze(-1), 9.0))
    torch.testing.assert_close(head(poisoned, "text"), expected, atol=1e-6, rtol=1e-5)
    for row, length in enumerate(LENGTHS):
        alone = Features(*(part[row : row + 1, :length] for part in batch))
        torch.testing.assert_close(head(alone, "text")[0], expected[row], atol=1e-6, rtol=1e-5)


def test_matching_shares_its_layers_and_not_its_projections(batch: Features) -> None:
    shared = match(layers=2)
    assert torch.equal(shared(batch, "image"), shared(batch, "text"))
    projecting = match(layers=2, dim=8)
    assert not torch.allclose(projecting(batch, "image"), projecting(batch, "text"))
    of_paper = match(width=16, text_width=16, heads=4).stack.layers
    assert len(of_paper) == 2
    assert of_paper[0].feedforward[0].weight.shape == (16, 16)  # as wide as the model
    with torch.autocast("cpu", dtype=torch.bfloat16):
        embeddings = match(layers=1, dim=4)(batch, "image")
    assert embeddings.dtype == torch.float32
    torch.testing.assert_close(embeddings.norm(dim=-1), torch.ones(3))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"text_width": 6}, r"widths differ \(8 and 6\)"),
        ({"text_width": 6, "layers": 0}, r"widths differ \(8 and 6\)"),
        ({"pooling": ("first", "mean")}, "2 poolings need a dim"),
        ({"heads": 3}, "width 8 is not a multiple of 3"),
    ],
)
def test_impossible_heads_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        match(**options)


def test_towers_of_different_widths_are_joined_by_projections() -> None:
    assert match(8, 6, layers=0, dim=4).dim == 4
