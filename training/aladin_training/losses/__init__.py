"""Losses by their names in recipes; one file for each, on plain tensors."""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points

from torch import nn

from aladin_network.errors import ConfigError
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

# Losses of other packages that may be missing, by their place.
FOREIGN = {"metric_learning": "aladin_training.losses.metric_learning:MetricLearningLoss"}

# Entry points of installed packages, by which a loss of theirs has a name in recipes.
GROUP = "aladin_training.losses"


def loss_class(name: str) -> type[nn.Module]:
    """Return a loss by its name, that of an installed package's entry point, or as MODULE:CLASS.

    Raises:
        ConfigError: If there is no such loss.
    """
    if name in LOSSES:
        return LOSSES[name]
    installed = {entry.name: entry.value for entry in entry_points(group=GROUP)} | FOREIGN
    where = installed.get(name, name)
    module, _, attribute = where.partition(":")
    if not (module and attribute):
        known = sorted([*LOSSES, *installed])
        raise ConfigError(f"unknown loss {name!r}, expected MODULE:CLASS or one of {known}")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"loss {where}: cannot be imported ({error})") from error
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise ConfigError(f"loss {where}: expected a subclass of torch.nn.Module")
    return found
