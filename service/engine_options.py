"""How a command reaches the engine that keeps an index."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from index.remote.location import location_of
from service.settings import read_settings

if TYPE_CHECKING:
    from index.remote.connect import EngineOptions


def engine_options(index: Path) -> EngineOptions | None:
    """Read the settings that are for engines, if one keeps the index; None: it is in files.

    Args:
        index: the index's folder.

    Raises:
        ConfigError: a variable has an impossible value, see `read_settings`.
        IndexCorruptError: the folder does not say where the index is.
    """
    return None if location_of(index) is None else read_settings().engine_options
