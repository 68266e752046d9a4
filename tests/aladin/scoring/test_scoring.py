"""Late interaction against loops over single words and regions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from aladin_network.errors import ShapeError
from aladin_network.scoring import scores as scoring
from aladin_network.scoring.scores import (
    EncodedBatch,
    alignment_scores,
    matching_scores,
    maxsim,
    packed_maxsim,
    padded_maxsim,
    paired_alignment_scores,
    paired_matching_scores,
    paired_maxsim,
)

Operands = tuple[Tensor, Tensor, Tensor, Tensor]


def reference(words: Tensor, regions: Tensor, word_mask: Tensor, region_mask: Tensor) -> Tensor:
    scores = torch.zeros(words.shape[0], regions.shape[0], dtype=words.dtype)
    for text in range(words.shape[0]):
        for image in range(regions.shape[0]):
            for word in range(words.shape[1]):
                if not word_mask[text, word]:
                    continue
                cosines = [
                    float(words[text, word].detach() @ regions[image, region].detach())
                    for region in range(regions.shape[1])
                    if region_mask[image, region]
                ]
                scores[text, image] += max(cosines, default=0.0)
    return scores


@pytest.fixture
def operands() -> Operands:
    """Three texts of up to 5 words, four images of up to 6 regions; the last image has none."""
    generator = torch.Generator().manual_seed(0)
    words = F.normalize(torch.randn(3, 5, 4, generator=generator, dtype=torch.float64), dim=-1)
    regions = F.normalize(torch.randn(4, 6, 4, generator=generator, dtype=torch.float64), dim=-1)
    word_mask = torch.arange(5) < torch.tensor([[5], [2], [1]])
    region_mask = torch.arange(6) < torch.tensor([[6], [3], [1], [0]])
    return words, regions, word_mask, region_mask


@pytest.mark.parametrize("budget_bytes", [64, 2**20])
def test_padded_words_are_scored_and_trained_as_packed_ones(
    operands: Operands, budget_bytes: int
) -> None:
    """Both ways, of which training on a GPU takes the padded one, whatever stands in padding."""
    words, regions, word_mask, region_mask = operands
    poisoned = words.masked_fill(~word_mask.unsqueeze(-1), 9.0), regions
    weights = torch.linspace(-1, 1, 12, dtype=torch.float64).view(3, 4)
    found: list[tuple[Tensor, ...]] = []
    for score in (padded_maxsim, packed_maxsim):
        leaves = [each.clone().requires_grad_() for each in poisoned]
        scores = score(leaves[0], leaves[1], word_mask, region_mask, budget_bytes)
        (scores * weights).sum().backward()
        found.append((scores.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)))
    assert len(found[0]) == 3
    for padded, packed in zip(*found, strict=True):
        torch.testing.assert_close(padded, packed, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found[0][0], reference(*operands))


def test_images_without_a_single_region(operands: Operands) -> None:
    words, regions, word_mask, region_mask = operands
    nothing = regions[:, :0], region_mask[:, :0]
    assert torch.equal(maxsim(words, nothing[0], word_mask, nothing[1]), words.new_zeros(3, 4))
    pairs = paired_maxsim(words, nothing[0][:3], word_mask, nothing[1][:3])
    assert torch.equal(pairs, words.new_zeros(3))


@pytest.mark.parametrize("budget_bytes", [1, 500, 2000, 10**9])
def test_chunks_change_neither_scores_nor_gradients(operands: Operands, budget_bytes: int) -> None:
    words, regions, word_mask, region_mask = operands
    gradients: list[tuple[Tensor, Tensor]] = []
    scores: list[Tensor] = []
    for budget in (10**9, budget_bytes):
        leaves = words.clone().requires_grad_(), regions.clone().requires_grad_()
        score = maxsim(*leaves, word_mask, region_mask, budget)
        (score * torch.arange(12).view(3, 4)).sum().backward()
        assert leaves[0].grad is not None
        assert leaves[1].grad is not None
        scores.append(score.detach())
        gradients.append((leaves[0].grad, leaves[1].grad))
    torch.testing.assert_close(scores[1], scores[0])
    torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize(
    ("budget_bytes", "images_a_chunk"), [(1, 1), (383, 1), (384, 1), (767, 1), (768, 2), (10**9, 4)]
)
def test_similarity_blocks_fill_the_memory_budget(
    operands: Operands, monkeypatch: pytest.MonkeyPatch, budget_bytes: int, images_a_chunk: int
) -> None:
    # One image against the 8 real words: 8 x 6 regions x 8 bytes = 384 bytes.
    widths: list[int] = []

    def fill_padding(similarity: Tensor, mask: Tensor) -> Tensor:
        widths.append(mask.shape[0])
        return similarity.masked_fill(~mask, -torch.inf)

    monkeypatch.setattr(scoring, "fill_padding", fill_padding)
    words, regions, word_mask, region_mask = operands
    maxsim(words, regions, word_mask, region_mask, budget_bytes)
    assert max(widths) == images_a_chunk
    assert sum(widths) == 4


def test_gradient_agrees_with_finite_differences(operands: Operands) -> None:
    words, regions, word_mask, region_mask = operands
    leaves = words.requires_grad_(), regions.requires_grad_()
    assert torch.autograd.gradcheck(lambda w, r: maxsim(w, r, word_mask, region_mask), leaves)


@pytest.mark.parametrize("frozen", ["words", "regions"])
def test_one_frozen_side_leaves_the_gradient_of_the_other(operands: Operands, frozen: str) -> None:
    words, regions, word_mask, region_mask = operands
    whole = words.clone().requires_grad_(), regions.clone().requires_grad_()
    maxsim(whole[0], whole[1], word_mask, region_mask).sum().backward()
    half = words.requires_grad_(frozen != "words"), regions.requires_grad_(frozen != "regions")
    maxsim(half[0], half[1], word_mask, region_mask).sum().backward()
    moved, still = (1, 0) if frozen == "words" else (0, 1)
    torch.testing.assert_close(half[moved].grad, whole[moved].grad)
    assert half[still].grad is None


def test_bfloat16_tokens_are_summed_in_float32(operands: Operands) -> None:
    words, regions, word_mask, region_mask = operands
    scores = maxsim(words.bfloat16(), regions.bfloat16(), word_mask, region_mask)
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores.double(), maxsim(*operands), atol=0.05, rtol=0)


def test_autocast_computes_in_bfloat16_and_still_trains(operands: Operands) -> None:
    words, _, word_mask, _ = operands
    # Unit vectors as regions: a word's best one is its largest coordinate, in any precision.
    regions, region_mask = torch.eye(4).unsqueeze(0), torch.ones(1, 4, dtype=torch.bool)
    leaf = words.float().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = maxsim(leaf, regions, word_mask, region_mask)
    scores.sum().backward()
    assert scores.dtype == torch.float32
    expected = torch.zeros_like(leaf)
    for text, word in word_mask.nonzero().tolist():
        expected[text, word, words[text, word].argmax()] = 1.0
    assert leaf.grad is not None
    assert torch.equal(leaf.grad, expected)


@pytest.mark.parametrize(
    ("budget_bytes", "groups"),
    [(1, [1, 1, 1]), (479, [1, 1, 1]), (480, [2, 1]), (719, [2, 1]), (720, [3])],
)
def test_texts_are_grouped_so_that_one_image_fits_the_memory_budget(
    operands: Operands, monkeypatch: pytest.MonkeyPatch, budget_bytes: int, groups: list[int]
) -> None:
    # One image against one text of 5 padded words: 5 x 6 regions x 8 bytes = 240 bytes.
    sizes: list[int] = []

    def recorded(words: Tensor, *rest: Any) -> Tensor:
        sizes.append(words.shape[0])
        return maxsim(words, *rest)

    monkeypatch.setattr(scoring, "maxsim", recorded)
    words, regions, word_mask, region_mask = operands
    images = EncodedBatch(torch.ones(4, 1, dtype=torch.float64), regions, region_mask)
    texts = EncodedBatch(torch.ones(3, 1, dtype=torch.float64), words, word_mask)
    scores = alignment_scores(images, texts, memory_budget_bytes=budget_bytes)
    assert sizes == groups
    torch.testing.assert_close(scores, reference(*operands).T)  # images by texts


@pytest.fixture
def pairs(operands: Operands) -> Operands:
    """Four texts for the four images; the last text has no word, the last image no region."""
    words, regions, word_mask, region_mask = operands
    return (
        torch.cat([words, words[:1]]),
        regions,
        torch.cat([word_mask[1:], word_mask[:1], torch.zeros(1, 5, dtype=torch.bool)]),
        region_mask,
    )


def test_pairs_are_the_diagonal_of_all(pairs: Operands) -> None:
    found: list[tuple[Tensor, ...]] = []
    for paired in (False, True):
        leaves = [tokens.clone().requires_grad_() for tokens in pairs[:2]]
        if paired:
            scores = paired_maxsim(*leaves, *pairs[2:])
        else:
            scores = maxsim(*leaves, *pairs[2:]).diagonal()
        gradients = torch.autograd.grad((scores * torch.arange(1, 5)).sum(), leaves)
        found.append((scores.detach(), *gradients))
    torch.testing.assert_close(found[1], found[0])
    assert found[1][0][3] == 0


def test_pairs_under_autocast_are_rounded_as_all_are(pairs: Operands) -> None:
    words, regions, word_mask, region_mask = pairs
    single = words.float(), regions.float(), word_mask, region_mask
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = paired_maxsim(*single)
        expected = maxsim(*single).diagonal()
    assert scores.dtype == torch.float32
    # The products round their sums to bfloat16, each in its own order: one unit a word.
    torch.testing.assert_close(scores, expected, atol=0.02, rtol=0)


def test_paired_scores_of_encodings(pairs: Operands) -> None:
    words, regions, word_mask, region_mask = pairs
    generator = torch.Generator().manual_seed(5)
    vectors = F.normalize(torch.randn(2, 4, 3, generator=generator), dim=-1)
    images = EncodedBatch(vectors[0], regions, region_mask)
    texts = EncodedBatch(vectors[1], words, word_mask)
    align, match = paired_alignment_scores(images, texts), paired_matching_scores(images, texts)
    torch.testing.assert_close(matching_scores(images, texts), vectors[0] @ vectors[1].T)
    torch.testing.assert_close(align, alignment_scores(images, texts).diagonal())
    torch.testing.assert_close(match, matching_scores(images, texts).diagonal())
    for score in (paired_alignment_scores, paired_matching_scores):
        with pytest.raises(ShapeError, match="4 texts, one for each image, got 1"):
            score(images, texts.rows(slice(1)))
