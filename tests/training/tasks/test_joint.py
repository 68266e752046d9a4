"""A stage's task: which scores it needs, where its gradients go, what stays in evaluation mode."""

from __future__ import annotations

import unittest.mock

import pytest
import torch

from aladin_network.errors import ConfigError
from aladin_network.model import AladinModel
from aladin_training.adapters.parts import part_of
from aladin_training.batches.batch import Batch
from aladin_training.config.stage import OfflineNegativesConfig, TaskConfig
from aladin_training.losses.intra_modal import IntraModalConstraintLoss
from aladin_training.losses.negatives import negative_mask
from aladin_training.losses.offline_quintuplet import OfflineQuintupletLoss, OfflineScores
from aladin_training.losses.triplet import TripletMarginLoss
from aladin_training.tasks.joint import JointTask
from tests.training.tasks.conftest import batch_for, scores_of, several_captions, stage

ALIGNMENT = TaskConfig(loss="triplet")
MATCHING = TaskConfig(loss="infonce", weight=0.5)
DISTILLATION = TaskConfig(loss="listnet", weight=2.0)


def touched(task: JointTask, batch: Batch | None = None) -> set[str | None]:
    task(batch or batch_for(task.model)).total.backward()
    return {
        part_of(name)
        for name, value in task.model.named_parameters()
        if value.grad is not None and bool(value.grad.abs().sum() > 0)
    }


def test_the_loss_is_the_weighted_sum_of_its_terms(model: AladinModel) -> None:
    tasks = {"alignment": ALIGNMENT, "distillation": DISTILLATION, "matching": MATCHING}
    batch = batch_for(model)
    singles = {
        name: float(JointTask(model, stage({name: config})).eval()(batch).total.detach())
        for name, config in tasks.items()
    }
    both = stage(tasks | {"matching:hinge": TaskConfig(loss="triplet")})  # another of a kind
    report = JointTask(model, both).eval()(batch)
    assert report.terms.keys() == {*tasks, "matching:hinge"}
    expected = sum(singles.values()) + float(report.terms["matching:hinge"])
    assert float(report.total.detach()) == pytest.approx(expected, rel=1e-5)
    for name, config in tasks.items():
        assert float(report.terms[name]) * config.weight == pytest.approx(singles[name], rel=1e-5)
    assert both.trained_scores == {"matching", "alignment"}


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
def test_ranking_losses_train_their_own_head(
    score: str, loss: TaskConfig, model: AladinModel
) -> None:
    everything = {score, "image_trunk", "text_trunk", "image_encoder", "text_encoder"}
    assert touched(JointTask(model, stage({score: loss})).train()) == everything


def test_only_the_chosen_parts_are_trained_and_the_rest_stays_in_evaluation_mode(
    model: AladinModel,
) -> None:
    task = JointTask(model, stage({"distillation": DISTILLATION}, train=("matching",))).train()
    assert touched(task) == {"matching"}
    assert model.matching.training
    assert not any(
        module.training
        for part in (model.image, model.text, model.alignment)
        for module in part.modules()
        if list(module.parameters())
    )


def test_frozen_parts_keep_their_dropout_on_demand(model: AladinModel) -> None:
    config = stage({"matching": MATCHING}, train=("matching",), frozen_dropout=True)
    task = JointTask(model, config)
    task.start_epoch(0)
    assert model.image.trunk is not None
    assert model.image.trunk.training
    batch = batch_for(model)
    assert not torch.equal(task(batch).total, task(batch).total)


def test_matching_alone_computes_no_alignment(model: AladinModel) -> None:
    with unittest.mock.patch("aladin_network.model.alignment_scores") as alignment_scores:
        assert "alignment" not in touched(JointTask(model, stage({"matching": MATCHING})))
    alignment_scores.assert_not_called()


def test_a_task_joins_after_its_epochs(model: AladinModel) -> None:
    late = TaskConfig(loss="listnet", after_epochs=2)
    task = JointTask(model, stage({"alignment": ALIGNMENT, "distillation": late}))
    joined: list[bool] = []
    for epoch in range(4):
        task.start_epoch(epoch)
        joined.append("distillation" in task(batch_for(model)).terms)
    assert joined == [False, False, True, True]


def test_several_captions_of_a_photo_rank_as_the_same_pairs_one_by_one(model: AladinModel) -> None:
    """Hinges with hardest negatives do not see how often a photo's row stands in the batch."""
    grouped = several_captions(model)
    owners = torch.tensor([0, 0, 1, 1])
    single = Batch(grouped.images[owners], grouped.texts, negative_mask(owners))
    goal = TaskConfig(loss="gradient", options={"triplet_weight": "con", "pair_weight": "con"})
    for name, loss in (("alignment", ALIGNMENT), ("matching", ALIGNMENT), ("matching", goal)):
        task = JointTask(model, stage({name: loss})).eval()
        expected = float(task(single).total.detach())
        assert float(task(grouped).total.detach()) == pytest.approx(expected, rel=1e-5)


def test_captions_of_one_photo_are_drawn_together(model: AladinModel) -> None:
    batch, task = several_captions(model), JointTask(model, stage({"captions": MATCHING})).eval()
    embedding = model.encode_texts(batch.texts).embedding.detach()
    logits = embedding[0::2] @ embedding[1::2].T / 0.07
    expected = 0.5 * sum(
        float(torch.nn.functional.cross_entropy(each, torch.arange(2)))
        for each in (logits, logits.T)
    )
    assert float(task(batch).terms["captions"]) == pytest.approx(expected, rel=1e-4)
    assert "image_trunk" not in touched(task, batch)
    with pytest.raises(ConfigError, match="captions_per_photo"):
        task(batch_for(model))


def test_no_caption_is_pushed_away_from_one_of_a_photo_that_it_holds_for(
    model: AladinModel,
) -> None:
    captions = ["two dogs run", "dogs in a field", "a man rides", "a field", "dogs", "grass"]
    batch = several_captions(model, captions)
    batch.negatives[0, 3] = False  # "a field", the second text of photo 1, holds for photo 0
    batch.negatives[0, 4] = False  # "dogs", the first text of photo 2, holds for photo 0
    # Rows are the first texts of the photos, columns the second ones.
    negatives = torch.tensor([[False, False, True], [True, False, True], [False, True, False]])
    task = JointTask(model, stage({"captions": ALIGNMENT})).eval()
    with torch.no_grad():
        embedding = model.encode_texts(batch.texts).embedding
        expected = TripletMarginLoss()(embedding[0::2] @ embedding[1::2].T, negatives)
        torch.testing.assert_close(task(batch).total, expected)


@torch.no_grad()
def test_both_modalities_are_constrained_beside_the_ranking(model: AladinModel) -> None:
    batch = batch_for(model)
    options = {"distance": "cos", "lower": 0.0, "upper": 0.9}
    constraint = TaskConfig(loss="intra_modal", weight=0.3, options=options)
    task = JointTask(model, stage({"matching": ALIGNMENT, "intra_modal": constraint})).eval()
    images = model.encode_images(batch.images).embedding
    texts = model.encode_texts(batch.texts).embedding
    loss = IntraModalConstraintLoss(distance="cos", lower=0.0, upper=0.9)
    # Photos 1 and 2 of the batch are one, and so their captions do not constrain each other.
    constrained = loss(images, batch.negatives) + loss(texts, batch.negatives)
    ranking = TripletMarginLoss()(images @ texts.T, batch.negatives)
    assert float(loss(images)) > 0
    torch.testing.assert_close(task(batch).total, ranking + 0.3 * constrained)


@pytest.mark.parametrize("short_text", [False, True])
@torch.no_grad()
def test_several_captions_of_a_photo_do_not_constrain_each_other(
    short_text: bool, model: AladinModel
) -> None:
    """Two photos with two captions each; a short text may hold for the other photo, too."""
    batch = several_captions(model)
    of_texts = torch.tensor([[0, 0, 1, 1], [0, 0, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0]]).bool()
    if short_text:
        batch.negatives[1, 0] = False  # text 0, of photo 0, holds for photo 1
        of_texts[0, 2:] = of_texts[2:, 0] = False
    options = {"distance": "l2", "mode": "paper", "lower": 0.0, "upper": 2.0}
    constraint = TaskConfig(loss="intra_modal", options=options)
    task = JointTask(model, stage({"intra_modal": constraint}, captions_per_photo=2)).eval()
    images = model.encode_images(batch.images).embedding
    texts = model.encode_texts(batch.texts).embedding
    expected = torch.cdist(images, images).sum() + torch.cdist(texts, texts)[of_texts].sum()
    torch.testing.assert_close(task(batch).total, expected)


@pytest.mark.parametrize("score", ["matching", "alignment"])
@pytest.mark.parametrize(
    ("form", "photos_encoded"), [("triplet", 2), ("quintuplet", 3), ("adaptive", 3)]
)
def test_quintuplets_score_each_pair_and_encode_no_more_than_they_need(
    score: str,
    form: str,
    photos_encoded: int,
    model: AladinModel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batch = batch_for(model)
    offline = batch.offline
    assert offline is not None
    images = {"": batch.images, "bar": offline.images_bar, "tilde": offline.images_tilde}
    texts = {"": batch.texts, "bar": offline.texts_bar, "tilde": offline.texts_tilde}

    def pairs(of_images: str, of_texts: str) -> torch.Tensor:
        one = Batch(images[of_images], texts[of_texts], batch.negatives)
        return scores_of(model, one, score).diagonal().clone()

    cross_text, cross_image = pairs("bar", "bar"), pairs("tilde", "tilde")
    cross_text[3] = cross_image[3] = float("-inf")  # dropped
    single = OfflineScores(pairs("", "bar"), pairs("bar", ""), cross_text, cross_image)
    loss = OfflineQuintupletLoss(form=form)  # type: ignore[arg-type]
    expected = loss(scores_of(model, batch, score), single, batch.negatives)

    encoded: list[object] = []
    encode = AladinModel.encode_images
    monkeypatch.setattr(
        AladinModel, "encode_images", lambda *given: encoded.append(given) or encode(*given)
    )
    config = TaskConfig(loss="offline_quintuplet", options={"form": form})
    mined = OfflineNegativesConfig(stage="teacher")
    report = JointTask(model, stage({f"{score}_quintuplet": config}, offline=mined)).eval()(batch)
    torch.testing.assert_close(report.total.detach(), expected)
    assert len(encoded) == photos_encoded
    report.total.backward()
    gradients = [value.grad for value in model.parameters() if value.grad is not None]
    assert gradients
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)
