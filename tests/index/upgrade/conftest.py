"""Upgrades that are cut short."""

from __future__ import annotations

from pathlib import Path

import pytest

from aladin_index.building import shards
from aladin_index.settings import BuildSettings
from aladin_index.upgrade.run import upgrade_index

SETTINGS = BuildSettings(batch_size=3, shard_items=6)


class CutShortError(Exception):
    """An upgrade ends as if it were killed."""


def begin_upgrade(
    root: Path, checkpoint: Path, count: int, settings: BuildSettings = SETTINGS
) -> None:
    """Begin an upgrade and end it, as if it were killed, after so many shards."""
    left = count
    write = shards.write_shard

    def counted(*arguments: object) -> object:
        nonlocal left
        if left == 0:
            raise CutShortError
        left -= 1
        return write(*arguments)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch, pytest.raises(CutShortError):
        patch.setattr(shards, "write_shard", counted)
        upgrade_index(root, checkpoint, settings)
