"""Losses of pytorch-metric-learning on the scores of a batch, beside the same formulas here."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import Tensor

from aladin_network.errors import ConfigError
from aladin_training.config.stage import TaskConfig
from aladin_training.losses.infonce import InfoNCELoss
from aladin_training.losses.metric_learning import MetricLearningLoss
from aladin_training.losses.negatives import negative_mask
from aladin_training.tasks.joint import build_loss


def made_batch(captions: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """Scores of five photos, the last one that of row 0 once more, with some captions each."""
    ids = torch.tensor([0, 1, 2, 3, 0])
    owners = torch.arange(5).repeat_interleave(captions)
    generator = torch.Generator().manual_seed(captions)
    scores = torch.rand(5, len(owners), generator=generator, dtype=torch.float64)
    pairs = torch.stack([owners, torch.arange(len(owners))], dim=1) if captions > 1 else None
    return scores.requires_grad_(), negative_mask(ids, ids[owners]), pairs


@pytest.mark.parametrize("captions", [1, 3])
def test_nt_xent_is_infonce(captions: int) -> None:
    pytest.importorskip("pytorch_metric_learning")
    scores, negatives, pairs = made_batch(captions)
    ours = InfoNCELoss(temperature=0.1)(scores, negatives, pairs)
    theirs = MetricLearningLoss("NTXentLoss", temperature=0.1)(scores, negatives, pairs)
    torch.testing.assert_close(theirs, ours)
    gradients = [torch.autograd.grad(each, scores)[0] for each in (theirs, ours)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("captions", [1, 3])
def test_multi_similarity_is_the_sum_over_each_query_s_pairs(captions: int) -> None:
    pytest.importorskip("pytorch_metric_learning")
    scores, negatives, pairs = made_batch(captions)
    found = MetricLearningLoss("MultiSimilarityLoss", alpha=2, beta=10, base=0.5)(
        scores, negatives, pairs
    )
    own = torch.zeros_like(negatives)
    for row, column in torch.arange(5).repeat(2, 1).T if pairs is None else pairs:
        own[row, column] = True
    means: list[Tensor] = []
    for matrix, positive, negative in ((scores, own, negatives), (scores.T, own.T, negatives.T)):
        of_queries = [
            (1 + torch.exp(-2 * (row[mine] - 0.5)).sum()).log() / 2
            + (1 + torch.exp(10 * (row[others] - 0.5)).sum()).log() / 10
            for row, mine, others in zip(matrix, positive, negative, strict=True)
        ]
        means.append(torch.stack(of_queries).mean())
    torch.testing.assert_close(found, (means[0] + means[1]) / 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "NoSuchLoss"}, "has no loss 'NoSuchLoss'"),
        ({"name": "NPairsLoss"}, "NPairsLoss does not take scores"),
        ({"name": "ArcFaceLoss"}, "num_classes"),
        ({"name": "NTXentLoss", "temprature": 1}, "temprature"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, object], message: str) -> None:
    pytest.importorskip("pytorch_metric_learning")
    with pytest.raises(ConfigError, match=message):
        build_loss(TaskConfig(loss="metric_learning", options=options))


def test_without_the_package_the_message_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning", None)
    with pytest.raises(ConfigError, match="pip install pytorch-metric-learning"):
        build_loss(TaskConfig(loss="metric_learning"))
