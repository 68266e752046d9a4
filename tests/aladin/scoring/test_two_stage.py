"""Ranks of the two stages, against a sort of every query's items."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from aladin_network.scoring.fusion import DirectionFusion, Fusion
from aladin_network.scoring.metrics import Ranks
from aladin_network.scoring.two_stages import two_stage_ranks

FUSION = Fusion(
    text_to_image=DirectionFusion(weight=0.25, align_mean=1.0, align_std=2.0, match_std=0.5),
    image_to_text=DirectionFusion(weight=0.75, match_mean=0.5, match_std=2.0),
)


def slow_rank(match: Tensor, score: Tensor, right: Tensor, num_candidates: int | None) -> int:
    """Sort one query's items twice, wrong ones first among equals."""
    items = sorted(
        range(len(match)), key=lambda j: (-float(match[j]), bool(right[j]), -float(score[j]))
    )
    candidates, rest = items[:num_candidates], items[num_candidates or len(items) :]
    candidates.sort(key=lambda j: (-float(score[j]), bool(right[j])))
    return next(place for place, j in enumerate([*candidates, *rest]) if right[j])


def slow_ranks(
    match: Tensor, second: Tensor, image_of_text: Tensor, num_candidates: int | None
) -> Ranks:
    """Rank query by query."""
    own = torch.arange(match.shape[0]).unsqueeze(1) == image_of_text
    by_text = FUSION.text_to_image.combine(second, match)
    by_image = FUSION.image_to_text.combine(second, match)
    of_texts = [
        slow_rank(match[:, t], by_text[:, t], own[:, t], num_candidates)
        for t in range(match.shape[1])
    ]
    of_images = [
        slow_rank(match[i], by_image[i], own[i], num_candidates)
        for i in range(match.shape[0])
        if own[i].any()
    ]
    return Ranks(torch.tensor(of_texts), torch.tensor(of_images))


@pytest.mark.parametrize("levels", [2, 4, 10**6])
@pytest.mark.parametrize("num_candidates", [1, 3, 7, 300, None])
def test_equals_two_sorts_with_many_ties_and_with_none(
    levels: int, num_candidates: int | None
) -> None:
    generator = torch.Generator().manual_seed(levels + (num_candidates or 0))
    match, second = torch.randint(levels, (2, 9, 300), generator=generator).double() / levels
    image_of_text = torch.randint(8, (300,), generator=generator)  # none of the last image
    ranks = two_stage_ranks(match, second, FUSION, image_of_text, num_candidates)
    expected = slow_ranks(match, second, image_of_text, num_candidates)
    assert torch.equal(ranks.text_to_image, expected.text_to_image)
    assert torch.equal(ranks.image_to_text, expected.image_to_text)


@pytest.mark.parametrize("num_candidates", [2, None])
def test_scores_that_are_no_numbers_count_against_us(num_candidates: int | None) -> None:
    match = torch.full((3, 4), float("nan"))
    ranks = two_stage_ranks(match, match, Fusion(), torch.tensor([0, 0, 1, 2]), num_candidates)
    assert ranks.text_to_image.tolist() == [2] * 4
    assert ranks.image_to_text.tolist() == [2, 3, 3]
