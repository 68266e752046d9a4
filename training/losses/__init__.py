"""Losses by the name that a recipe gives them; one file each, on plain tensors."""

from __future__ import annotations

from torch import nn

from training.losses.infonce import InfoNCELoss
from training.losses.listnet import ListNetLoss
from training.losses.triplet import TripletMarginLoss

LOSSES: dict[str, type[nn.Module]] = {
    "infonce": InfoNCELoss,
    "listnet": ListNetLoss,
    "triplet": TripletMarginLoss,
}
