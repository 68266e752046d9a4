"""Losses by their names in recipes; one file for each, on plain tensors."""

from __future__ import annotations

from torch import nn

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

LOSSES: dict[str, type[nn.Module]] = {
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
