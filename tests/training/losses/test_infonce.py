"""InfoNCELoss against loops, hand-worked numbers and finite differences."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from aladin_network.errors import ConfigError, ShapeError
from aladin_training.losses.infonce import InfoNCELoss
from aladin_training.losses.negatives import negative_mask


def reference(
    scores: Tensor,
    negatives: Tensor,
    temperature: float,
    pairs: list[tuple[int, int]] | None = None,
) -> float:
    images, texts = scores.shape
    pairs = pairs or [(n, n) for n in range(images)]
    total = 0.0
    for i, t in pairs:
        positive = scores[i, t].item() / temperature
        for others in (
            [scores[i, u].item() / temperature for u in range(texts) if negatives[i, u]],
            [scores[j, t].item() / temperature for j in range(images) if negatives[j, t]],
        ):
            total += math.log(sum(math.exp(x) for x in [positive, *others])) - positive
    return total / (2 * len(pairs))


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    """Six pairs of four images."""
    generator = torch.Generator().manual_seed(5)
    scores = torch.randn(6, 6, generator=generator, dtype=torch.float64).requires_grad_()
    return scores, negative_mask(torch.tensor([0, 1, 2, 0, 3, 1]))


@pytest.mark.parametrize("temperature", [0.07, 1.0, 3.0])
def test_equals_the_loops(batch: tuple[Tensor, Tensor], temperature: float) -> None:
    loss = InfoNCELoss(temperature)(*batch)
    assert loss.item() == pytest.approx(reference(*batch, temperature), rel=1e-12)


@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_gradient_is_what_each_candidate_takes_of_the_softmax(
    pairs: tuple[Tensor, Tensor], temperature: float
) -> None:
    scores, negatives = pairs
    batch = len(scores)
    loss = InfoNCELoss(temperature)(scores, negatives)
    loss.backward()
    expected = torch.zeros(batch, batch, dtype=torch.float64)
    for n in range(batch):
        for cells in (
            [(n, u) for u in range(batch) if negatives[n, u] or u == n],
            [(j, n) for j in range(batch) if negatives[j, n] or j == n],
        ):
            exponentials = [math.exp(scores[cell].item() / temperature) for cell in cells]
            for cell, exponential in zip(cells, exponentials, strict=True):
                share = exponential / sum(exponentials) - float(cell == (n, n))
                expected[cell] += share / temperature / (2 * batch)
    torch.testing.assert_close(scores.grad, expected, atol=1e-10, rtol=0)
    value = reference(scores, negatives, temperature)
    assert loss.item() == pytest.approx(value, abs=1e-10)


def test_two_pairs_worked_by_hand() -> None:
    scores = torch.tensor([[2.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
    loss = InfoNCELoss(temperature=1.0)(scores, negative_mask(torch.arange(2)))
    # Gaps to the one negative: images 1 and 1, texts 2 and 0; each costs log(1 + e^-gap).
    gaps = (1.0, 1.0, 2.0, 0.0)
    assert loss.item() == pytest.approx(sum(math.log1p(math.exp(-gap)) for gap in gaps) / 4)


def test_without_repeated_images_it_is_the_cross_entropy_of_clip(
    batch: tuple[Tensor, Tensor],
) -> None:
    scores, _ = batch
    target = torch.arange(6)
    expected = (F.cross_entropy(scores / 0.1, target) + F.cross_entropy(scores.T / 0.1, target)) / 2
    loss = InfoNCELoss(0.1)(scores, negative_mask(target))
    torch.testing.assert_close(loss, expected)


def test_another_caption_of_the_same_image_gets_no_gradient(batch: tuple[Tensor, Tensor]) -> None:
    scores, negatives = batch
    InfoNCELoss(0.5)(scores, negatives).backward()
    assert scores.grad is not None
    assert scores.grad[0, 3].item() == 0.0
    assert bool((scores.grad[negatives] > 0).all())
    assert bool((scores.grad.diagonal() < 0).all())


def test_unique_images_with_all_their_captions() -> None:
    generator = torch.Generator().manual_seed(6)
    scores = torch.randn(3, 5, generator=generator, dtype=torch.float64).requires_grad_()
    image_of_text = torch.tensor([0, 0, 1, 2, 2])
    negatives = negative_mask(torch.arange(3), image_of_text)
    positives = torch.stack([image_of_text, torch.arange(5)], dim=1)
    loss = InfoNCELoss(0.5)(scores, negatives, positives)
    pairs = [(int(i), int(t)) for i, t in positives]
    assert loss.item() == pytest.approx(reference(scores, negatives, 0.5, pairs), rel=1e-12)
    assert torch.autograd.gradcheck(
        lambda values: InfoNCELoss(0.5)(values, negatives, positives), (scores,)
    )


def test_large_scores_stay_finite() -> None:
    scores = torch.tensor([[-50.0, 50.0], [50.0, -50.0]], requires_grad=True)
    loss = InfoNCELoss(0.01)(scores, negative_mask(torch.arange(2)))
    loss.backward()
    assert loss.item() == pytest.approx(10_000)
    assert scores.grad is not None
    assert bool(scores.grad.isfinite().all())


def test_a_learnable_temperature_is_trained(batch: tuple[Tensor, Tensor]) -> None:
    loss = InfoNCELoss(0.5, learnable=True)
    (log_temperature,) = loss.parameters()
    torch.testing.assert_close(loss(*batch), InfoNCELoss(0.5)(*batch))
    loss(*batch).backward()
    step = 1e-4
    slope = reference(*batch, 0.5 * math.exp(step)) - reference(*batch, 0.5 * math.exp(-step))
    assert log_temperature.grad is not None
    assert log_temperature.grad.item() == pytest.approx(slope / (2 * step), rel=1e-4)
    with torch.no_grad():
        log_temperature += math.log(2)
    assert loss.temperature == pytest.approx(1.0)


def test_a_fixed_temperature_is_no_parameter() -> None:
    loss = InfoNCELoss(0.07)
    assert list(loss.parameters()) == []
    assert loss.temperature == 0.07


def test_impossible_input_is_refused() -> None:
    with pytest.raises(ConfigError, match="positive, got 0"):
        InfoNCELoss(temperature=0)
    with pytest.raises(ShapeError):
        InfoNCELoss()(torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.bool))
