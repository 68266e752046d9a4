"""Where this user's photos, converted models and photo libraries are.

The settings ``ALADIN_MODELS_DIR`` and ``ALADIN_LIBRARIES_DIR`` name other folders than those of the
system (platformdirs: XDG's on Linux, ``~/Library`` on macOS).
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from platformdirs import user_cache_path, user_data_path

from aladin_network.conversion.named_models import named_model
from aladin_network.errors import InputError

if TYPE_CHECKING:
    from aladin_training.config.recipe import Recipe

_APPLICATION = "aladin-search"


def model_folder(name: str | os.PathLike[str]) -> Path:
    """Return the checkpoint that a name stands for; see `named_model`.

    Args:
        name: Checkpoint, folder of a model of the transformers library, or a name on the hub.

    Raises:
        CheckpointError: If there is no such model, or it cannot be converted.
        ConfigError: If a variable ALADIN_... has an impossible value.
    """
    return named_model(os.fspath(name), models_folder)


def with_start_folder(recipe: Recipe) -> Recipe:
    """Return a recipe that starts from a checkpoint, where it names a model; see `named_model`.

    Args:
        recipe: Recipe; its packages and data are checked before a model is downloaded.

    Raises:
        AladinError: If the model cannot be had, or the recipe cannot be used.
    """
    start = recipe.start
    if start is None:
        return recipe
    if not Path(start.checkpoint).expanduser().is_dir():
        from aladin_training.stages.preparation import check_before_conversion

        check_before_conversion(recipe)
    folder = str(model_folder(start.checkpoint))
    return dataclasses.replace(recipe, start=dataclasses.replace(start, checkpoint=folder))


def models_folder() -> Path:
    """Return the folder of this user's converted models; it may not exist yet."""
    from aladin_service.settings import read_settings

    given = read_settings().models_dir
    if given is not None:
        return given.expanduser().absolute()
    return user_cache_path(_APPLICATION) / "models"


def libraries_folder() -> Path:
    """Return the folder of this user's photo libraries; it may not exist yet.

    Raises:
        ConfigError: If a variable ALADIN_... has an impossible value.
    """
    from aladin_service.settings import read_settings

    given = read_settings().libraries_dir
    if given is not None:
        return given.expanduser().absolute()
    return user_data_path(_APPLICATION) / "libraries"


def checked_folders(folders: Sequence[Path]) -> tuple[Path, ...]:
    """Return folders of photos as sorted absolute paths, links resolved."""
    if not folders:
        raise InputError("expected at least one FOLDER of photos, got none")
    for folder in folders:
        if not folder.expanduser().is_dir():
            found = "a file" if folder.expanduser().exists() else "nothing"
            raise InputError(f"{folder}: expected a folder of photos, found {found}")
    places = sorted({folder.expanduser().resolve() for folder in folders})
    for one, other in pairwise(places):
        if other.is_relative_to(one):
            raise InputError(f"{other} is inside {one}: give only the outer folder")
    return tuple(places)
