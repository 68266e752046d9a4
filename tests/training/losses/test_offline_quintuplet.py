"""OfflineQuintupletLoss: hand-worked numbers, its ablations and its invariances."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from aladin_network.errors import ConfigError, ShapeError
from aladin_training.losses.negatives import negative_mask
from aladin_training.losses.offline_quintuplet import OfflineQuintupletLoss, OfflineScores

FORMS = ["triplet", "quintuplet", "adaptive"]  # eqs 3 to 5


@pytest.fixture
def offline(size: int) -> OfflineScores:
    """Offline scores in (-0.6, 0.9): weights of both signs, hinges on both sides of 0."""
    generator = torch.Generator().manual_seed(200 + size)
    values = 1.5 * torch.rand(4, size, generator=generator, dtype=torch.float64) - 0.6
    return OfflineScores(*(each.clone().requires_grad_() for each in values))


def test_two_pairs_worked_by_hand() -> None:
    scores = torch.tensor([[0.6, 0.5], [0.1, 0.4]], dtype=torch.float64)
    offline = OfflineScores(
        text=torch.tensor([0.7, 0.3], dtype=torch.float64),
        image=torch.tensor([0.2, 0.4], dtype=torch.float64),
        cross_text=torch.tensor([0.8, 0.0], dtype=torch.float64),
        cross_image=torch.tensor([0.5, 0.7], dtype=torch.float64),
    )
    negatives = negative_mask(torch.arange(2))

    def value(form: str) -> float:
        return OfflineQuintupletLoss(form)(scores, offline, negatives).item()

    # online: images .2 - .6 + .5 and .2 - .4 + .1 < 0, texts .2 - .6 + .1 < 0 and .2 - .4 + .5
    # offline: images .7 - .6 and .3 - .4 < 0, texts .2 - .6 < 0 and .4 - .4
    assert value("triplet") == pytest.approx(0.1 + 0.3 + 0.1)
    # cross: images .8 - .6 and 0 - .4 < 0, texts .5 - .6 < 0 and .7 - .4
    assert value("quintuplet") == pytest.approx(0.5 + 0.2 + 0.3)
    # weights: image 0 has 1.5 - (.7 - .5)/.3 = 5/6, text 1 has 1.5 - (.4 - .5)/.3 = 11/6
    assert value("adaptive") == pytest.approx(5 / 6 * 0.1 + 11 / 6 * 0.3 + 0.1 + 0.5)


@pytest.mark.parametrize("form", ["quintuplet", "adaptive"])
def test_a_cross_score_of_minus_infinity_drops_that_term(
    pairs: tuple[Tensor, Tensor], offline: OfflineScores, form: str
) -> None:
    scores, negatives = pairs
    dropped = torch.zeros(len(scores), dtype=torch.bool)
    dropped[::2] = True
    loss = OfflineQuintupletLoss(form)

    def with_cross_of(value: float) -> tuple[Tensor, tuple[Tensor, ...]]:
        text, image, cross_text, cross_image = offline
        cross = [each.masked_fill(dropped, value) for each in (cross_text, cross_image)]
        result = loss(scores, OfflineScores(text, image, *cross), negatives)
        return result, torch.autograd.grad(result, (scores, *offline))

    # -5 is below every positive: its hinges are 0.
    torch.testing.assert_close(with_cross_of(float("-inf")), with_cross_of(-5.0))


@pytest.mark.parametrize("form", [*FORMS, "online_quintuplet"])
@pytest.mark.parametrize("batch", [1, 4])
def test_a_batch_of_one_image_has_no_online_term(form: str, batch: int) -> None:
    scores = torch.full((batch, batch), 0.5, requires_grad=True)
    negatives = negative_mask(torch.zeros(batch, dtype=torch.long))
    easy, hard = torch.full((batch,), 0.2), torch.full((batch,), 0.6)
    nothing = OfflineQuintupletLoss(form)(scores, OfflineScores(easy, easy, easy, easy), negatives)
    nothing.backward()
    assert nothing.item() == 0.0
    assert torch.equal(scores.grad, torch.zeros(batch, batch))
    offline_only = OfflineQuintupletLoss(form)(
        scores, OfflineScores(hard, hard, easy, easy), negatives
    )
    assert offline_only.item() == pytest.approx(2 * batch * 0.1)


def test_impossible_options_and_input_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown form 'quadruplet', known are .*'quintuplet'"):
        OfflineQuintupletLoss("quadruplet")
    with pytest.raises(ConfigError, match="unknown weight_by 'online'"):
        OfflineQuintupletLoss(weight_by="online")
    with pytest.raises(ConfigError, match="alpha must be positive, got 0"):
        OfflineQuintupletLoss(alpha=0)
    two, scores, negatives = torch.zeros(2), torch.zeros(2, 2), negative_mask(torch.arange(2))
    with pytest.raises(ConfigError, match="'adaptive' needs cross scores"):
        OfflineQuintupletLoss("adaptive")(scores, OfflineScores(two, two), negatives)
    with pytest.raises(ShapeError, match=r"offline.image \(2,\), got \(1,\)"):
        OfflineQuintupletLoss()(scores, OfflineScores(two, two[:1]), negatives)
    with pytest.raises(ShapeError, match=r"\(batch, batch\), got \(2, 3\)"):
        OfflineQuintupletLoss()(torch.zeros(2, 3), OfflineScores(two, two), negatives)
