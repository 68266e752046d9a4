"""The fusion of the two scores."""

from __future__ import annotations

import pytest
import torch

from aladin_network.scoring.fusion import DirectionFusion, Fusion
from aladin_network.scoring.metrics import retrieval_metrics
from aladin_network.scoring.two_stages import fit_fusion

Noisy = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
FUSION = DirectionFusion(weight=0.25, align_mean=4.0, align_std=2.0, match_mean=0.3, match_std=0.1)


def test_the_weighted_sum_of_standardised_scores() -> None:
    align, match = torch.tensor([6.0, 4.0]), torch.tensor([0.3, 0.5])
    assert FUSION.combine(align, match).tolist() == pytest.approx([0.25, 1.5])
    assert FUSION.combine(align, match, weight=0.5).tolist() == pytest.approx([0.5, 1.0])
    assert FUSION.combine(align, match, weight=0.0).tolist() == pytest.approx([0.0, 2.0])
    assert FUSION.combine(align, match, weight=1.0) is align
    assert Fusion().of("text_to_image").combine(align, match) is align  # the papers' rule


@pytest.fixture(scope="module")
def noisy() -> Noisy:
    """Two scores of 60 images and 180 texts that err independently."""
    generator = torch.Generator().manual_seed(0)
    image_of_text = torch.arange(60).repeat_interleave(3)
    right = (torch.arange(60).unsqueeze(1) == image_of_text).float()
    align = 5 + 3 * (right + 0.45 * torch.randn(60, 180, generator=generator))
    match = 0.2 + 0.1 * (right + 0.45 * torch.randn(60, 180, generator=generator))
    return align, match, image_of_text


def test_fitting_two_equally_good_scores_weighs_both(noisy: Noisy) -> None:
    align, match, image_of_text = noisy
    fusion = fit_fusion(align, match, image_of_text)
    assert 0.2 < fusion.text_to_image.weight < 0.8
    fused = fusion.text_to_image.combine(align, match)
    r1 = retrieval_metrics(fused, image_of_text).text_to_image.r1
    for alone in (align, match):
        assert r1 > retrieval_metrics(alone, image_of_text).text_to_image.r1 + 5


def test_the_fit_does_not_depend_on_the_scales(noisy: Noisy) -> None:
    align, match, image_of_text = noisy
    fitted = fit_fusion(align, match, image_of_text)
    rescaled = fit_fusion(7 * align - 3, 0.1 * match + 9, image_of_text)
    for direction in ("text_to_image", "image_to_text"):
        one, other = fitted.of(direction), rescaled.of(direction)
        assert one.weight == other.weight
        assert other.align_std == pytest.approx(7 * one.align_std, rel=1e-4)
        torch.testing.assert_close(
            other.combine(7 * align - 3, 0.1 * match + 9), one.combine(align, match),
            atol=1e-3, rtol=1e-3,
        )  # fmt: skip


def test_a_useless_score_gets_no_weight(noisy: Noisy) -> None:
    align, match, image_of_text = noisy
    noise = torch.randn(60, 180, generator=torch.Generator().manual_seed(9))
    assert fit_fusion(align, 0.001 * noise, image_of_text).text_to_image.weight > 0.7
    assert fit_fusion(noise, match, image_of_text).image_to_text.weight < 0.3


def test_where_all_weights_are_equal_the_papers_rule_stays() -> None:
    for same in (torch.eye(12), torch.ones(12, 12)):
        fusion = fit_fusion(same, same, torch.arange(12))
        assert fusion.text_to_image.weight == fusion.image_to_text.weight == 1.0
    # Constant scores do not divide by zero.
    combined = fusion.text_to_image.combine(torch.ones(2), torch.ones(2), weight=0.5)
    assert bool(combined.isfinite().all())


def test_the_fit_sees_only_the_candidates_of_the_first_stage() -> None:
    # The alignment score would find image 0 for text 0, but matching never hands it over.
    match = torch.tensor([[0.0, 0.1], [0.9, 0.8], [0.8, 0.9]])
    align = torch.tensor([[9.0, 0.0], [0.0, 1.0], [0.0, 0.5]])
    image_of_text = torch.tensor([0, 1])
    few = fit_fusion(align, match, image_of_text, candidates=2).text_to_image
    assert few.align_mean == pytest.approx((0 + 0 + 1 + 0.5) / 4)
    every = fit_fusion(align, match, image_of_text, candidates=3).text_to_image
    assert every.align_mean == pytest.approx(10.5 / 6)
