"""The names that recipes use."""

from __future__ import annotations

from aladin_training.losses import LOSSES
from aladin_training.losses.boosting import BoostingLoss
from aladin_training.losses.dark_rank import DarkRankLoss
from aladin_training.losses.gradient import GradientObjective
from aladin_training.losses.infonce import InfoNCELoss
from aladin_training.losses.intra_modal import IntraModalConstraintLoss
from aladin_training.losses.listnet import ListNetLoss
from aladin_training.losses.offline_quintuplet import OfflineQuintupletLoss
from aladin_training.losses.polynomial import PolynomialLoss
from aladin_training.losses.projection_matching import ProjectionMatchingLoss
from aladin_training.losses.reverse_divergence import ReverseDivergenceLoss
from aladin_training.losses.score_regression import ScoreRegressionLoss
from aladin_training.losses.triplet import TripletMarginLoss


def test_names_of_the_losses() -> None:
    expected = {
        "boosting": BoostingLoss,
        "dark_rank": DarkRankLoss,
        "gradient": GradientObjective,
        "infonce": InfoNCELoss,
        "intra_modal": IntraModalConstraintLoss,
        "listnet": ListNetLoss,
        "offline_quintuplet": OfflineQuintupletLoss,
        "polynomial": PolynomialLoss,
        "projection_matching": ProjectionMatchingLoss,
        "reverse_divergence": ReverseDivergenceLoss,
        "score_regression": ScoreRegressionLoss,
        "triplet": TripletMarginLoss,
    }
    assert expected.items() <= LOSSES.items()


def test_every_loss_has_defaults() -> None:
    for loss in LOSSES.values():
        loss()
