"""IMC's task: the constraint on both modalities, beside the ranking loss."""

from __future__ import annotations

from collections.abc import Callable

import torch

from aladin_network.model import AladinModel
from aladin_training.batches.batch import Batch
from aladin_training.config.stage import StageConfig, TaskConfig
from aladin_training.losses.intra_modal import IntraModalConstraintLoss
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
        expected = ranking + 0.3 * (constraint(images) + constraint(texts))
        assert float(constraint(images)) > 0
    torch.testing.assert_close(JointTask(model, stage).eval()(batch).total.detach(), expected)
