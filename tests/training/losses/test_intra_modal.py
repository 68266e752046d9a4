"""IntraModalConstraintLoss: hand-worked numbers, its signs and its invariances."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from aladin_network.errors import ConfigError, ShapeError
from aladin_training.losses.intra_modal import IntraModalConstraintLoss
from aladin_training.losses.negatives import negative_mask

DISTANCES = ["l1", "l2", "msd", "cos"]


@pytest.fixture
def embeddings(size: int) -> Tensor:
    """Unit vectors around two centres, row 2 equal to row 1 and row 3 very near to it."""
    generator = torch.Generator().manual_seed(300 + size)
    centres = torch.randn(2, 5, generator=generator, dtype=torch.float64)
    noise = torch.randn(size, 5, generator=generator, dtype=torch.float64)
    rows = centres[torch.arange(size) % 2] + 0.7 * noise
    rows[2] = rows[1]
    rows[3] = rows[1] + 0.01
    return F.normalize(rows, dim=1).requires_grad_()


@pytest.mark.parametrize("mode", ["official", "paper"])
@pytest.mark.parametrize("kind", DISTANCES)
def test_equal_rows_have_a_finite_gradient(embeddings: Tensor, kind: str, mode: str) -> None:
    upper = 0.5 if kind == "cos" else 1.0
    loss = IntraModalConstraintLoss(kind, lower=0.0, upper=upper, mode=mode)(embeddings)
    loss.backward()
    assert loss.item() > 0
    assert embeddings.grad.isfinite().all()
    # They are apart from all other rows alike.
    torch.testing.assert_close(embeddings.grad[1], embeddings.grad[2])


def test_the_papers_cosine_divides_by_both_norms_worked_by_hand() -> None:
    # (3, 4) and (2, 0): the cosine is 6 / (5 * 2) = .6, the distance .4, within (.05, .5). The
    # inner product 6 would give the distance -5, outside of the band.
    rows = torch.tensor([[3.0, 4.0], [2.0, 0.0]], dtype=torch.float64, requires_grad=True)
    loss = IntraModalConstraintLoss("cos", mode="paper")(rows)
    loss.backward()
    assert loss.item() == pytest.approx(2 * 0.4)  # both orders of the pair
    # -d cos / dv = cos v / ||v||^2 - w / (||v|| ||w||), twice:
    # v = (3, 4): .6 (3, 4) / 25 - (2, 0) / 10 = (.072 - .2, .096)
    # w = (2, 0): .6 (2, 0) / 4 - (3, 4) / 10 = (.3 - .3, -.4)
    expected = torch.tensor([[-0.256, 0.192], [0.0, -0.8]], dtype=torch.float64)
    torch.testing.assert_close(rows.grad, expected)
    # The official code's inner product of these rows, 6, is outside of (.5, .95).
    assert IntraModalConstraintLoss("cos")(rows).item() == 0.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_row_of_zeros_has_the_cosine_0_and_no_gradient(dtype: torch.dtype) -> None:
    rows = torch.tensor([[0.0, 0.0], [3.0, 4.0], [2.0, 0.0]], dtype=dtype, requires_grad=True)
    loss = IntraModalConstraintLoss("cos", upper=1.5, mode="paper")(rows)
    loss.backward()
    # Distances: 1 between the zero row and each other one, .4 between the others; twice each.
    assert loss.item() == pytest.approx(2 * (1 + 1 + 0.4))
    expected = torch.tensor([[0.0, 0.0], [-0.256, 0.192], [0.0, -0.8]], dtype=dtype)
    torch.testing.assert_close(rows.grad, expected)


def test_three_angles_worked_by_hand() -> None:
    # 0, 60 and 90 degrees: cosines 1/2, 0 and sqrt(3)/2.
    angles = torch.tensor([0.0, math.pi / 3, math.pi / 2], dtype=torch.float64)
    embeddings = torch.stack([angles.cos(), angles.sin()], dim=1)
    root = math.sqrt(3) / 2

    def value(**options: object) -> float:
        return IntraModalConstraintLoss(**options)(embeddings).item()

    # Official cos, 1/2 < s < .95 : the pair at 30 degrees, twice, divided by 3 rows.
    assert value(distance="cos", upper=0.51) == pytest.approx(2 * root / 3)
    # Paper: 1 - s is 1/2, 1 and .134; of them .134 lies within (.05, .5), and .5 with .6.
    assert value(distance="cos", mode="paper", upper=0.49) == pytest.approx(2 * (1 - root))
    assert value(distance="cos", mode="paper", upper=0.6) == pytest.approx(2 * (1.5 - root))
    # msd is 2 (1 - s): 1, 2 and .268. Row 0 over its norm is (0, 1, 2) / sqrt(5); ranks
    # round(.15) = 0 and round(2.4) = 2 leave the band (0, .894). Rows 1 and 2 have the norms
    # sqrt(1 + .072) and sqrt(4 + .072): in the band are .268 / 1.035 and .268 / 2.018.
    near = 2 * (1 - root)
    expected = 1 / math.sqrt(5) + near / math.hypot(1, near) + near / math.hypot(2, near)
    assert value(distance="msd", upper=0.8) == pytest.approx(expected / 3)


@pytest.mark.parametrize(("batch", "rank"), [(5, 2), (7, 4), (17, 8), (19, 10)])
def test_half_a_rank_is_rounded_to_even(batch: int, rank: int) -> None:
    # On a line row 0's distances are 0 .. B-1 times a step: the band ends below `rank`.
    line = torch.arange(batch, dtype=torch.float64).unsqueeze(1)
    loss = IntraModalConstraintLoss("l1", lower=0.0, upper=0.5)(line).item()
    hi = rank / math.sqrt(sum(k * k for k in range(batch)))
    expected = 0.0
    for n in range(batch):
        norm = math.sqrt(sum((n - m) ** 2 for m in range(batch)))
        expected += sum(d for m in range(batch) if 0 < (d := abs(n - m) / norm) < hi - 1e-12)
    assert loss == pytest.approx(expected / batch)


def test_official_cos_spares_far_pairs_and_duplicates() -> None:
    loss = IntraModalConstraintLoss("cos")
    assert loss(torch.eye(4)).item() == 0.0
    same = F.normalize(torch.tensor([[1.0, 2.0], [1.0, 2.0], [1.0, 2.1]]), dim=1)
    assert loss(same).item() == 0.0


@pytest.mark.parametrize(
    ("kind", "apart"), [("cos", True), ("l1", False), ("l2", False), ("msd", False)]
)
def test_official_cos_pushes_apart_and_distances_pull_together(kind: str, apart: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(8, 64, generator=generator)
    rows = centres.repeat_interleave(8, dim=0) + 0.6 * torch.randn(64, 64, generator=generator)
    embeddings = F.normalize(rows, dim=1).requires_grad_()
    loss = IntraModalConstraintLoss(kind, upper=0.5 if kind == "cos" else 0.1)
    loss(embeddings).backward()
    stepped = F.normalize((embeddings - 0.01 * embeddings.grad).detach(), dim=1)
    same = torch.block_diag(*[torch.ones(8, 8)] * 8).bool() & ~torch.eye(64, dtype=torch.bool)
    before = (embeddings @ embeddings.T)[same].mean().item()
    after = (stepped @ stepped.T)[same].mean().item()
    assert (after < before) == apart


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [("cos", 0.704, 0.639), ("l1", 0.084, 0.099), ("l2", 0.093, 0.115), ("msd", 0.094, 0.116)],
)
def test_one_step_moves_the_pairs_of_the_band_as_far_as_the_papers_page_says(
    kind: str, before: float, after: float
) -> None:
    generator = torch.Generator().manual_seed(0)

    def directions(count: int) -> Tensor:
        return F.normalize(torch.randn(count, 256, generator=generator, dtype=torch.float64), dim=1)

    centres = directions(16).repeat_interleave(8, dim=0)
    embeddings = F.normalize(centres + 0.65 * directions(128), dim=1).requires_grad_()
    IntraModalConstraintLoss(kind)(embeddings).backward()
    assert embeddings.grad is not None
    rows = embeddings.detach()
    cosines = rows @ rows.T
    if kind == "cos":
        band = (cosines > 0.5) & (cosines < 0.95)
    else:
        distances = torch.cdist(rows, rows, p=1 if kind == "l1" else 2)
        distances = F.normalize(distances.square() if kind == "msd" else distances, dim=1)
        first = distances[0].sort().values
        band = (distances > first[6]) & (distances < first[64])
    band &= ~torch.eye(128, dtype=torch.bool)
    step = 0.1 * embeddings.grad / embeddings.grad.norm(dim=1).max()
    stepped = F.normalize(rows - step, dim=1)
    assert cosines[band].mean().item() == pytest.approx(before, abs=0.002)
    assert (stepped @ stepped.T)[band].mean().item() == pytest.approx(after, abs=0.002)


@pytest.mark.parametrize("mode", ["official", "paper"])
@pytest.mark.parametrize("kind", DISTANCES)
@pytest.mark.parametrize("batch", [1, 4])
def test_a_batch_of_one_embedding_costs_nothing(kind: str, mode: str, batch: int) -> None:
    embeddings = F.normalize(torch.ones(batch, 3, dtype=torch.float64), dim=1).requires_grad_()
    loss = IntraModalConstraintLoss(kind, mode=mode)(embeddings)
    loss.backward()
    assert loss.item() == 0.0
    assert torch.equal(embeddings.grad, torch.zeros(batch, 3, dtype=torch.float64))


def test_impossible_options_and_input_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown distance 'l3', known are .*'l1', 'l2'"):
        IntraModalConstraintLoss("l3")
    with pytest.raises(ConfigError, match=r"unknown mode 'code', known are .*'official', 'paper'"):
        IntraModalConstraintLoss(mode="code")
    with pytest.raises(ConfigError, match=r"below upper, got 0\.5 and 0\.5"):
        IntraModalConstraintLoss(lower=0.5)
    with pytest.raises(ConfigError, match=r"quantiles within \[0, 1\], got 0\.05 and 7"):
        IntraModalConstraintLoss(upper=7)
    IntraModalConstraintLoss(upper=7, mode="paper")
    with pytest.raises(ShapeError, match=r"\(batch, dim\), got \(3,\)"):
        IntraModalConstraintLoss()(torch.zeros(3))


def test_captions_of_one_photo_are_left_alone_worked_by_hand() -> None:
    """Rows 0 and 1 are captions of one photo, row 2 of another: (1, 0), (.8, .6) and (.6, .8).

    l1: d01 = .8, d02 = 1.2, d12 = .4. Cosines: s01 = .8, s02 = .6, s12 = .96.
    """
    rows = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8]], dtype=torch.float64)
    negatives = negative_mask(torch.tensor([0, 0, 1]))

    def value(*given: Tensor, **options: object) -> float:
        return IntraModalConstraintLoss(**options)(rows, *given).item()

    paper = {"distance": "l1", "mode": "paper", "lower": 0.1, "upper": 1.5}
    assert value(**paper) == pytest.approx(2 * (0.8 + 1.2 + 0.4))
    assert value(negatives, **paper) == pytest.approx(2 * (1.2 + 0.4))
    # Official cos, .5 < s < .95: without the mask .8 and .6 twice each, with it .6 alone.
    assert value(distance="cos") == pytest.approx(2 * (0.8 + 0.6) / 3)
    assert value(negatives, distance="cos") == pytest.approx(2 * 0.6 / 3)
    # Official l1: with d01 = 0 the rows are (0, 0, 1.2) / 1.2, (0, 0, .4) / .4 and (1.2, .4, 0) /
    # sqrt(1.6). Rank round(.1 * 3) = 0 of row 0 is 0, rank round(.6 * 3) = 2 is 1: both entries of
    # the third row lie within (0, 1).
    official = {"distance": "l1", "lower": 0.1, "upper": 0.6}
    assert value(negatives, **official) == pytest.approx(1.6 / math.sqrt(1.6) / 3)


@pytest.mark.parametrize("mode", ["official", "paper"])
@pytest.mark.parametrize("kind", DISTANCES)
def test_captions_of_one_photo_get_no_gradient_from_each_other(kind: str, mode: str) -> None:
    """Two captions of a single photo are all of the batch: nothing moves."""
    rows = F.normalize(torch.tensor([[1.0, 0.2], [0.8, 0.6]], dtype=torch.float64), dim=1)
    rows.requires_grad_()
    constraint = IntraModalConstraintLoss(kind, lower=0.0, upper=1.0, mode=mode)
    if kind == "cos":
        constraint = IntraModalConstraintLoss(kind, lower=0.0, upper=0.5, mode=mode)
    loss = constraint(rows, negative_mask(torch.tensor([7, 7])))
    loss.backward()
    assert loss.item() == 0.0
    assert not rows.grad.any()


def test_a_mask_of_another_shape_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"negatives \(3, 3\), got \(3, 1\)"):
        IntraModalConstraintLoss()(torch.eye(3), torch.ones(3, 1, dtype=torch.bool))
