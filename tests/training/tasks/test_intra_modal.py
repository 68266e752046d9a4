"""IMC's task: the constraint on both modalities, beside the ranking loss."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from aladin_network.model import AladinModel
from aladin_training.batches.batch import Batch
from aladin_training.config.stage import StageConfig, TaskConfig
from aladin_training.losses.intra_modal import IntraModalConstraintLoss
from aladin_training.losses.negatives import negative_mask
from aladin_training.losses.triplet import TripletMarginLoss
from aladin_training.tasks.joint import JointTask


def test_both_modalities_are_constrained(
    build_tiny: Callable[..., AladinModel], pairs_for: Callable[[AladinModel], Batch]
) -> None:
    model = build_tiny().eval()
    batch = pairs_for(model)
    options = {"distance": "cos", "lower": 0.0, "upper": 0.9}
    stage = StageConfig(
        name="s",
        tasks={
            "matching": TaskConfig(loss="triplet"),
            "intra_modal": TaskConfig(loss="intra_modal", weight=0.3, options=options),
        },
    )
    with torch.no_grad():
        images = model.encode_images(batch.images).embedding
        texts = model.encode_texts(batch.texts).embedding
        constraint = IntraModalConstraintLoss(distance="cos", lower=0.0, upper=0.9)
        ranking = TripletMarginLoss()(images @ texts.T, batch.negatives)
        # Photos 1 and 2 of the batch are one, and so their captions do not constrain each other.
        constrained = constraint(images, batch.negatives) + constraint(texts, batch.negatives)
        expected = ranking + 0.3 * constrained
        assert float(constraint(images)) > 0
    torch.testing.assert_close(JointTask(model, stage).eval()(batch).total.detach(), expected)


@pytest.mark.parametrize("short_text", [False, True])
def test_several_captions_of_a_photo_do_not_constrain_each_other(
    build_tiny: Callable[..., AladinModel],
    pairs_for: Callable[[AladinModel], Batch],
    short_text: bool,
) -> None:
    """Two photos with two captions each; a short text may hold for the other photo, too."""
    model = build_tiny().eval()
    pairs = pairs_for(model)
    negatives = negative_mask(torch.arange(2), torch.tensor([0, 0, 1, 1]))
    of_texts = torch.tensor([[0, 0, 1, 1], [0, 0, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0]]).bool()
    if short_text:
        negatives[1, 0] = False  # text 0, of photo 0, holds for photo 1
        of_texts[0, 2:] = of_texts[2:, 0] = False
    batch = Batch(pairs.images[:2], pairs.texts, negatives)
    options = {"distance": "l2", "mode": "paper", "lower": 0.0, "upper": 2.0}
    stage = StageConfig(
        name="s",
        tasks={"intra_modal": TaskConfig(loss="intra_modal", options=options)},
        captions_per_photo=2,
    )
    with torch.no_grad():
        images = model.encode_images(batch.images).embedding
        texts = model.encode_texts(batch.texts).embedding
        expected = torch.cdist(images, images).sum() + torch.cdist(texts, texts)[of_texts].sum()
    found = JointTask(model, stage).eval()(batch).total.detach()
    torch.testing.assert_close(found, expected)
