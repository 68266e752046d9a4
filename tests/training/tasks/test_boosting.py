"""Deep boosting learning: who anchors whom, what is averaged, where gradients go."""

from __future__ import annotations

import copy

import pytest
import torch

from aladin_network.model import AladinModel
from aladin_training.config.anchors import AnchorsConfig
from aladin_training.config.stage import StageConfig, TaskConfig
from aladin_training.losses.boosting import BoostingLoss
from aladin_training.losses.listnet import ListNetLoss
from aladin_training.losses.triplet import TripletMarginLoss
from aladin_training.tasks.frozen import MomentumAnchor, momentum
from aladin_training.tasks.joint import JointTask, OnlineBranches
from aladin_training.tasks.scores import FrozenNetwork
from tests.training.tasks.conftest import another, batch_for, scores_of, stage


def boosted(score: str = "matching", form: str = "relative", weight: float = 1.0) -> StageConfig:
    boosting = TaskConfig(loss="boosting", weight=weight, options={"form": form})
    tasks = {score: TaskConfig(loss="triplet"), f"{score}_boosting": boosting}
    return stage(tasks, anchors=AnchorsConfig(scenario="online", stages=("random",)))


@pytest.mark.parametrize("score", ["matching", "alignment"])
@pytest.mark.parametrize("form", ["relative", "absolute"])
def test_loss_is_averaged_over_frozen_anchors(score: str, form: str, model: AladinModel) -> None:
    anchors = [another(model, seed).eval() for seed in (1, 2)]
    frozen = [FrozenNetwork(copy.deepcopy(anchor)) for anchor in anchors]
    task = JointTask(model, boosted(score, form, weight=0.5), anchors=frozen).eval()
    batch = batch_for(model)
    target = scores_of(model, batch, score)
    loss = BoostingLoss(form=form)  # type: ignore[arg-type]
    parts = [loss(target, scores_of(each, batch, score), batch.negatives) for each in anchors]
    expected = TripletMarginLoss()(target, batch.negatives) + 0.5 * (parts[0] + parts[1]) / 2
    torch.testing.assert_close(task(batch).total.detach(), expected)


def test_frozen_anchors_learn_nothing(model: AladinModel) -> None:
    anchor = FrozenNetwork(another(model, 1))
    task = JointTask(model, boosted(), anchors=[anchor]).train()
    task(batch_for(model)).total.backward()
    assert not anchor.model.training
    assert all(value.grad is None for value in anchor.model.parameters())
    own = {id(value) for value in task.parameters()}
    assert not any(id(value) in own for value in anchor.model.parameters())


def test_online_branches_are_boosted_by_those_before_them(model: AladinModel) -> None:
    models = [another(model, 1), another(model, 2), model]
    branches = [JointTask(each, boosted()) for each in models]
    batch = batch_for(model)
    report = OnlineBranches(branches[:-1], branches[-1]).eval()(batch)
    scores = [scores_of(each, batch) for each in models]
    raw = [TripletMarginLoss()(each, batch.negatives) for each in scores]
    boost = BoostingLoss(form="relative")
    second = raw[1] + boost(scores[1], scores[0], batch.negatives)
    of_two = [boost(scores[2], scores[n], batch.negatives) for n in (0, 1)]
    expected = raw[0] + second + raw[2] + (of_two[0] + of_two[1]) / 2
    torch.testing.assert_close(report.total.detach(), expected)
    torch.testing.assert_close(report.terms["matching"], raw[2])


def test_mutual_branches_imitate_all_others(model: AladinModel) -> None:
    """Deep mutual learning: each branch has the loss from every other one, without its gradient."""
    models = [another(model, 1), another(model, 2), model]
    options = {"temperature": 10, "teacher_scale": 10}
    imitation = TaskConfig(loss="listnet", options=options)
    anchors = AnchorsConfig(scenario="online", stages=("random", "random"), mutual=True)
    tasks = {"matching": TaskConfig(loss="triplet"), "matching_imitation": imitation}
    mutual = stage(tasks, anchors=anchors)
    branches = [JointTask(each, mutual) for each in models]
    batch = batch_for(model)
    report = OnlineBranches(branches[:-1], branches[-1], mutual=True).eval()(batch)
    report.total.backward()
    scores = [scores_of(each, batch) for each in models]
    listnet = ListNetLoss(temperature=10, teacher_scale=10)
    expected = torch.zeros(())
    for own, score in enumerate(scores):
        peers = [listnet(score, other) for n, other in enumerate(scores) if n != own]
        expected = expected + TripletMarginLoss()(score, batch.negatives) + sum(peers) / 2
    torch.testing.assert_close(report.total.detach(), expected)
    # The last branch alone, with the others frozen, has the same gradient.
    found = [value.grad.clone() for value in model.parameters() if value.grad is not None]
    model.zero_grad(set_to_none=True)
    frozen = [FrozenNetwork(copy.deepcopy(each)) for each in models[:2]]
    JointTask(model, mutual, anchors=frozen).eval()(batch).total.backward()
    alone = [value.grad for value in model.parameters() if value.grad is not None]
    assert found
    torch.testing.assert_close(found, alone)


def test_no_gradient_passes_between_online_branches(model: AladinModel) -> None:
    """Trained beside others, the first branch gets the gradient that it gets alone."""
    first = another(model, 1)
    alone = copy.deepcopy(first)
    branches = OnlineBranches([JointTask(first, boosted())], JointTask(model, boosted()))
    branches.train()
    assert all(branch.model.matching.training for branch in branches.branches)
    batch = batch_for(model)
    branches.eval()(batch).total.backward()
    JointTask(alone, boosted()).eval()(batch).total.backward()
    for ours, theirs in zip(first.parameters(), alone.parameters(), strict=True):
        assert (ours.grad is None) == (theirs.grad is None)
        if ours.grad is not None and theirs.grad is not None:
            torch.testing.assert_close(ours.grad, theirs.grad)


def test_momentum_rises_from_its_start_to_almost_one() -> None:
    values = [momentum(0.9, step, 10) for step in range(10)]
    assert (values[0], values[5]) == pytest.approx((0.9, 0.95))
    assert values == sorted(values)
    assert values[-1] < 1


@pytest.mark.parametrize(
    ("start", "followed"),
    [(1.0, [0, 0]), (0.8, [0.2, 0.28]), (0.0, [1, 1])],  # .28: beta .9, .2 + .1 x .8
)
def test_a_momentum_anchor_follows_the_target_and_its_state_is_all_it_learnt(
    start: float, followed: list[float], model: AladinModel
) -> None:
    anchor = MomentumAnchor(model, start)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    with torch.no_grad():
        for value in model.parameters():
            value.add_(1.0)
    found = dict(anchor.network.model.named_parameters())
    for step, distance in zip((0, 2), followed, strict=True):
        anchor.update(step, 4)
        for name, value in model.named_parameters():
            if value.requires_grad:
                torch.testing.assert_close(found[name].detach(), before[name] + distance)
    fresh = MomentumAnchor(model, start)
    fresh.load_state_dict(anchor.state_dict())
    for ours, theirs in zip(fresh.network.model.parameters(), found.values(), strict=True):
        assert torch.equal(ours, theirs)
