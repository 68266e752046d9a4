"""A stage's task: which scores it needs, where its gradients go, what stays in evaluation mode."""

from __future__ import annotations

import unittest.mock
from collections.abc import Callable

import pytest
import torch

from aladin_network.encoders.base import TextBatch
from aladin_network.errors import ConfigError
from aladin_network.model import AladinModel
from aladin_training.adapters.parts import part_of
from aladin_training.batches.batch import Batch
from aladin_training.config.stage import StageConfig, TaskConfig
from aladin_training.losses.negatives import negative_mask
from aladin_training.losses.triplet import TripletMarginLoss
from aladin_training.tasks.joint import JointTask

CAPTIONS = ["two dogs", "a red circle", "a man rides a motorcycle", "green grass"]
ALIGNMENT = TaskConfig(loss="triplet")
MATCHING = TaskConfig(loss="infonce", weight=0.5)
DISTILLATION = TaskConfig(loss="listnet", weight=2.0)


def batch_for(model: AladinModel) -> Batch:
    generator = torch.Generator().manual_seed(0)
    texts: TextBatch = model.text.encoder.preprocess(CAPTIONS)
    images = torch.randn(len(CAPTIONS), 3, 32, 32, generator=generator)
    return Batch(images, texts, negative_mask(torch.arange(len(CAPTIONS))))


def stage(tasks: dict[str, TaskConfig], **changes: object) -> StageConfig:
    return StageConfig(name="s", tasks=tasks, **changes)  # type: ignore[arg-type]


def touched(model: AladinModel) -> set[str | None]:
    return {
        part_of(name)
        for name, value in model.named_parameters()
        if value.grad is not None and bool(value.grad.abs().sum() > 0)
    }


def test_joint_loss_is_the_weighted_sum_of_its_terms(
    build_tiny: Callable[..., AladinModel],
) -> None:
    model = build_tiny()
    batch = batch_for(model)
    singles = {
        name: float(JointTask(model, stage({name: config})).eval()(batch).total.detach())
        for name, config in (("alignment", ALIGNMENT), ("distillation", DISTILLATION))
    }
    report = JointTask(model, stage({"alignment": ALIGNMENT, "distillation": DISTILLATION})).eval()(
        batch
    )
    assert float(report.total.detach()) == pytest.approx(sum(singles.values()), rel=1e-5)
    assert report.terms.keys() == {"alignment", "distillation"}
    assert float(report.terms["distillation"]) * 2 == pytest.approx(
        singles["distillation"], rel=1e-5
    )


def test_distillation_alone_gives_the_alignment_head_no_gradient(
    build_tiny: Callable[..., AladinModel],
) -> None:
    model = build_tiny()
    task = JointTask(model, stage({"distillation": DISTILLATION}))
    task(batch_for(model)).total.backward()
    assert "alignment" not in touched(model)
    assert {"matching", "image_trunk", "text_trunk"} <= touched(model)
    assert task.stage.trained_scores == {"matching"}


def test_only_the_chosen_parts_are_trained_and_the_rest_stays_in_evaluation_mode(
    build_tiny: Callable[..., AladinModel],
) -> None:
    model = build_tiny()
    task = JointTask(model, stage({"distillation": DISTILLATION}, train=("matching",))).train()
    task(batch_for(model)).total.backward()
    assert touched(model) == {"matching"}
    assert model.matching.training
    assert not any(
        module.training
        for part in (model.image, model.text, model.alignment)
        for module in part.modules()
        if list(module.parameters())
    )


def test_matching_alone_computes_no_alignment(build_tiny: Callable[..., AladinModel]) -> None:
    model = build_tiny()
    task = JointTask(model, stage({"matching": MATCHING}))
    with unittest.mock.patch("aladin_network.model.alignment_scores") as alignment_scores:
        task(batch_for(model)).total.backward()
    alignment_scores.assert_not_called()
    assert "alignment" not in touched(model)


def test_a_learnt_temperature_is_trained(build_tiny: Callable[..., AladinModel]) -> None:
    loss = TaskConfig(loss="infonce", options={"learnable": True})
    model = build_tiny()
    task = JointTask(model, stage({"matching": loss}))
    task(batch_for(model)).total.backward()
    (temperature,) = task.terms["matching"].parameters()
    assert temperature.grad is not None
    assert float(temperature.grad.abs()) > 0


@pytest.mark.parametrize(
    "loss",
    [
        TaskConfig(loss="triplet"),
        TaskConfig(loss="triplet", options={"hardest_negative": False}),
        TaskConfig(loss="infonce"),
        TaskConfig(loss="gradient", options={"triplet_weight": "cir", "pair_weight": "sig_ms"}),
    ],
)
@pytest.mark.parametrize("score", ["matching", "alignment"])
def test_ranking_losses_train_either_head(
    score: str, loss: TaskConfig, build_tiny: Callable[..., AladinModel]
) -> None:
    model = build_tiny()
    batch = batch_for(model)
    task = JointTask(model, stage({score: loss})).train()
    task(batch).total.backward()
    assert touched(model) == {score, "image_trunk", "text_trunk", "image_encoder", "text_encoder"}


def test_tasks_of_one_kind_are_told_apart_by_a_label(
    build_tiny: Callable[..., AladinModel],
) -> None:
    model = build_tiny()
    batch = batch_for(model)
    both = stage({"matching:hinge": TaskConfig(loss="triplet"), "matching": MATCHING})
    report = JointTask(model, both).eval()(batch)
    assert report.terms.keys() == {"matching:hinge", "matching"}
    expected = report.terms["matching:hinge"] + 0.5 * report.terms["matching"]
    torch.testing.assert_close(report.total.detach(), expected)
    assert both.trained_scores == {"matching"}


def test_several_captions_of_a_photo_rank_as_the_same_pairs_one_by_one(
    build_tiny: Callable[..., AladinModel],
) -> None:
    """Hinges with hardest negatives do not see how often a photo's row stands in the batch."""
    model = build_tiny()
    photos = torch.tensor([0, 1])
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    texts: TextBatch = model.text.encoder.preprocess(CAPTIONS)
    owners = photos.repeat_interleave(2)
    grouped = Batch(images, texts, negative_mask(photos, owners))
    single = Batch(images[owners], texts, negative_mask(owners))
    goal = TaskConfig(loss="gradient", options={"triplet_weight": "con", "pair_weight": "con"})
    for name, loss in (("alignment", ALIGNMENT), ("matching", ALIGNMENT), ("matching", goal)):
        task = JointTask(model, stage({name: loss})).eval()
        expected = float(task(single).total.detach())
        assert float(task(grouped).total.detach()) == pytest.approx(expected, rel=1e-5)


def test_captions_of_one_photo_are_drawn_together(build_tiny: Callable[..., AladinModel]) -> None:
    model = build_tiny()
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    texts: TextBatch = model.text.encoder.preprocess(CAPTIONS)
    photos = torch.tensor([0, 1])
    batch = Batch(images, texts, negative_mask(photos, photos.repeat_interleave(2)))
    task = JointTask(model, stage({"captions": MATCHING})).eval()
    embedding = model.encode_texts(texts).embedding.detach()
    logits = embedding[0::2] @ embedding[1::2].T / 0.07
    expected = 0.5 * sum(
        float(torch.nn.functional.cross_entropy(each, torch.arange(2)))
        for each in (logits, logits.T)
    )
    assert float(task(batch).terms["captions"]) == pytest.approx(expected, rel=1e-4)
    assert "image_trunk" not in touched_after(task, batch, model)


def test_no_caption_is_pushed_away_from_one_of_a_photo_that_it_holds_for(
    build_tiny: Callable[..., AladinModel],
) -> None:
    model = build_tiny().eval()
    images = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    captions = ["two dogs run", "dogs in a field", "a man rides", "a field", "dogs", "grass"]
    texts: TextBatch = model.text.encoder.preprocess(captions)
    photos = torch.arange(3)
    negatives = negative_mask(photos, photos.repeat_interleave(2))
    negatives[0, 3] = False  # "a field", the second text of photo 1, holds for photo 0
    negatives[0, 4] = False  # "dogs", the first text of photo 2, holds for photo 0
    # Rows are the first texts of the photos, columns the second ones.
    expected_negatives = torch.tensor(
        [[False, False, True], [True, False, True], [False, True, False]]
    )
    task = JointTask(model, stage({"captions": ALIGNMENT})).eval()
    with torch.no_grad():
        embedding = model.encode_texts(texts).embedding
        scores = embedding[0::2] @ embedding[1::2].T
        expected = TripletMarginLoss()(scores, expected_negatives)
        found = task(Batch(images, texts, negatives)).total
    torch.testing.assert_close(found, expected)


def touched_after(task: JointTask, batch: Batch, model: AladinModel) -> set[str | None]:
    task(batch).total.backward()
    return touched(model)


def test_caption_task_needs_two_captions(build_tiny: Callable[..., AladinModel]) -> None:
    model = build_tiny()
    task = JointTask(model, stage({"captions": MATCHING}))
    with pytest.raises(ConfigError, match="captions_per_photo"):
        task(batch_for(model))


def test_a_task_joins_after_its_epochs(build_tiny: Callable[..., AladinModel]) -> None:
    model = build_tiny()
    late = TaskConfig(loss="listnet", after_epochs=2)
    task = JointTask(model, stage({"alignment": ALIGNMENT, "distillation": late}))
    batch = batch_for(model)
    joined: list[bool] = []
    for epoch in range(4):
        task.start_epoch(epoch)
        joined.append("distillation" in task(batch).terms)
    assert joined == [False, False, True, True]


def test_frozen_parts_keep_their_dropout_on_demand(build_tiny: Callable[..., AladinModel]) -> None:
    model = build_tiny()
    config = stage({"matching": MATCHING}, train=("matching",), frozen_dropout=True)
    task = JointTask(model, config)
    task.start_epoch(0)
    assert model.image.trunk is not None
    assert model.image.trunk.training
    batch = batch_for(model)
    assert not torch.equal(task(batch).total, task(batch).total)
