"""A run that begins with the network of a checkpoint."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from aladin.checkpoint import load_checkpoint, read_model_id
from aladin.errors import ConfigError
from aladin.model import AladinModel
from training.recipe import Recipe
from training.start_config import StartConfig


def load_start(start: StartConfig) -> AladinModel:
    """Load the network that a run begins with.

    Args:
        start: of the recipe.

    Raises:
        CheckpointError: it cannot be read.
        ConfigError: the recipe asks for another model.
    """
    folder = Path(start.checkpoint).expanduser()
    checkpoint = load_checkpoint(folder, frozen=start.frozen)
    _check_id(start, checkpoint.model_id)
    return checkpoint.model


def identified(recipe: Recipe) -> Recipe:
    """Return a recipe that knows which checkpoint it starts from, not only where it lies.

    Args:
        recipe: with or without a start.

    Raises:
        CheckpointError: the checkpoint cannot be read.
        ConfigError: the recipe asks for another model.
    """
    if recipe.start is None:
        return recipe
    model_id = read_model_id(Path(recipe.start.checkpoint).expanduser())
    _check_id(recipe.start, model_id)
    return dataclasses.replace(recipe, start=dataclasses.replace(recipe.start, model_id=model_id))


def _check_id(start: StartConfig, model_id: str) -> None:
    if start.model_id not in (None, model_id):
        raise ConfigError(
            f"start: {start.checkpoint} holds the model {model_id[:12]}, "
            f"expected {str(start.model_id)[:12]}"
        )
