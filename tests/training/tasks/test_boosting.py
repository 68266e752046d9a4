"""Deep boosting learning: who anchors whom, what is averaged, where gradients go."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch

from aladin_network.model import AladinModel
from aladin_training.adapters.parts import reset_part
from aladin_training.batches.batch import Batch
from aladin_training.config.anchors import AnchorsConfig
from aladin_training.config.stage import StageConfig, TaskConfig, TaskName
from aladin_training.losses.boosting import BoostingLoss
from aladin_training.losses.listnet import ListNetLoss
from aladin_training.losses.triplet import TripletMarginLoss
from aladin_training.tasks.frozen import MomentumAnchor, momentum
from aladin_training.tasks.joint import JointTask, OnlineBranches
from aladin_training.tasks.scores import FrozenNetwork

Pairs = Callable[[AladinModel], Batch]
Build = Callable[..., AladinModel]


def boosted(score: str = "matching", form: str = "relative", weight: float = 1.0) -> StageConfig:
    tasks: dict[TaskName, TaskConfig] = {
        score: TaskConfig(loss="triplet"),  # type: ignore[dict-item]
        f"{score}_boosting": TaskConfig(  # type: ignore[dict-item]
            loss="boosting", weight=weight, options={"form": form}
        ),
    }
    anchors = AnchorsConfig(scenario="online", stages=("random",))
    return StageConfig(name="s", tasks=tasks, anchors=anchors)


def another(model: AladinModel, seed: int) -> AladinModel:
    other = copy.deepcopy(model)
    torch.manual_seed(seed)
    for part in ("image_trunk", "text_trunk", "alignment", "matching"):
        reset_part(other, part)
    return other


def scores_of(model: AladinModel, batch: Batch, score: str) -> torch.Tensor:
    with torch.no_grad():
        images, texts = model.encode_images(batch.images), model.encode_texts(batch.texts)
        return model.scores(score, images, texts)  # type: ignore[arg-type]


@pytest.mark.parametrize("score", ["matching", "alignment"])
@pytest.mark.parametrize("form", ["relative", "absolute"])
def test_loss_is_averaged_over_frozen_anchors(
    score: str, form: str, build_tiny: Build, pairs_for: Pairs
) -> None:
    model = build_tiny().eval()
    anchors = [another(model, 1).eval(), another(model, 2).eval()]
    batch = pairs_for(model)
    frozen = [FrozenNetwork(copy.deepcopy(anchor)) for anchor in anchors]
    task = JointTask(model, boosted(score, form, weight=0.5), anchors=frozen).eval()
    target = scores_of(model, batch, score)
    loss = BoostingLoss(form=form)  # type: ignore[arg-type]
    parts = [loss(target, scores_of(anchor, batch, score), batch.negatives) for anchor in anchors]
    raw = TripletMarginLoss()(target, batch.negatives)
    expected = raw + 0.5 * (parts[0] + parts[1]) / 2
    torch.testing.assert_close(task(batch).total.detach(), expected)


def test_frozen_anchors_learn_nothing(build_tiny: Build, pairs_for: Pairs) -> None:
    model = build_tiny()
    anchor = FrozenNetwork(another(model, 1))
    task = JointTask(model, boosted(), anchors=[anchor]).train()
    task(pairs_for(model)).total.backward()
    assert not anchor.model.training
    assert all(value.grad is None for value in anchor.model.parameters())
    own = {id(value) for value in task.parameters()}
    assert not any(id(value) in own for value in anchor.model.parameters())


def test_online_branches_are_boosted_by_those_before_them(
    build_tiny: Build, pairs_for: Pairs
) -> None:
    model = build_tiny()
    models = [another(model, 1), another(model, 2), model]
    stage = boosted()
    branches = [JointTask(each, stage) for each in models]
    batch = pairs_for(model)
    report = OnlineBranches(branches[:-1], branches[-1]).eval()(batch)
    scores = [scores_of(each, batch, "matching") for each in models]
    raw = [TripletMarginLoss()(each, batch.negatives) for each in scores]
    boost = BoostingLoss(form="relative")
    first = raw[0]
    second = raw[1] + boost(scores[1], scores[0], batch.negatives)
    of_two = [boost(scores[2], scores[n], batch.negatives) for n in (0, 1)]
    third = raw[2] + (of_two[0] + of_two[1]) / 2
    torch.testing.assert_close(report.total.detach(), first + second + third)
    torch.testing.assert_close(report.terms["matching"], raw[2])


def test_mutual_branches_imitate_all_others(build_tiny: Build, pairs_for: Pairs) -> None:
    """Deep mutual learning: each branch has the loss from every other one, without its gradient."""
    model = build_tiny()
    models = [another(model, 1), another(model, 2), model]
    options = {"temperature": 10, "teacher_scale": 10}
    tasks: dict[str, TaskConfig] = {
        "matching": TaskConfig(loss="triplet"),
        "matching_imitation": TaskConfig(loss="listnet", options=options),
    }
    anchors = AnchorsConfig(scenario="online", stages=("random", "random"), mutual=True)
    stage = StageConfig(name="s", tasks=tasks, anchors=anchors)
    branches = [JointTask(each, stage) for each in models]
    batch = pairs_for(model)
    report = OnlineBranches(branches[:-1], branches[-1], mutual=True).eval()(batch)
    report.total.backward()
    scores = [scores_of(each, batch, "matching") for each in models]
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
    JointTask(model, stage, anchors=frozen).eval()(batch).total.backward()
    alone = [value.grad for value in model.parameters() if value.grad is not None]
    assert found
    torch.testing.assert_close(found, alone)


def test_no_gradient_passes_between_online_branches(build_tiny: Build, pairs_for: Pairs) -> None:
    """Trained beside others, the first branch gets the gradient that it gets alone."""
    model = build_tiny()
    first = another(model, 1)
    alone = copy.deepcopy(first)
    batch = pairs_for(model)
    stage = boosted()
    branches = OnlineBranches([JointTask(first, stage)], JointTask(model, stage)).eval()
    branches(batch).total.backward()
    JointTask(alone, stage).eval()(batch).total.backward()
    for ours, theirs in zip(first.parameters(), alone.parameters(), strict=True):
        assert (ours.grad is None) == (theirs.grad is None)
        if ours.grad is not None and theirs.grad is not None:
            torch.testing.assert_close(ours.grad, theirs.grad)


def test_online_branches_all_train(build_tiny: Build) -> None:
    model = build_tiny()
    branches = OnlineBranches(
        [JointTask(another(model, 1), boosted())], JointTask(model, boosted())
    )
    branches.train()
    assert all(branch.model.matching.training for branch in branches.branches)
    assert branches.branches[-1].model is model


def test_momentum_rises_from_its_start_to_almost_one() -> None:
    assert momentum(0.9, 0, 10) == pytest.approx(0.9)
    assert momentum(0.9, 5, 10) == pytest.approx(0.95)
    assert momentum(0.9, 9, 10) < 1
    values = [momentum(0.9, step, 10) for step in range(10)]
    assert values == sorted(values)


def test_momentum_anchor_follows_the_target(build_tiny: Build) -> None:
    model = build_tiny()
    anchor = MomentumAnchor(model, 0.8)
    name, value = next(
        (name, value) for name, value in model.named_parameters() if value.requires_grad
    )
    start = value.detach().clone()
    with torch.no_grad():
        value.add_(1.0)
    anchor.update(0, 4)  # beta 0.8
    followed = dict(anchor.network.model.named_parameters())[name]
    torch.testing.assert_close(followed.detach(), start + 0.2)
    anchor.update(2, 4)  # beta 0.9: 0.2 + 0.1 * 0.8
    torch.testing.assert_close(followed.detach(), start + 0.28)


def test_momentum_anchor_stays_at_one_and_equals_the_target_at_zero(build_tiny: Build) -> None:
    model = build_tiny()
    still, equal = MomentumAnchor(model, 1.0), MomentumAnchor(model, 0.0)
    before = [value.detach().clone() for value in model.parameters()]
    with torch.no_grad():
        for value in model.parameters():
            value.add_(0.5)
    for step in range(5):
        still.update(step, 5)
    equal.update(0, 5)
    for old, value in zip(before, still.network.model.parameters(), strict=True):
        assert torch.equal(old, value)
    for own, value in zip(equal.network.model.parameters(), model.parameters(), strict=True):
        if value.requires_grad:
            torch.testing.assert_close(own.detach(), value.detach())


def test_momentum_anchor_s_state_is_all_that_it_has_learnt(build_tiny: Build) -> None:
    model = build_tiny()
    anchor = MomentumAnchor(model, 0.5)
    with torch.no_grad():
        for value in model.parameters():
            value.mul_(2.0)
    anchor.update(0, 3)
    fresh = MomentumAnchor(model, 0.5)
    fresh.load_state_dict(anchor.state_dict())
    for ours, theirs in zip(
        fresh.network.model.parameters(), anchor.network.model.parameters(), strict=True
    ):
        assert torch.equal(ours, theirs)
