"""The names that recipes use."""

from __future__ import annotations

from training.losses import LOSSES
from training.losses.boosting import BoostingLoss
from training.losses.gradient import GradientObjective
from training.losses.infonce import InfoNCELoss
from training.losses.intra_modal import IntraModalConstraintLoss
from training.losses.listnet import ListNetLoss
from training.losses.offline_quintuplet import OfflineQuintupletLoss
from training.losses.triplet import TripletMarginLoss


def test_names_of_the_losses() -> None:
    expected = {
        "boosting": BoostingLoss,
        "gradient": GradientObjective,
        "infonce": InfoNCELoss,
        "intra_modal": IntraModalConstraintLoss,
        "listnet": ListNetLoss,
        "offline_quintuplet": OfflineQuintupletLoss,
        "triplet": TripletMarginLoss,
    }
    assert expected.items() <= LOSSES.items()


def test_every_loss_has_defaults() -> None:
    for loss in LOSSES.values():
        loss()
