"""Which tokens the alignment head hands on, and its options."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from aladin_network.config import AlignmentHeadConfig
from aladin_network.encoders.base import Features
from aladin_network.heads.alignment import AlignmentHead


@pytest.fixture
def texts() -> Features:
    """[CLS] w w w [SEP] and [CLS] w [SEP] [PAD] [PAD], width 6."""
    generator = torch.Generator().manual_seed(0)
    return Features(
        states=torch.randn(2, 5, 6, generator=generator),
        mask=torch.tensor([[True] * 5, [True, True, True, False, False]]),
        content=torch.tensor(
            [[False, True, True, True, False], [False, True, False, False, False]]
        ),
    )


def head(**options: object) -> AlignmentHead:
    torch.manual_seed(1)
    return AlignmentHead(AlignmentHeadConfig(**options), 6, 6)  # type: ignore[arg-type]


def test_cls_sep_and_padding_are_no_words(texts: Features) -> None:
    bare = head(dim=None)
    assert list(bare.parameters()) == []
    tokens, words = bare(texts, "text")
    assert words.tolist() == [[True, True, True, False], [True, False, False, False]]
    torch.testing.assert_close(tokens, F.normalize(texts.states[:, 1:], dim=-1))


def test_a_projection_for_each_modality(texts: Features) -> None:
    projecting = head(dim=3)
    for modality in ("image", "text"):
        tokens, _ = projecting(texts, modality)
        projection = projecting.projections[modality]
        expected = F.normalize(projection(texts.states[:, 1:]), dim=-1)
        torch.testing.assert_close(tokens, expected)
        torch.testing.assert_close(tokens.norm(dim=-1), torch.ones(2, 4))
    images, _ = projecting(texts, "image")
    assert not torch.allclose(images, projecting(texts, "text")[0])
    assert projecting.dim == 3


def test_the_plain_dot_product_keeps_lengths(texts: Features) -> None:
    tokens, _ = head(dim=None, normalize=False)(texts, "text")
    assert torch.equal(tokens, texts.states[:, 1:])


def test_the_official_trim_also_drops_each_texts_last_word_piece(texts: Features) -> None:
    _, words = head(dim=None, official_trim=True)(texts, "text")
    assert words.tolist() == [[True, True, False, False], [False] * 4]
    _, regions = head(dim=None, official_trim=True)(texts, "image")
    assert regions.sum() == texts.content.sum()


def test_the_official_trim_of_a_text_without_words() -> None:
    nothing = Features(
        torch.zeros(1, 3, 6), torch.ones(1, 3).bool(), torch.zeros(1, 3, dtype=torch.bool)
    )
    _, words = head(dim=None, official_trim=True)(nothing, "text")
    assert not words.any()


def test_zero_fill_gives_every_image_one_more_region(texts: Features) -> None:
    plain, zero = head(dim=3), head(dim=3, empty_fill="zero")
    zero.load_state_dict(plain.state_dict())
    tokens, mask = zero(texts, "image")
    own, own_mask = plain(texts, "image")
    assert torch.equal(tokens[:, :-1], own)
    assert torch.equal(mask[:, :-1], own_mask)
    assert torch.equal(tokens[:, -1], torch.zeros(2, 3))
    assert bool(mask[:, -1].all())
    assert (plain.zero_tokens, zero.zero_tokens) == (0, 1)
    for of_zero, of_plain in zip(zero(texts, "text"), plain(texts, "text"), strict=True):
        assert torch.equal(of_zero, of_plain)


def test_tokens_are_normalised_in_float32_under_autocast(texts: Features) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        tokens, _ = head(dim=3)(texts, "text")
    assert tokens.dtype == torch.float32
    torch.testing.assert_close(tokens.norm(dim=-1), torch.ones(2, 4))
