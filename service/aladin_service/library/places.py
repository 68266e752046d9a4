"""Where this user's photos, converted models and photo libraries are.

The settings ``ALADIN_MODELS_DIR`` and ``ALADIN_LIBRARIES_DIR`` name other folders than those of the
system: XDG's on Linux, ``~/Library`` on macOS.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from aladin_network.conversion.named_models import named_model
from aladin_network.errors import InputError

_NAME = "aladin-search"


def user_cache_folder() -> Path:
    """Return this user's folder for what can be made again."""
    return _user_folder("XDG_CACHE_HOME", ".cache", "Caches")


def user_data_folder() -> Path:
    """Return this user's folder for what programs keep."""
    return _user_folder("XDG_DATA_HOME", ".local/share", "Application Support")


def _user_folder(variable: str, default: str, of_macos: str) -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / of_macos / _NAME
    given = os.environ.get(variable, "")
    # A relative path is to be ignored (XDG Base Directory Specification).
    base = Path(given) if Path(given).is_absolute() else Path.home() / default
    return base / _NAME


def model_folder(name: str | os.PathLike[str]) -> Path:
    """Return the checkpoint that a name stands for; see `named_model`.

    Args:
        name: Checkpoint, folder of a model of the transformers library, or a name on the hub.

    Raises:
        CheckpointError: If there is no such model, or it cannot be converted.
        ConfigError: If a variable ALADIN_... has an impossible value.
    """
    return named_model(os.fspath(name), _models_folder)


def _models_folder() -> Path:
    from aladin_service.settings import read_settings

    given = read_settings().models_dir
    return user_cache_folder() / "models" if given is None else given.expanduser().absolute()


def libraries_folder() -> Path:
    """Return the folder of this user's photo libraries; it may not exist yet.

    Raises:
        ConfigError: If a variable ALADIN_... has an impossible value.
    """
    from aladin_service.settings import read_settings

    given = read_settings().libraries_dir
    return user_data_folder() / "libraries" if given is None else given.expanduser().absolute()


def checked_folders(folders: Sequence[Path]) -> tuple[Path, ...]:
    """Return folders of photos as sorted absolute paths, links resolved.

    Raises:
        InputError: If there is none, one is no folder, or one is in another.
    """
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
