"""The names that recipes use."""

from __future__ import annotations

from training.losses import LOSSES
from training.losses.infonce import InfoNCELoss
from training.losses.listnet import ListNetLoss
from training.losses.triplet import TripletMarginLoss


def test_names_of_the_losses() -> None:
    expected = {"infonce": InfoNCELoss, "listnet": ListNetLoss, "triplet": TripletMarginLoss}
    assert expected == LOSSES
