"""Losses by the name that a recipe gives them; one file each, on plain tensors."""

from __future__ import annotations

from torch import nn

from training.losses.boosting import BoostingLoss
from training.losses.gradient import GradientObjective
from training.losses.infonce import InfoNCELoss
from training.losses.intra_modal import IntraModalConstraintLoss
from training.losses.listnet import ListNetLoss
from training.losses.offline_quintuplet import OfflineQuintupletLoss
from training.losses.triplet import TripletMarginLoss

LOSSES: dict[str, type[nn.Module]] = {
    "boosting": BoostingLoss,
    "gradient": GradientObjective,
    "infonce": InfoNCELoss,
    "intra_modal": IntraModalConstraintLoss,
    "listnet": ListNetLoss,
    "offline_quintuplet": OfflineQuintupletLoss,
    "triplet": TripletMarginLoss,
}
