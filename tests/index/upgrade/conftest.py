"""A second network with other sizes, an index to be upgraded to it, and upgrades cut short."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from aladin_index.building import shards
from aladin_index.settings import BuildSettings
from aladin_index.upgrade.run import upgrade_index

SETTINGS = BuildSettings(batch_size=3, shard_items=6)


class CutShortError(Exception):
    """An upgrade ends as if it were killed."""


@pytest.fixture
def same_weights(new_checkpoint: Path, tmp_path: Path) -> Path:
    """The new model with another fusion."""
    folder = Path(shutil.copytree(new_checkpoint, tmp_path / "same weights"))
    config = json.loads((folder / "config.json").read_text())
    config["fusion"]["text_to_image"]["weight"] = 0.125
    (folder / "config.json").write_text(json.dumps(config))
    return folder


Begin = Callable[[Path, int], None]


@pytest.fixture
def begin(new_checkpoint: Path) -> Begin:
    """Return a function that begins an upgrade and ends it after so many shards."""
    return lambda root, count: begin_upgrade(root, new_checkpoint, count)


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

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "write_shard", counted)
        with pytest.raises(CutShortError):
            upgrade_index(root, checkpoint, settings)
