"""BoostingLoss: hand-worked numbers and the inequalities of the paper."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from aladin_network.errors import ConfigError, ShapeError
from aladin_training.losses.boosting import BoostingLoss
from aladin_training.losses.negatives import negative_mask

FORMS = [("relative", True), ("relative", False), ("absolute", True), ("absolute", False)]


@pytest.fixture
def anchor(size: int) -> Tensor:
    """Scores of a tanh, some of them near its ends, where soft margins shrink."""
    generator = torch.Generator().manual_seed(100 + size)
    scores = 2 * torch.randn(size, size, generator=generator, dtype=torch.float64)
    return (scores + 2 * torch.eye(size, dtype=torch.float64)).tanh().requires_grad_()


def test_the_anchor_gets_no_gradient(pairs: tuple[Tensor, Tensor], anchor: Tensor) -> None:
    scores, negatives = pairs
    BoostingLoss(soft=True)(scores, anchor, negatives).backward()
    assert anchor.grad is None and scores.grad is not None


def test_two_pairs_worked_by_hand() -> None:
    target = torch.tensor([[0.6, 0.3], [0.2, 0.5]], dtype=torch.float64)
    anchor = torch.tensor([[0.5, 0.4], [0.0, 0.5]], dtype=torch.float64)
    negatives = negative_mask(torch.arange(2))
    # S - A is .1 and 0 at the pairs, -.1 and .2 at the negatives.
    # relative: images .2 - .1 - .1 and .2 + .2 - 0, texts .2 + .2 - .1 and .2 - .1 - 0
    assert BoostingLoss()(target, anchor, negatives).item() == pytest.approx(0 + 0.4 + 0.3 + 0.1)
    # absolute: pairs .1 - .1 and .1 - 0, negatives .1 - .1 and .1 + .2, each once a direction
    absolute = BoostingLoss("absolute")(target, anchor, negatives)
    assert absolute.item() == pytest.approx(2 * (0.1 + 0.3))


def test_several_captions_count_each_photo_once_worked_by_hand() -> None:
    # Two photos with two captions each. Photo 0's captions 0 and 1 both have photo 1 as their
    # only negative, photo 1's captions 2 and 3 have photo 0; the anchor has no opinion.
    target = torch.tensor([[0.5, 0.3, 0.4, 0.1], [0.2, 0.0, 0.3, 0.6]], dtype=torch.float64)
    anchor = torch.zeros_like(target)
    negatives = negative_mask(torch.arange(2), torch.tensor([0, 0, 1, 1]))
    positives = torch.tensor([[0, 0], [0, 1], [1, 2], [1, 3]])
    # RS, image queries [.2 + S[i,c'] - S[i,c]]+ for c = 0: .1 + 0, c = 1: .3 + 0, c = 2: .1 + 0,
    # c = 3: 0 + 0. Text queries [.2 + S[i',c] - S[i,c]]+: 0, 0, .2 + .4 - .3 = .3, 0.
    total = BoostingLoss(hardest_negative=False)(target, anchor, negatives, positives)
    assert total.item() == pytest.approx(0.1 + 0.3 + 0.1 + 0.3)
    # AS: [.1 - S[i,c]]+ is 0 for all pairs, and [.1 + S[n]]+ of the negatives is .5 and .2 of
    # photo 0, .3 and .1 of photo 1: twice each from the images' captions, once from the texts.
    total = BoostingLoss("absolute", hardest_negative=False)(target, anchor, negatives, positives)
    assert total.item() == pytest.approx(3 * (0.5 + 0.2 + 0.3 + 0.1))


@pytest.mark.parametrize("form", ["relative", "absolute"])
def test_a_target_equal_to_its_anchor_pays_the_margin_once_a_query(
    pairs: tuple[Tensor, Tensor], form: str
) -> None:
    scores, negatives = pairs
    loss = BoostingLoss(form, margin=0.3)(scores, scores, negatives)
    assert loss.item() == pytest.approx(0.3 * 2 * len(scores))


def soft_margins(positive: float, negative: float) -> tuple[float, float, float]:
    """Read the three soft margins off a batch whose target equals its anchor.

    Only image 0 and text 1 have a negative, and it is the same cell.
    """
    scores = torch.full((2, 2), positive, dtype=torch.float64)
    scores[0, 1] = negative
    negatives = torch.tensor([[False, True], [False, False]])
    relative, of_positive, of_negative = (
        BoostingLoss(form, soft=True, margin=0.4, alpha=alpha)(scores, scores, negatives).item() / 2
        for form, alpha in (("relative", 0.5), ("absolute", 1.0), ("absolute", 0.0))
    )
    return relative, of_positive, of_negative


def test_soft_margins_shrink_where_little_is_left_to_gain() -> None:
    assert soft_margins(1.0, -1.0) == pytest.approx((0.0, 0.0, 0.0), abs=1e-15)
    step = 1e-4  # Slope -1 at the ends: never more than what is still attainable.
    assert soft_margins(1 - step, -1 + step) == pytest.approx((2 * step, step, step), rel=1e-4)
    assert soft_margins(-1.0, 1.0) == pytest.approx((0.4, 0.4, 0.4), rel=1e-3)
    for score in (-0.9, -0.3, 0.0, 0.4, 0.95):
        relative, of_positive, of_negative = soft_margins(score, score)
        assert relative == pytest.approx(0.4 * math.tanh(2 / 0.4))
        assert of_positive <= min(0.4, 1 - score)
        assert of_negative <= min(0.4, 1 + score)


def test_gap_and_cost_may_pick_different_negatives() -> None:
    anchor = torch.tensor([[0.5, -1.0, 0.5]] * 3, dtype=torch.float64)
    target = anchor.clone()
    target[0, 1] += 0.05
    negatives = torch.zeros(3, 3, dtype=torch.bool)
    negatives[0, 1:] = True
    # For image 0 text 1 has the larger gap, .05 against 0. Its soft margin is 0, that of text 2
    # is whole, so text 2 has the larger bracket. Texts 1 and 2 have no choice.
    by_gap, by_cost = (
        BoostingLoss("absolute", soft=True, selection=selection)(target, anchor, negatives)
        for selection in ("gap", "cost")
    )
    assert (by_cost - by_gap).item() == pytest.approx(0.1 * math.tanh(15) - 0.05)


def test_impossible_options_and_input_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown form 'ratio', known are .*'relative'"):
        BoostingLoss("ratio")
    with pytest.raises(ConfigError, match=r"unknown selection 'top', known are .*'gap', 'cost'"):
        BoostingLoss(selection="top")
    with pytest.raises(ConfigError, match=r"got 0\.2 and 1\.5"):
        BoostingLoss(alpha=1.5)
    with pytest.raises(ConfigError, match=r"got -0\.1 and 0\.5"):
        BoostingLoss(margin=-0.1)
    square, negatives = torch.zeros(2, 2), negative_mask(torch.arange(2))
    with pytest.raises(ShapeError, match=r"anchor_scores \(2, 2\), got \(2, 3\)"):
        BoostingLoss()(square, torch.zeros(2, 3), negatives)
    with pytest.raises(ShapeError, match=r"\(batch, batch\), got \(2, 3\)"):
        BoostingLoss()(torch.zeros(2, 3), torch.zeros(2, 3), negatives)
